"""Progress: what a long step calls as it goes on."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, total)."""

Watch = Callable[[str], Progress]
"""Gives a progress function for a named step."""


def silent(done: int, total: int) -> None:
    """Shows nothing."""


def unwatched(step: str) -> Progress:
    return silent
