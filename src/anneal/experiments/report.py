"""Reports on the curves, as Markdown tables.

A page holds blocks between ``<!-- report: KIND RUN -->`` and ``<!-- end -->``; ``fill`` writes them again.
"""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from anneal.experiments import claims
from anneal.experiments.claims import DIVERSITY, LAMBDAS, PAPER, Reported, bits_or_never
from anneal.experiments.curves import PACE, Curve, Pace, Row, bits_to, converged, curves, read, with_costs
from anneal.settings import Settings

ASKED = ("mgue", "bcgue", "cal", "cal-metric", "random")
LEVELS = {"frozen": "no training", "upper": "all training labels"}  # one score instead of a curve
INSTALLED = re.compile(r'"backbone": "(efficientnet-lite0[^"]*)"')  # one of which is the default
BLOCK = re.compile(r"(<!-- report: ([\w-]+) ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def curve_table(by_player: Mapping[str, Curve], players: Sequence[str] = ()) -> str:
    """The mean of each player at each budget."""
    names = [name for name in players or by_player if name in by_player and name not in LEVELS]
    if not names:
        return "Not played yet."
    longest = max((by_player[name].bits for name in names), key=len)
    lines = []
    for name in names:
        curve = by_player[name]
        missing = [""] * (len(longest) - len(curve.bits))
        means = [f"{mean:.3f}" for mean in curve.mean]
        lines.append([f"`{name}`", *means, *missing, str(len(curve.scores))])
    return table(["", f"{longest[0]} bits", *map(str, longest[1:]), "trials"], lines)


def level_table(by_player: Mapping[str, Curve]) -> str:
    """The scores without training and with all labels."""
    lines = []
    for name, meaning in LEVELS.items():
        if curve := by_player.get(name):
            lines.append([meaning, f"{curve.mean[-1]:.3f}", f"{curve.std[-1]:.3f}", str(len(curve.scores))])
    return table(["", "mean", "std", "trials"], lines)


def paper_table(by_player: Mapping[str, Curve], paper: Reported) -> str:
    """The paper's score, ours and the difference, at the paper's budget."""
    lines = []
    for name, theirs in paper.scores.items():
        curve = by_player.get(name)
        if curve and curve.bits[-1] >= 0.98 * paper.bits:
            column = curve.at(paper.bits)
            ours = curve.scores[:, column]
            cells = [f"{theirs:.4f}", f"{ours.mean():.4f}", f"{100 * (ours.mean() - theirs):+.1f} points"]
            spread = f"{ours.min():.3f} – {ours.max():.3f}"
            lines.append([f"`{name}`", str(curve.bits[column]), *cells, spread])
    return table(["", "bits", "paper", "ours", "difference", "least – most"], lines)


def convergence_table(by_player: Mapping[str, Curve], paper: Reported) -> str:
    """Bits that each player needs to reach the upper bound, the paper's score and other players."""
    upper = by_player["upper"]
    best = paper.scores["mgue"]
    players = [name for name in ASKED if name in by_player]
    lines = []
    for name in players:
        bits = bits_or_never(converged(by_player[name], upper))
        lines.append([f"`{name}` within one std of all labels", bits, str(paper.converges.get(name, "–"))])
    reached = {name: bits_or_never(bits_to(by_player[name], best)) for name in players}
    lines += [[f"`{name}` reaches {best:.4f}", bits, "–"] for name, bits in reached.items()]
    for name, other_name, budget, theirs in paper.overtakes:
        if {name, other_name} <= set(by_player):
            other = by_player[other_name]
            column = -1 if budget is None else other.at(budget)
            score = float(other.mean[column])
            event = f"`{name}` reaches what `{other_name}` has at {other.bits[column]} bits, {score:.3f}"
            lines.append([event, bits_or_never(bits_to(by_player[name], score)), str(theirs)])
    return table(["", "bits", "paper"], lines)


def cost_table(
    rows: Sequence[Row], scores: Sequence[float] = (0.8, 0.85, 0.9, 0.9356), pace: Pace = PACE
) -> str:
    """Bits, acts and minutes that each player needs to reach each score, and its last score."""
    costed = with_costs(rows, pace)
    acts = curves(costed, "acts")
    minutes = curves(costed, "minutes")
    lines = []
    for name, curve in curves(rows).items():
        if name in LEVELS:
            continue
        costs = []
        for bits, own_acts, own_minutes in zip(curve.bits, acts[name].mean, minutes[name].mean, strict=True):
            costs.append(f"{bits} / {own_acts:.0f} / {own_minutes:.1f}")
        reached = [bits_to(curve, score) for score in scores]
        cells = ["–" if bits is None else costs[curve.at(bits)] for bits in reached]
        last = f"{curve.mean[-1]:.3f} at {costs[-1]}"
        lines.append([f"`{name}`", *cells, last, str(len(curve.scores))])
    head = ["bits / acts / minutes to reach", *(f"{score:.4g}" for score in scores), "in the end", "trials"]
    return f"{table(head, lines)}\n\nMinutes at {pace}."


def reach_table(by_player: Mapping[str, Curve], scores: Sequence[float]) -> str:
    """Bits that each player needs to reach each score, and its last score."""
    lines = []
    for name, curve in by_player.items():
        if name not in LEVELS:
            reached = [bits_or_never(bits_to(curve, score)) for score in scores]
            lines.append([f"`{name}`", *reached, f"{curve.mean[-1]:.3f} at {curve.bits[-1]}"])
    return table(["bits to reach", *(f"{score:.4g}" for score in scores), "in the end"], lines)


def choice_table(by_player: Mapping[str, Curve]) -> str:
    """Each variant at the first player's budgets, and its mean lead over the plain strategy."""
    players = {name: curve for name, curve in by_player.items() if name not in LEVELS and len(curve.bits) > 1}
    if not players:
        return "Not played yet."
    bits = next(iter(players.values())).bits
    end = min(curve.bits[-1] for curve in players.values())
    stop = sum(budget <= end for budget in bits)  # after the last shared budget
    even = {name: curve.at_budgets(bits) for name, curve in players.items()}
    lines = []
    for name, curve in players.items():
        strategy, *variant = name.split(" ")
        lead = ""
        if variant and strategy in players and stop > 1:
            ahead = 100 * even[name].lead(even[strategy], 1, stop)
            lead = f"{ahead.mean():+.1f} ± {ahead.std(ddof=1) if len(ahead) > 1 else 0.0:.1f}"
        means = zip(bits, even[name].mean, strict=True)
        cells = [f"{mean:.3f}" if budget <= curve.bits[-1] else "" for budget, mean in means]
        lines.append([name, *cells, lead, str(len(curve.scores))])
    return table(["", *map(str, bits), f"points ahead, {bits[1]} to {bits[stop - 1]}", "trials"], lines)


def claims_table(by_player: Mapping[str, Curve], paper: Reported) -> str:
    return table(["the paper", "here", "evidence"], claims.check(by_player, paper))


def of_run(rows: Sequence[Row], archive: str, title: str) -> str:
    """The report of one run: every table that its rows allow."""
    by_player = curves(rows)
    parts = [f"# {title}", "mAP@5 divided by min(R, 5), mean over the trials.", curve_table(by_player)]
    paper = PAPER.get(archive)
    if "upper" in by_player:
        parts += ["## Levels", level_table(by_player)]
    if paper:
        parts += ["## Beside the paper", paper_table(by_player, paper)]
        if "upper" in by_player:
            parts += ["## Convergence", convergence_table(by_player, paper)]
        parts += ["## The paper's claims", claims_table(by_player, paper)]
    return "\n\n".join(parts) + "\n"


def summary_table(archive: str, results: Path) -> str:
    """The strategies from nothing at a few budgets, and how many key presses ``place`` takes for them."""
    played = read(results / f"{archive}-place" / "curve.csv")
    place = curves(played)
    beyond = curves(read(results / f"{archive}-beyond" / "curve.csv"))
    rows = {"no training": place["frozen"], "`place`": place["place"]}
    others = ("mgue", "bcgue", "cobra", "cal-metric", "random")
    rows |= {f"`{name}`": beyond[name] for name in others if name in beyond}
    budgets = [123, 246, 369, 738, 1230, 1845]
    lines = []
    for name, curve in rows.items():
        means = [f"{curve.mean[curve.at(bits)]:.3f}" for bits in budgets]
        lines.append([name, *means, str(len(curve.scores))])
    acts = curves([row for row in played if row["player"] == "place"], "acts")["place"]
    presses = [f"{acts.mean[acts.at(bits)]:.0f}" for bits in budgets]
    lines.insert(2, ["key presses of `place`", *presses, str(len(acts.scores))])
    return table(["answers (bits)", *map(str, budgets), "trials"], lines)


def features_table(file: Path) -> str:
    """What ``bench/features.py`` measured: a line for each kind of features, the scores of each archive."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    archives = list(dict.fromkeys(row["archive"] for row in rows))
    lines = []
    for name in dict.fromkeys(row["features"] for row in rows):
        own = {row["archive"]: row for row in rows if row["features"] == name}
        one = next(iter(own.values()))
        scores = []
        for kind in ("frozen", "trained"):
            scores += [f"{float(own[each][kind]):.3f}" if each in own else "" for each in archives]
        lines.append([name, one["dim"], one["views"], one["ms"], *scores])
    columns = [f"{each}, {kind}" for kind in ("frozen", "trained") for each in archives]
    return table(["features", "dimension", "views", "ms", *columns], lines)


def tuned_table(file: Path) -> str:
    """What fine-tuning brought: a line for each trial and number of answers."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    lines = []
    for row in rows:
        scores = [f"{float(row[name]):.3f}" for name in ("before", "tuned", "served")]
        reserved = f"{float(row['reserved_before']):.3f}, {float(row['reserved_after']):.3f}"
        interval = f"{100 * float(row['gain_low']):+.1f} to {100 * float(row['gain_high']):+.1f}"
        gain = f"{100 * float(row['gain']):+.1f} ({interval})"
        adopted = "yes" if int(row["adopted"]) else "no"
        lines.append([row["trial"], row["bits"], *scores, reserved, gain, adopted])
    columns = ["mAP@5 before", "fine-tuned", "serves then", "reserved, before and after", "difference (80 %)"]
    return table(["trial", "bits", *columns, "adopted"], lines)


def block(kind: str, run: str, results: Path) -> str:
    """One generated block of a page."""
    if kind == "features":
        return features_table(results / f"{run}.csv")
    if kind == "tuned":
        return tuned_table(results / f"{run}.csv")
    if kind == "summary":
        return summary_table(run.split("-")[0], results)
    rows = read(results / run / "curve.csv")
    by_player = curves(rows)
    paper = PAPER[run.split("-")[0]]
    kinds: dict[str, Callable[[], str]] = {
        "comparison": lambda: curve_table(by_player, ASKED),
        "lambda": lambda: curve_table(by_player, [f"mgue-flat-{lam}" for lam in LAMBDAS]),
        "diversity": lambda: curve_table(by_player, DIVERSITY),
        "curve": lambda: curve_table(by_player),
        "levels": lambda: level_table(by_player),
        "paper": lambda: paper_table(by_player, paper),
        "convergence": lambda: convergence_table(by_player, paper),
        "claims": lambda: claims_table(by_player, paper),
        "choices": lambda: choice_table(by_player),
        "costs": lambda: cost_table(rows),
        "reach": lambda: reach_table(by_player, (0.8, 0.9, paper.scores["mgue"], by_player["mgue"].mean[-1])),
        "by-class": lambda: curve_table(curves(rows, "p5_class")),
    }
    return kinds[kind]() + _earlier_features(results / run)


def _earlier_features(run: Path) -> str:
    """A line that names the run's features, if they were the default once and are not any more."""
    settings = run / "run.json"
    used = INSTALLED.findall(settings.read_text(encoding="utf-8")) if settings.exists() else []
    earlier = sorted({name for name in used if name != Settings().backbone})
    return f"\n\nEarlier features: `{'`, `'.join(earlier)}`." if earlier else ""


def fill(page: str, results: Path) -> str:
    """The page with its blocks written again."""
    return BLOCK.sub(lambda match: match[1] + block(match[2], match[3], results) + "\n" + match[4], page)
