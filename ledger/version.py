"""The release, for everybody."""

__version__ = "0.1.0"
