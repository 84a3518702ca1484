"""What a ``curve.csv`` says: the score of each player in each trial at each budget."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.method.labelling import LABELLERS
from anneal.pairs import Floats

Row = dict[str, Any]
SCORE = "map5_min"


@dataclass(frozen=True)
class Pace:
    """How many seconds a person takes: an assumption, which a reader may change."""

    act: float = 1.2  # a key press: a pair, a sheet, or a change on it
    label: float = 4.4  # the class of an image

    def __str__(self) -> str:
        return f"{self.act:g} s an act and {self.label:g} s a class label"


PACE = Pace()


@dataclass(frozen=True)
class Curve:
    """One player's scores: a row per trial, a column per budget."""

    bits: list[int]
    scores: Floats  # (trials, budgets)

    @property
    def mean(self) -> Floats:
        return np.asarray(self.scores.mean(axis=0))

    @property
    def std(self) -> Floats:
        """The sample standard deviation over the trials; 0 for a single trial."""
        return np.asarray(self.scores.std(axis=0, ddof=1)) if len(self.scores) > 1 else 0 * self.mean

    def at(self, bits: int) -> int:
        """The column with the nearest budget."""
        return int(np.abs(np.array(self.bits) - bits).argmin())

    def at_budgets(self, bits: list[int]) -> "Curve":
        """The same curve at other budgets, interpolated."""
        return Curve(bits, np.array([np.interp(bits, self.bits, trial) for trial in self.scores]))

    def lead(self, other: "Curve", start: int, stop: int) -> Floats:
        """The mean lead over these columns in each trial. Trial i of both has one split and first labels."""
        n = min(len(self.scores), len(other.scores))
        return np.asarray((self.scores[:n, start:stop] - other.scores[:n, start:stop]).mean(axis=1))


def read(path: Path) -> list[Row]:
    """The rows of a ``curve.csv``. A file without the column ``player`` has one player per strategy."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows: list[Row] = list(csv.DictReader(lines))
    for row in rows:
        row.setdefault("player", row["strategy"])
        row |= {name: int(row[name]) for name in ("trial", "round", "bits")}
        row[SCORE] = float(row[SCORE])
    return rows


def with_costs(rows: Sequence[Row], pace: Pace = PACE) -> list[Row]:
    """The rows with two columns filled in: ``acts``, which are the answers in files from before sheets, and
    ``minutes`` at this pace. NaN where an older file does not tell verdicts from class labels."""
    filled = []
    for row in rows:
        answers = int(row.get("answers") or 0)
        acts = int(row.get("acts") or answers)
        labels = _labels(row, answers)
        minutes = (pace.act * (acts - labels) + pace.label * labels) / 60
        filled.append({**row, "acts": acts, "minutes": minutes})
    return filled


def _labels(row: Row, answers: int) -> float:
    """How many of the answers are class labels. In older files all or none are, or it is not known."""
    if row.get("labels") not in (None, ""):
        return int(row["labels"])
    if row.get("strategy") in LABELLERS:
        return answers
    return 0 if row["bits"] == answers else float("nan")


def curves(rows: Sequence[Row], column: str = SCORE, by: str = "player") -> dict[str, Curve]:
    """A curve for each value of the column ``by``, in the order of the rows. It ends at the last round that
    all of its trials have finished, so that each mean is over the same trials."""
    players: dict[str, dict[int, list[Row]]] = {}
    for row in rows:
        players.setdefault(row[by], {}).setdefault(row["trial"], []).append(row)
    return {name: _curve(trials, column) for name, trials in players.items()}


def _curve(trials: Mapping[int, Sequence[Row]], column: str) -> Curve:
    rounds = min(len(trial) for trial in trials.values())
    finished = [trials[number][:rounds] for number in sorted(trials)]
    bits = np.mean([[row["bits"] for row in trial] for trial in finished], axis=0)
    scores = [[float(row[column]) for row in trial] for trial in finished]
    return Curve([round(budget) for budget in bits.tolist()], np.array(scores))


def bits_to(curve: Curve, score: float) -> int | None:
    """The first budget at which the mean reaches a score."""
    reached = np.flatnonzero(curve.mean >= score)
    return curve.bits[int(reached[0])] if len(reached) else None


def converged(curve: Curve, upper: Curve) -> int | None:
    """The first budget at which the mean is at most one ``upper.std`` below the last ``upper.mean``."""
    return bits_to(curve, float(upper.mean[-1] - upper.std[-1]))
