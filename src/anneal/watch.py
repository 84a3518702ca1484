"""Progress: what a long step calls as it goes on."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # called with (done, total)
Watch = Callable[[str], Progress]  # gives a progress function for a named step


def silent(done: int, total: int) -> None:
    """Shows nothing."""


def unwatched(step: str) -> Progress:
    return silent
