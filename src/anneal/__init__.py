"""Search by example in a folder of remote-sensing images, taught by one-bit answers.

The public names. Each is imported when it is first used: ``import anneal`` loads neither torch nor SciPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anneal.archive.catalog import Archive, open_archive
    from anneal.campaign.campaign import Campaign
    from anneal.campaign.questions import next_question
    from anneal.campaign.turn import create, turn
    from anneal.campaign.update import update
    from anneal.errors import AnnealError
    from anneal.method.metrics import average_precision, precision
    from anneal.method.snapshot import Agenda, Snapshot
    from anneal.method.strategies import Strategy, batch
    from anneal.pairs import Pairs, Verdict
    from anneal.search import find_similar
    from anneal.settings import Settings

__version__ = "0.1.0"

_MODULES = {
    "archive.catalog": ("Archive", "open_archive"),
    "campaign.campaign": ("Campaign",),
    "campaign.questions": ("next_question",),
    "campaign.turn": ("create", "turn"),
    "campaign.update": ("update",),
    "errors": ("AnnealError",),
    "method.metrics": ("average_precision", "precision"),
    "method.snapshot": ("Agenda", "Snapshot"),
    "method.strategies": ("Strategy", "batch"),
    "pairs": ("Pairs", "Verdict"),
    "search": ("find_similar",),
    "settings": ("Settings",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [
    "Agenda", "AnnealError", "Archive", "Campaign", "Pairs", "Settings", "Snapshot", "Strategy", "Verdict",
    "average_precision", "batch", "create", "find_similar", "next_question", "open_archive", "precision",
    "turn", "update",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'anneal' has no attribute {name!r}")
    return getattr(import_module(f"anneal.{_HOME[name]}"), name)


def __dir__() -> list[str]:  # what a notebook completes
    return __all__
