"""Whose trial it is."""

from __future__ import annotations

import os


def invoking_user() -> tuple[int, int]:
    """User and group who typed the command: behind sudo, who called it; else who we are."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        return int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", os.environ["SUDO_UID"]))
    return os.geteuid(), os.getegid()
