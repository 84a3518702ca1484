"""The log of the runs that score test images: a line of JSON for each start of one.

Settings are chosen on training images. So a run is scored on an inner split of them, unless it is noted here.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anneal.experiments.play import Player
from anneal.experiments.runner import Trial
from anneal.files import explain_disk_errors, make_folder
from anneal.settings import Settings

NAME = "reported.jsonl"


def log_of(out: Path) -> Path:
    """The log of a run into ``out``: in the folder ``results`` here, if there is one, else beside ``out``."""
    results = Path("results")
    return (results if results.is_dir() else out.parent) / NAME


def note(log: Path, experiment: str, archive: str, trials: Sequence[Trial]) -> None:
    """Add the line of a run that starts now, with what its players change of the defaults."""
    players = {trial.name: _changed(trial.player) for trial in trials if trial.number == 0}
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "experiment": experiment,
        "archive": archive,
        "players": players,
        "trials": 1 + max(trial.number for trial in trials),
        "seeds": sorted({trial.player.settings.seed for trial in trials}),
        "version": version("anneal"),
    }
    with explain_disk_errors(log):
        make_folder(log.parent)
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _changed(player: Player) -> dict[str, Any]:
    """What a player has in place of the defaults, by name, and how far it goes. The seed is told apart."""
    default = Player(Settings(seed=player.settings.seed), 0)
    changed = {"rounds": player.rounds, **_differing(default.about(), player.about())}
    if Path(player.settings.backbone).is_dir():  # where the folder is says nothing to others
        changed["backbone"] = Path(player.settings.backbone).name
    return changed


def _differing(default: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    differing: dict[str, Any] = {}
    for name, value in own.items():
        if isinstance(value, dict):
            differing |= _differing(default[name], value)
        elif value != default[name]:
            differing[name] = value
    return differing
