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
ASKED = ("mgue", "bcgue", "cal", "cal-metric", "random")
LAMBDAS = (1, 2, 3, 4, 5, 6)
STEPS = ("infer", "fit", "embed", "threshold", "ask")  # of a round, each timed
LEVELS = {"frozen": "no training", "upper": "all training labels"}
"""Players that are one number, not a curve."""


@dataclass(frozen=True)
class Reported:
    """What the paper reports on one archive, mAP@5."""

    bits: int  # the budget at which it compares
    scores: dict[str, float]
    early: tuple[int, int]  # budgets between which MGUE is ahead of BCGUE …
    lead: int  # … by about so many points
    converges: dict[str, int]  # bits at which each reaches the upper bound
    overtakes: tuple[tuple[str, str, int | None, int], ...]
    """(who, reaches the score of whom, at that many bits or at the end, with how many bits)"""


PAPER = {
    "ucmerced": Reported(
        1845,
        {"mgue": 0.9356, "bcgue": 0.9355, "cal": 0.8782, "random": 0.7196},
        (738, 1476),
        5,
        {"mgue": 2214, "bcgue": 2214},
        (("cal", "mgue", 1845, 4059),),
    ),
    "aid": Reported(
        7440,
        {"mgue": 0.9285, "bcgue": 0.9313, "cal": 0.8770, "random": 0.7716},
        (785, 5090),
        2,
        {"mgue": 5482, "bcgue": 6266},
        (("mgue", "cal", None, 3524), ("bcgue", "cal", None, 4307)),
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
    """The first budget whose mean is within one standard deviation, over the trials, of the upper bound."""
    reached = np.flatnonzero(curve.mean >= upper.mean[-1] - upper.std[-1])
    return curve.bits[int(reached[0])] if len(reached) else None


def bits_to(curve: Curve, score: float) -> int | None:
    """The first budget at which the mean reaches a score."""
    reached = np.flatnonzero(curve.mean >= score)
    return curve.bits[int(reached[0])] if len(reached) else None


# -- tables --------------------------------------------------------------------------------------


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def curve_table(found: dict[str, Curve], players: Sequence[str] = ()) -> str:
    """The mean of each player at each budget."""
    players = [name for name in players or found if name in found and name not in LEVELS]
    if not players:
        return "Not played yet."
    longest = max((found[name] for name in players), key=lambda curve: len(curve.bits))
    head = ["", f"{longest.bits[0]} bits", *map(str, longest.bits[1:]), "trials"]
    lines = []
    for name in players:
        curve = found[name]
        cells = [f"{mean:.3f}" for mean in curve.mean] + [""] * (len(longest.bits) - len(curve.bits))
        lines.append([f"`{name}`", *cells, str(len(curve.scores))])
    return table(head, lines)


def brief_table(found: dict[str, Curve], paper: Reported) -> str:
    """A few budgets, the paper's own number beside them: what a reader wants first."""
    places = [1, 2, 4, 5, len(found["mgue"].bits) - 1] if paper.bits < 4000 else [2, 6, 10, 14, 18]
    places = [place for place in dict.fromkeys(places) if place < len(found["mgue"].bits)]
    head = ["", *(f"{found['mgue'].bits[place]} bits" for place in places), f"paper at {paper.bits}"]
    lines = []
    for name in ASKED:
        scores = [f"{found[name].mean[place]:.3f}" for place in places]
        theirs = f"{paper.scores[name]:.4f}" if name in paper.scores else "–"
        lines.append([f"`{name}`", *scores, theirs])
    return table(head, lines)


def level_table(found: dict[str, Curve]) -> str:
    """What stands beside the curves: no training at all, and all labels."""
    lines = [
        [said, f"{found[name].mean[-1]:.3f}", f"{found[name].std[-1]:.3f}", str(len(found[name].scores))]
        for name, said in LEVELS.items()
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


def asked_table(rows: Sequence[Row]) -> str:
    """What was asked: how many of a round's pairs were similar, and what all answers imply by then."""
    lines = []
    for player in ("mgue", "bcgue", "random"):
        mine = [row for row in rows if row["player"] == player and row["round"]]
        if len({row["round"] for row in mine}) < 3:
            continue
        numbers = sorted({row["round"] for row in mine})
        at = [[row for row in mine if row["round"] == number] for number in numbers]
        share = [np.mean([float(row["similar_share"]) for row in some]) for some in at]
        implied = np.mean([float(row["implied"]) for row in at[-1]])
        some = [f"{share[place]:.0%}" for place in (0, 1, 2, len(share) // 2, len(share) - 1)]
        lines.append([f"`{player}`", *some, f"{implied:,.0f}"])
    head = ["similar among the pairs of round", "1", "2", "3", "half way", "last", "pairs implied in the end"]
    return table(head, lines)


def convergence_table(found: dict[str, Curve], paper: Reported) -> str:
    """Budgets at which things happen; the paper's own beside it where it names one."""
    upper, best = found["upper"], paper.scores["mgue"]
    players = [name for name in ASKED if name in found]
    lines = [
        [
            f"`{name}` within one std of all labels",
            _bits(converged(found[name], upper)),
            str(paper.converges.get(name, "–")),
        ]
        for name in players
    ]
    lines += [[f"`{name}` reaches {best:.4f}", _bits(bits_to(found[name], best)), "–"] for name in players]
    for who, whose, bits, theirs_at in paper.overtakes:
        if {who, whose} <= set(found):
            place = -1 if bits is None else found[whose].at(bits)
            score, when = float(found[whose].mean[place]), found[whose].bits[place]
            said = f"`{who}` reaches what `{whose}` has at {when} bits, {score:.3f}"
            lines.append([said, _bits(bits_to(found[who], score)), str(theirs_at)])
    return table(["", "bits", "paper"], lines)


def reach_table(found: dict[str, Curve], scores: Sequence[float]) -> str:
    """How many bits each player needs for a mean of so much; and what it ends with."""
    players = {name: curve for name, curve in found.items() if name not in LEVELS}
    lines = []
    for name, curve in players.items():
        reached = [_bits(bits_to(curve, score)) for score in scores]
        lines.append([f"`{name}`", *reached, f"{curve.mean[-1]:.3f} at {curve.bits[-1]}"])
    return table(["bits to reach", *(f"{score:.4g}" for score in scores), "in the end"], lines)


def least_table(found: dict[str, Curve]) -> str:
    """How far above the frozen features each player's worst round of any trial is."""
    frozen = found["frozen"].scores[:, 0]
    lines = []
    for name, curve in found.items():
        if name not in LEVELS:
            ahead = 100 * (curve.scores - frozen[: len(curve.scores), None])
            worst = divmod(int(ahead.argmin()), len(curve.bits))
            lines.append([f"`{name}`", f"{ahead.min():+.1f}", str(worst[0]), str(curve.bits[worst[1]])])
    return table(["points above frozen, worst round of all", "", "trial", "bits"], lines)


def _bits(bits: int | None) -> str:
    return "not reached" if bits is None else str(bits)


def choice_table(found: dict[str, Curve]) -> str:
    """Each variant at the budgets of the first, read between its own where they differ; and its mean
    lead over the plain strategy, with the deviation of that lead over the trials."""
    players = {name: curve for name, curve in found.items() if name not in LEVELS and len(curve.bits) > 1}
    if not players:
        return "Not played yet."
    bits = next(iter(players.values())).bits
    ends = min(curve.bits[-1] for curve in players.values())
    shared = [place for place in range(1, len(bits)) if bits[place] <= ends]
    lines = []
    for name, curve in players.items():
        scores = np.array([np.interp(bits, curve.bits, row) for row in curve.scores])
        plain = players[name.split(" ")[0]]
        n = min(len(scores), len(plain.scores))
        ahead = 100 * (scores[:n] - plain.scores[:n])[:, shared].mean(axis=1)
        spread = ahead.std(ddof=1) if n > 1 else 0.0
        lead = "" if curve is plain else f"{ahead.mean():+.1f} ± {spread:.1f}"
        means = zip(bits, scores.mean(axis=0), strict=True)
        cells = [f"{mean:.3f}" if spent <= curve.bits[-1] else "" for spent, mean in means]
        lines.append([name, *cells, lead, str(len(curve.scores))])
    return table(["", *map(str, bits), f"points ahead, {bits[1]} to {bits[shared[-1]]}", "trials"], lines)


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
    if min(len(mgue.bits), len(bcgue.bits)) <= high or low == high:
        return None
    lead = _lead(mgue, bcgue, low, high + 1)
    behind = [mgue.bits[p] for p in range(low, high + 1) if mgue.mean[p] < bcgue.mean[p]]
    said = f"{_points(lead)}, {mgue.bits[low]} to {mgue.bits[high]} bits (paper: about {paper.lead:+d})"
    claim = "MGUE ahead of BCGUE early"
    if lead.mean() <= 0:
        return [claim, NO, said]
    return [claim, YES if not behind else f"confirmed but at {_listed(behind)} bits", said]


def _order(found: dict[str, Curve], paper: Reported) -> Line | None:
    pairs = [("mgue", "cal"), ("bcgue", "cal"), ("cal", "random")]
    begun = {name for name, curve in found.items() if len(curve.bits) > 1}
    pairs = [pair for pair in pairs if set(pair) <= begun]
    if ("mgue", "cal") not in pairs:
        return None
    said: list[str] = []
    broken: list[float] = []
    for one, other in pairs:
        a, b = found[one], found[other]
        n = min(len(a.bits), len(b.bits))
        behind = [a.bits[p] for p in range(1, n) if a.mean[p] <= b.mean[p]]
        but = ", at no budget" if len(behind) == n - 1 else f", not at {_listed(behind)}" if behind else ""
        said.append(f"{one} > {other}: {_points(_lead(a, b, 1, n))}{but}")
        broken.append(len(behind) / (n - 1))
    verdict = NO if max(broken) == 1 else "confirmed but at the budgets named" if max(broken) else YES
    return ["MGUE and BCGUE > CAL > random, after the first labels", verdict, "; ".join(said)]


def _best_lambda(found: dict[str, Curve], paper: Reported) -> Line | None:
    every = {lam: found[f"mgue-flat-{lam}"] for lam in LAMBDAS if f"mgue-flat-{lam}" in found}
    if len(every) < len(LAMBDAS):
        return None
    n = min(len(curve.bits) for curve in every.values())
    overall = {lam: float(curve.mean[1:n].mean()) for lam, curve in every.items()}
    best = max(overall, key=lambda lam: overall[lam])
    said = "mean over later budgets: " + ", ".join(f"λ = {lam} {score:.3f}" for lam, score in overall.items())
    if best == 3:
        return ["λ = 3 is best", YES, said]
    lead = _lead(every[best], every[3], 1, n)
    verdict = f"within noise: λ = {best} is, by {_points(lead)}" if _noise(lead) else NO
    return ["λ = 3 is best", verdict, said]


def _diversity(found: dict[str, Curve], paper: Reported) -> Line | None:
    names = ("mgue", "mgue-flat-3", "bcgue", "bcgue-flat")
    if not set(names) <= set(found):
        return None
    n = min(len(found[name].bits) for name in names)
    mgue = _lead(found["mgue"], found["mgue-flat-3"], 1, n)
    bcgue = _lead(found["bcgue"], found["bcgue-flat"], 1, n)
    said = f"MGUE {_points(mgue)}, BCGUE {_points(bcgue)}, over later budgets"
    yes = "confirmed, within noise" if _noise(mgue) or _noise(bcgue) else YES
    return ["diversity helps both, BCGUE more", yes if 0 < mgue.mean() < bcgue.mean() else NO, said]


def _converges(found: dict[str, Curve], paper: Reported) -> Line | None:
    if "upper" not in found or "mgue" not in found or len(found["upper"].scores) < 2:
        return None
    here = {name: converged(found[name], found["upper"]) for name in paper.converges if name in found}
    holds = all(bits is not None and bits <= 1.02 * paper.converges[name] for name, bits in here.items())
    theirs = ", ".join(f"{name} {paper.converges[name]}" for name in here)
    said = ", ".join(f"{name} {_bits(bits)}" for name, bits in here.items())
    return [f"the upper bound is reached ({theirs} bits)", YES if holds else NO, said]


YES, NO = "confirmed", "**not confirmed**"


def _lead(one: Curve, other: Curve, start: int, stop: int) -> Floats:
    """How far ahead on average over these budgets, trial by trial: the same split and first labels."""
    n = min(len(one.scores), len(other.scores))
    lead: Floats = (one.scores[:n, start:stop] - other.scores[:n, start:stop]).mean(axis=1)
    return lead


def _noise(lead: Floats) -> bool:
    """Whether the trials do not agree on who is ahead by more than they differ."""
    return len(lead) > 1 and abs(float(lead.mean())) <= float(lead.std(ddof=1))


def _points(lead: Floats) -> str:
    spread = f" ± {100 * lead.std(ddof=1):.1f}" if len(lead) > 1 else ""
    return f"{100 * lead.mean():+.1f}{spread} points"


def _listed(bits: Sequence[int]) -> str:
    return ", ".join(map(str, bits))


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
    lines_ = []
    for player in dict.fromkeys(row["player"] for row in rows):
        mine = [sum(float(row[step]) for step in STEPS) for row in rows if row["player"] == player]
        lines_.append([f"`{player}`", str(len(mine)), f"{np.median(mine):.1f}", f"{sum(mine) / 60:.1f}"])
    total = sum(sum(float(row[step]) for step in STEPS) for row in rows) / 60
    lines_.append(["all", str(len(rows)), "", f"{total:.0f}"])
    return table(["", "rounds", "median seconds a round", "minutes"], lines_)


def block(kind: str, run: str, results: Path) -> str:
    """One generated block of a page."""
    folder = results / run
    if kind == "minutes":
        return minutes(folder)
    rows = read(folder / "curve.csv")
    found = curves(rows)
    paper = PAPER[run.split("-")[0]]
    kinds: dict[str, Callable[[], str]] = {
        "comparison": lambda: curve_table(found, ASKED),
        "lambda": lambda: curve_table(found, tuple(f"mgue-flat-{lam}" for lam in LAMBDAS)),
        "diversity": lambda: curve_table(found, ("mgue", "mgue-flat-3", "bcgue", "bcgue-flat")),
        "curve": lambda: curve_table(found),
        "brief": lambda: brief_table(found, paper),
        "asked": lambda: asked_table(rows),
        "levels": lambda: level_table(found),
        "paper": lambda: paper_table(found, paper),
        "convergence": lambda: convergence_table(found, paper),
        "claims": lambda: claims_table(found, paper),
        "choices": lambda: choice_table(found),
        "reach": lambda: reach_table(found, (0.8, 0.9, paper.scores["mgue"], float(found["mgue"].mean[-1]))),
        "least": lambda: least_table(found),
        "by-class": lambda: curve_table(curves(rows, "p5_class")),
    }
    return kinds[kind]()


BLOCK = re.compile(r"(<!-- report: ([\w-]+) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, results: Path) -> str:
    """The page with its blocks written anew."""
    return BLOCK.sub(lambda found: found[1] + block(found[2], found[3], results) + "\n" + found[4], page)
