"""The parts of jobs/embed.py."""
