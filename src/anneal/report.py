"""What the curves say, as Markdown: tables, convergence, and the paper's claims checked one by one.

Everything here is computed from the rows of a ``curve.csv`` of ``anneal reproduce``. A page may hold blocks
between ``<!-- report: KIND RUN -->`` and ``<!-- end -->``; ``fill`` writes them anew.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.pairs import Floats

Row = dict[str, Any]
COLUMN = "map5_min"


@dataclass(frozen=True)
class Reported:
    """What the paper reports on one archive, mAP@5."""

    bits: int  # the budget at which it compares
    scores: dict[str, float]
    early: tuple[int, int]  # budgets between which MGUE is ahead of BCGUE
    converges: dict[str, int]  # bits at which each reaches the upper bound


PAPER = {
    "ucmerced": Reported(
        1845,
        {"mgue": 0.9356, "bcgue": 0.9355, "cal": 0.8782, "random": 0.7196},
        (738, 1476),
        {"mgue": 2214, "bcgue": 2214},
    ),
    "aid": Reported(
        7440,
        {"mgue": 0.9285, "bcgue": 0.9313, "cal": 0.8770, "random": 0.7716},
        (785, 7440),
        {"mgue": 5482, "bcgue": 6266},
    ),
}


@dataclass(frozen=True)
class Curve:
    """One player's scores: a row a trial, a column a budget."""

    bits: list[int]
    scores: Floats

    @property
    def mean(self) -> Floats:
        mean: Floats = self.scores.mean(axis=0)
        return mean

    @property
    def std(self) -> Floats:
        """Over the trials, of a sample; 0 where there is one trial alone."""
        std: Floats = self.scores.std(axis=0, ddof=1) if len(self.scores) > 1 else 0 * self.mean
        return std

    def at(self, bits: int) -> int:
        """The column whose budget is nearest."""
        return int(np.abs(np.array(self.bits) - bits).argmin())


def read(path: Path) -> list[Row]:
    """The rows of a ``curve.csv``."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows: list[Row] = list(csv.DictReader(lines))
    for row in rows:
        row.setdefault("player", row["strategy"])
        row |= {name: int(row[name]) for name in ("trial", "round", "bits")} | {COLUMN: float(row[COLUMN])}
    return rows


def curves(rows: Sequence[Row], column: str = COLUMN) -> dict[str, Curve]:
    """By player: the budgets that all of its trials have reached."""
    found = {}
    for player in dict.fromkeys(row["player"] for row in rows):
        mine = [row for row in rows if row["player"] == player]
        trials = [[row for row in mine if row["trial"] == t] for t in sorted({row["trial"] for row in mine})]
        whole = min(len(trial) for trial in trials)
        scores = np.array([[float(row[column]) for row in trial[:whole]] for trial in trials])
        found[player] = Curve([row["bits"] for row in trials[0][:whole]], scores)
    return found


def converged(curve: Curve, upper: Curve) -> int | None:
    """The first budget whose mean is within one standard deviation of the upper bound: the larger of
    the two curves' own, over the trials."""
    limit = float(upper.mean[-1])
    for place, bits in enumerate(curve.bits):
        if curve.mean[place] >= limit - max(upper.std[-1], curve.std[place]):
            return bits
    return None


def bits_to(curve: Curve, score: float) -> int | None:
    """The first budget at which the mean reaches a score."""
    reached = np.flatnonzero(curve.mean >= score)
    return curve.bits[int(reached[0])] if len(reached) else None


# -- tables --------------------------------------------------------------------------------------


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def curve_table(found: dict[str, Curve], players: Sequence[str] = (), every: int = 1) -> str:
    """The mean of each player at each budget."""
    players = [name for name in players or found if name in found]
    longest = max((found[name] for name in players), key=lambda curve: len(curve.bits))
    places = range(0, len(longest.bits), every)
    head = ["", *(f"{longest.bits[p]} bits" if p == 0 else str(longest.bits[p]) for p in places)]
    lines = []
    for name in players:
        curve = found[name]
        cells = [f"{curve.mean[p]:.3f}" if p < len(curve.bits) else "" for p in places]
        lines.append([f"`{name}`", *cells])
    return table(head, lines)


def brief_table(found: dict[str, Curve], paper: Reported) -> str:
    """A few budgets, the paper's own number beside them: what a reader wants first."""
    places = [1, 2, 4, 5, len(found["mgue"].bits) - 1] if paper.bits < 4000 else [2, 6, 10, 14, 18]
    places = [place for place in dict.fromkeys(places) if place < len(found["mgue"].bits)]
    head = ["", *(f"{found['mgue'].bits[place]} bits" for place in places), f"paper at {paper.bits}"]
    lines = []
    for name in ("mgue", "bcgue", "cal", "cal-metric", "random"):
        scores = [f"{found[name].mean[place]:.3f}" for place in places]
        theirs = f"{paper.scores[name]:.3f}" if name in paper.scores else "–"
        lines.append([f"`{name}`", *scores, theirs])
    return table(head, lines)


def level_table(found: dict[str, Curve]) -> str:
    """What stands beside the curves: no training at all, and all labels."""
    lines = [
        [said, f"{found[name].mean[-1]:.3f}", f"{found[name].std[-1]:.3f}", str(len(found[name].scores))]
        for name, said in (("frozen", "no training"), ("upper", "all training labels"))
        if name in found
    ]
    return table(["", "mean", "std", "trials"], lines)


def paper_table(found: dict[str, Curve], paper: Reported) -> str:
    """The paper's number, ours, and the difference, at the budget the paper names."""
    lines = []
    for name, theirs in paper.scores.items():
        if name not in found or found[name].bits[-1] < 0.98 * paper.bits:
            continue
        curve = found[name]
        place = curve.at(paper.bits)
        ours = float(curve.mean[place])
        difference = f"{100 * (ours - theirs):+.1f} points"
        spread = f"{curve.scores[:, place].min():.3f} – {curve.scores[:, place].max():.3f}"
        cells = [str(curve.bits[place]), f"{theirs:.4f}", f"{ours:.4f}", difference, spread]
        lines.append([f"`{name}`", *cells])
    return table(["", "bits", "paper", "ours", "difference", "least – most"], lines)


def convergence_table(found: dict[str, Curve], paper: Reported) -> str:
    """Budgets at which things happen; the paper's own beside it where it names one."""
    upper, best = found["upper"], paper.scores["mgue"]
    lines = []
    for name in ("mgue", "bcgue", "cal", "cal-metric", "random"):
        if name not in found:
            continue
        here, reached = converged(found[name], upper), bits_to(found[name], best)
        theirs = str(paper.converges[name]) if name in paper.converges else "–"
        lines.append([f"`{name}`", str(here or "not reached"), theirs, str(reached or "not reached")])
    return table(["", "within one std of all labels at", "paper", f"reaches {best:.4f} at"], lines)


def choice_table(found: dict[str, Curve]) -> str:
    """Each variant on the training part alone: mean at each budget, and over all after the first."""
    lines = []
    for name, curve in found.items():
        if name == "frozen":
            continue
        mean = curve.mean[1:].mean() if len(curve.bits) > 1 else curve.mean[0]
        lines.append([name, *(f"{score:.3f}" for score in curve.mean), f"{mean:.3f}"])
    longest = max((c for c in found.values()), key=lambda curve: len(curve.bits))
    return table(["", *(f"round {n}" for n in range(len(longest.bits))), "mean after 0"], lines)


# -- claims --------------------------------------------------------------------------------------


def claims_table(found: dict[str, Curve], paper: Reported) -> str:
    """Each of the paper's claims that these curves can speak about, and what they say."""
    checks = (_early, _order, _best_lambda, _diversity, _converges)
    lines = [line for check in checks if (line := check(found, paper))]
    return table(["the paper", "here", "evidence"], lines)


Line = list[str]


def _early(found: dict[str, Curve], paper: Reported) -> Line | None:
    if not {"mgue", "bcgue"} <= set(found):
        return None
    mgue, bcgue = found["mgue"], found["bcgue"]
    low, high = (mgue.at(bits) for bits in paper.early)
    high = min(high, len(bcgue.bits) - 1)
    ahead = mgue.mean[low : high + 1] - bcgue.mean[low : high + 1]
    said = f"{100 * ahead.mean():+.1f} points on average, {mgue.bits[low]} to {mgue.bits[high]} bits"
    return ["MGUE at or above BCGUE early", _verdict(bool((ahead >= 0).all())), said]


def _order(found: dict[str, Curve], paper: Reported) -> Line | None:
    order = [name for name in ("mgue", "bcgue", "cal", "random") if name in found]
    if not {"mgue", "cal", "random"} <= set(order):
        return None
    steps = [("mgue", "cal"), ("bcgue", "cal"), ("cal", "random"), ("mgue", "random"), ("bcgue", "random")]
    holds, said = True, []
    for one, other in steps:
        if {one, other} <= set(found):
            a, b = found[one], found[other]
            n = min(len(a.bits), len(b.bits))
            ahead = a.mean[1:n] > b.mean[1:n]
            holds &= bool(ahead.all())
            said.append(f"{one} > {other} at {ahead.sum()} of {n - 1}")
    return ["MGUE and BCGUE > CAL > random after the first labels", _verdict(holds), "; ".join(said)]


def _best_lambda(found: dict[str, Curve], paper: Reported) -> Line | None:
    means = {lam: found[f"mgue-flat-{lam}"].mean for lam in range(1, 7) if f"mgue-flat-{lam}" in found}
    if len(means) < 6:
        return None
    n = min(len(mean) for mean in means.values())
    overall = {lam: float(mean[1:n].mean()) for lam, mean in means.items()}
    best = max(overall, key=lambda lam: overall[lam])
    said = ", ".join(f"λ = {lam}: {score:.3f}" for lam, score in overall.items())
    return ["λ = 3 is best", _verdict(best == 3), f"mean over all later budgets: {said}"]


def _diversity(found: dict[str, Curve], paper: Reported) -> Line | None:
    if not {"mgue", "mgue-flat-3", "bcgue", "bcgue-flat"} <= set(found):
        return None
    gain = {}
    for name, flat in (("mgue", "mgue-flat-3"), ("bcgue", "bcgue-flat")):
        n = min(len(found[name].bits), len(found[flat].bits))
        gain[name] = 100 * float((found[name].mean[1:n] - found[flat].mean[1:n]).mean())
    said = f"MGUE {gain['mgue']:+.1f} points, BCGUE {gain['bcgue']:+.1f}, mean over all later budgets"
    holds = 0 < gain["mgue"] < gain["bcgue"]
    return ["diversity helps both, BCGUE more", _verdict(holds), said]


def _converges(found: dict[str, Curve], paper: Reported) -> Line | None:
    if "upper" not in found or "mgue" not in found:
        return None
    here = {name: converged(found[name], found["upper"]) for name in paper.converges if name in found}
    holds = all(bits is not None and bits <= 1.02 * paper.converges[name] for name, bits in here.items())
    theirs = ", ".join(f"{name} {paper.converges[name]}" for name in here)
    said = ", ".join(f"{name} {bits or 'not reached'}" for name, bits in here.items())
    return [f"upper bound reached ({theirs} bits)", _verdict(holds), said]


def _verdict(holds: bool) -> str:
    return "confirmed" if holds else "**not confirmed**"


# -- pages ---------------------------------------------------------------------------------------


def of_run(rows: Sequence[Row], archive: str, title: str) -> str:
    """The report of one run: every table its rows allow."""
    found = curves(rows)
    parts = [f"# {title}", "mAP@5 divided by min(R, 5), mean over the trials.", curve_table(found)]
    paper = PAPER.get(archive)
    if "upper" in found:
        parts += ["## Levels", level_table(found)]
    if paper:
        parts += ["## Beside the paper", paper_table(found, paper)]
        parts += ["## Convergence", convergence_table(found, paper)] if "upper" in found else []
        parts += ["## The paper's claims", claims_table(found, paper)]
    return "\n\n".join(parts) + "\n"


def minutes(folder: Path) -> str:
    """How long a run took: minutes of work by player, one trial after another, and rounds."""
    with (folder / "seconds.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    steps = ("infer", "fit", "embed", "threshold", "ask")
    lines_ = []
    for player in dict.fromkeys(row["player"] for row in rows):
        mine = [sum(float(row[step]) for step in steps) for row in rows if row["player"] == player]
        lines_.append([f"`{player}`", str(len(mine)), f"{np.median(mine):.1f}", f"{sum(mine) / 60:.1f}"])
    total = sum(sum(float(row[step]) for step in steps) for row in rows) / 60
    lines_.append(["all", str(len(rows)), "", f"{total:.0f}"])
    return table(["", "rounds", "median seconds a round", "minutes"], lines_)


def block(kind: str, run: str, results: Path) -> str:
    """One generated block of a page."""
    folder = results / run
    if kind == "minutes":
        return minutes(folder)
    found = curves(read(folder / "curve.csv"))
    paper = PAPER[run.split("-")[0]]
    kinds: dict[str, Callable[[], str]] = {
        "comparison": lambda: curve_table(found, ("mgue", "bcgue", "cal", "cal-metric", "random")),
        "lambda": lambda: curve_table(found, tuple(f"mgue-flat-{lam}" for lam in range(1, 7))),
        "diversity": lambda: curve_table(found, ("mgue", "mgue-flat-3", "bcgue", "bcgue-flat")),
        "curve": lambda: curve_table(found),
        "brief": lambda: brief_table(found, paper),
        "levels": lambda: level_table(found),
        "paper": lambda: paper_table(found, paper),
        "convergence": lambda: convergence_table(found, paper),
        "claims": lambda: claims_table(found, paper),
        "choices": lambda: choice_table(found),
    }
    return kinds[kind]()


BLOCK = re.compile(r"(<!-- report: ([\w-]+) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, results: Path) -> str:
    """The page with its blocks written anew."""
    return BLOCK.sub(lambda found: found[1] + block(found[2], found[3], results) + "\n" + found[4], page)
