"""Mounts, where this process may make them."""

import subprocess


def mount(*arguments):
    """Say whether it could."""
    try:
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
    except OSError:
        return False


def unmount(folder):
    """Take a mount away, whoever still uses it."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
