"""What the paper reports, and its claims checked one by one against our curves."""

from collections.abc import Mapping
from dataclasses import dataclass

from anneal.experiments.curves import Curve, converged
from anneal.pairs import Floats

LAMBDAS = (1, 2, 3, 4, 5, 6)
DIVERSITY = ("mgue", "mgue-flat-3", "bcgue", "bcgue-flat")
CONFIRMED = "confirmed"
NOT_CONFIRMED = "**not confirmed**"
Line = list[str]  # a claim, whether it holds here, and the evidence


@dataclass(frozen=True)
class Reported:
    """What the paper reports on one archive. Scores are mAP@5."""

    bits: int  # the budget of the comparison
    scores: dict[str, float]
    early: tuple[int, int, int]  # the first and the last budget of MGUE's lead over BCGUE, and its points
    converges: dict[str, int]  # bits at which a player reaches the upper bound
    # player, other, bits, needed: with ``needed`` it has the other's score at ``bits`` (None: the last)
    overtakes: tuple[tuple[str, str, int | None, int], ...]


PAPER = {
    "ucmerced": Reported(
        bits=1845,
        scores={"mgue": 0.9356, "bcgue": 0.9355, "cal": 0.8782, "random": 0.7196},
        early=(738, 1476, 5),
        converges={"mgue": 2214, "bcgue": 2214},
        overtakes=(("cal", "mgue", 1845, 4059),),
    ),
    "aid": Reported(
        bits=7440,
        scores={"mgue": 0.9285, "bcgue": 0.9313, "cal": 0.8770, "random": 0.7716},
        early=(785, 5090, 2),
        converges={"mgue": 5482, "bcgue": 6266},
        overtakes=(("mgue", "cal", None, 3524), ("bcgue", "cal", None, 4307)),
    ),
}


def check(by_player: Mapping[str, Curve], paper: Reported) -> list[Line]:
    """A line for each of the paper's claims whose players have played past their first budget."""
    begun = {name: curve for name, curve in by_player.items() if len(curve.bits) > 1 or name == "upper"}
    checks = (_early, _order, _best_lambda, _diversity, _converges)
    return [line for claim in checks if (line := claim(begun, paper))]


def _early(by_player: Mapping[str, Curve], paper: Reported) -> Line | None:
    if not {"mgue", "bcgue"} <= set(by_player):
        return None
    mgue = by_player["mgue"]
    bcgue = by_player["bcgue"]
    start, stop, points = paper.early
    low = mgue.at(start)
    high = mgue.at(stop)
    if len(bcgue.bits) <= high or low == high:
        return None
    ahead = mgue.lead(bcgue, low, high + 1)
    behind = [str(mgue.bits[i]) for i in range(low, high + 1) if mgue.mean[i] < bcgue.mean[i]]
    outcome = f"confirmed but at {', '.join(behind)} bits" if behind else CONFIRMED
    if ahead.mean() <= 0:
        outcome = NOT_CONFIRMED
    evidence = f"{_points(ahead)}, {mgue.bits[low]} to {mgue.bits[high]} bits (paper: about {points:+d})"
    return ["MGUE ahead of BCGUE early", outcome, evidence]


def _order(by_player: Mapping[str, Curve], paper: Reported) -> Line | None:
    if not {"mgue", "cal"} <= set(by_player):
        return None
    outcome = CONFIRMED
    evidence = []
    for name, other_name in (("mgue", "cal"), ("bcgue", "cal"), ("cal", "random")):
        if not {name, other_name} <= set(by_player):
            continue
        curve = by_player[name]
        other = by_player[other_name]
        n = min(len(curve.bits), len(other.bits))
        behind = [str(curve.bits[i]) for i in range(1, n) if curve.mean[i] <= other.mean[i]]
        but = f", not at {', '.join(behind)}" if behind else ""
        if behind and outcome == CONFIRMED:
            outcome = "confirmed but at the budgets named"
        if len(behind) == n - 1:
            but = ", at no budget"
            outcome = NOT_CONFIRMED
        evidence.append(f"{name} > {other_name}: {_points(curve.lead(other, 1, n))}{but}")
    return ["MGUE and BCGUE > CAL > random, after the first labels", outcome, "; ".join(evidence)]


def _best_lambda(by_player: Mapping[str, Curve], paper: Reported) -> Line | None:
    every = {lam: by_player[f"mgue-flat-{lam}"] for lam in LAMBDAS if f"mgue-flat-{lam}" in by_player}
    if len(every) < len(LAMBDAS):
        return None
    n = min(len(curve.bits) for curve in every.values())
    overall = {lam: float(curve.mean[1:n].mean()) for lam, curve in every.items()}
    best = max(overall, key=lambda lam: overall[lam])
    ahead = every[best].lead(every[3], 1, n)
    outcome = CONFIRMED if best == 3 else NOT_CONFIRMED
    if best != 3 and _within_noise(ahead):
        outcome = f"within noise: λ = {best} is, by {_points(ahead)}"
    scores = ", ".join(f"λ = {lam} {score:.3f}" for lam, score in overall.items())
    return ["λ = 3 is best", outcome, f"mean over later budgets: {scores}"]


def _diversity(by_player: Mapping[str, Curve], paper: Reported) -> Line | None:
    if not set(DIVERSITY) <= set(by_player):
        return None
    n = min(len(by_player[name].bits) for name in DIVERSITY)
    mgue = by_player["mgue"].lead(by_player["mgue-flat-3"], 1, n)
    bcgue = by_player["bcgue"].lead(by_player["bcgue-flat"], 1, n)
    outcome = CONFIRMED if 0 < mgue.mean() < bcgue.mean() else NOT_CONFIRMED
    trials = min(len(mgue), len(bcgue))
    leads = (mgue, bcgue, bcgue[:trials] - mgue[:trials])
    if outcome == CONFIRMED and any(map(_within_noise, leads)):
        outcome = "confirmed, within noise"
    evidence = f"MGUE {_points(mgue)}, BCGUE {_points(bcgue)}, over later budgets"
    return ["diversity helps both, BCGUE more", outcome, evidence]


def _converges(by_player: Mapping[str, Curve], paper: Reported) -> Line | None:
    upper = by_player.get("upper")
    if upper is None or "mgue" not in by_player or len(upper.scores) < 2:
        return None
    here = {name: converged(by_player[name], upper) for name in paper.converges if name in by_player}
    in_time = [
        name for name, bits in here.items() if bits is not None and bits <= 1.02 * paper.converges[name]
    ]
    outcome = f"confirmed for {' and '.join(in_time)}" if in_time else NOT_CONFIRMED
    if len(in_time) == len(here):
        outcome = CONFIRMED
    theirs = ", ".join(f"{name} {paper.converges[name]}" for name in here)
    evidence = ", ".join(f"{name} {bits_or_never(bits)}" for name, bits in here.items())
    return [f"the upper bound is reached ({theirs} bits)", outcome, evidence]


def _within_noise(ahead: Floats) -> bool:
    """Whether the mean lead is at most its standard deviation over the trials."""
    return len(ahead) > 1 and abs(float(ahead.mean())) <= float(ahead.std(ddof=1))


def _points(ahead: Floats) -> str:
    spread = f" ± {100 * ahead.std(ddof=1):.1f}" if len(ahead) > 1 else ""
    return f"{100 * ahead.mean():+.1f}{spread} points"


def bits_or_never(bits: int | None) -> str:
    return "not reached" if bits is None else str(bits)
