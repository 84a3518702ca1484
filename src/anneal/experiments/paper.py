"""The paper's experiments: who plays, how far, and what is drawn and reported of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anneal.archive.catalog import Archive
from anneal.archive.pixels import write_text
from anneal.campaign.turn import Watch, unwatched
from anneal.errors import UsageError
from anneal.experiments import plots, report
from anneal.experiments.play import Row, Simulation, Tell, Truth, split_of, untold
from anneal.experiments.report import ASKED, LAMBDAS, LEVELS
from anneal.experiments.runner import TRIALS, Task, run, spaces
from anneal.method.neighbours import nearest
from anneal.settings import Plan

SHOWN = 10  # results in a panel


@dataclass(frozen=True)
class Preset:
    """The paper's settings on one archive."""

    name: str
    title: str
    labelled: int  # images whose class is known at the start
    per_round: int  # bits
    rounds: int  # to the last budget on the paper's axis
    kind: str  # class of the query in the retrieval panel …
    bits: int  # … and the budget at which it is shown
    step: int  # bits a round where nothing is known at the start …
    steps: int  # … and how many rounds
    trials: int = TRIALS
    px: int | None = None  # in place of the mode's own


PRESETS = {
    "ucmerced": Preset("ucmerced", "UC-Merced", 84, 369, 10, "mediumresidential", 1476, 123, 15),
    "aid": Preset("aid", "AID at 150 px", 80, 392, 18, "Airport", 5090, 392, 19),
    "demo": Preset("demo", "drawn scenes", 24, 40, 2, "orchard", 126, 30, 3, trials=1, px=96),
}


def preset(name: str, kind: str | None = None, bits: int | None = None) -> Preset:
    """By name; with another query for the panel, if one is given."""
    if name not in PRESETS:
        raise UsageError(f"--archive {name!r}: choose ucmerced or aid.")
    found = PRESETS[name]
    return replace(found, kind=kind or found.kind, bits=bits or found.bits)


PAPER = Plan(
    backbone="resnet-18",
    depth="full",
    head="paper",
    views=1,
    px=64,  # the paper's size is not stated; at 64 px a round of training takes minutes here
    closure="single",
    loss="contrastive",
    recipe="paper",
    restart="cold",
    share=0,
    recheck=0,
    presume=0,
)
"""The paper's network and training."""


EXPERIMENTS = ("comparison", "lambda", "diversity", "panels")
NOISES = (0.0, 0.02, 0.05, 0.1)


def settings(mode: str, preset: Preset, seed: int = 0, backbone: str | None = None, **changed: Any) -> Plan:
    """The plan of a mode on an archive; what is given in ``changed``, and is not None, replaces its own."""
    if mode not in ("ours", "paper"):
        raise UsageError(f"--mode {mode!r}: choose ours or paper.")
    plan = PAPER if mode == "paper" else Plan(share=0, recheck=0, presume=0)
    plan = replace(plan, seed=seed, per_round=preset.per_round, px=preset.px or plan.px)
    given = {"backbone": backbone, **changed}
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def experiment(
    name: str,
    archive: Archive,
    preset: Preset,
    plan: Plan,
    out: Path,
    *,
    rounds: int,
    trials: int,
    jobs: int,
    only: Sequence[str] = (),
    watch: Watch = unwatched,
    tell: Tell = untold,
) -> list[Row]:
    """One of EXPERIMENTS, ``all`` of them, or ``choices``: played, drawn and reported into ``out``."""
    if name in COLD:
        every_player = from_nothing(name, plan, rounds)
        if unknown := set(only) - set(every_player):
            raise UsageError(f"--only {', '.join(sorted(unknown))}: {name} has {', '.join(every_player)}.")
        players = {player: its for player, its in every_player.items() if not only or player in only}
        inner = name == "parts"  # on images that no trial is tested on
        rows = run(archive, players, out, trials=trials, jobs=jobs, inner=inner, watch=watch, tell=tell)
        if name == "beyond":
            for ending in ("png", "pdf"):
                answers(rows, preset.name, preset.title, out / f"answers.{ending}")
        table = report.curve_table(report.curves(rows))
        write_text(out / "report.md", f"# {preset.title}: {name}\n\n{table}\n")
        return rows
    inner = name == "choices"
    every = {"choices": choices(plan)} if inner else figures(plan)
    if name not in (*every, "all"):
        raise UsageError(f"There is no experiment {name!r}: choose {', '.join(EXPERIMENTS)}, all or choices.")
    wanted = [name] if name in every else list(EXPERIMENTS)
    plans = {player: its for figure in wanted for player, its in every[figure].items()}
    if unknown := set(only) - set(plans):
        raise UsageError(f"--only {', '.join(sorted(unknown))}: {name} has {', '.join(plans)}.")
    plans = {player: its for player, its in plans.items() if not only or player in only}
    truth = Truth.of(archive)
    if name == "panels":  # no more than the picture shows
        first = preset.labelled * truth.bits_per_label
        trials, rounds = 1, min(rounds, max(round((preset.bits - first) / plan.per_round), 0))
    if "panels" in wanted and preset.kind not in truth.names:
        raise UsageError(f"There is no class {preset.kind!r} here: there are {', '.join(truth.names)}.")
    players = cast(plans, preset, rounds, len(split_of(archive, plan.seed).train))
    rows = run(archive, players, out, trials=trials, jobs=jobs, inner=inner, watch=watch, tell=tell)
    if inner:
        found = report.curves(rows)
        write_text(out / "report.md", f"# {preset.title}: open points\n\n{report.choice_table(found)}\n")
        return rows
    draw(rows, preset.title, out)
    if "panels" in wanted and not only:
        panel(archive, preset, {player: players[player] for player in every["panels"]}, out)
    write_text(out / "report.md", report.of_run(rows, preset.name, preset.title))
    return rows


def figures(plan: Plan) -> dict[str, dict[str, Plan]]:
    """Who plays in which figure. A player of several figures plays once."""
    flat = replace(plan, diversity="none")
    asked = {name: replace(plan, strategy=name) for name in ASKED}
    if plan.recipe == "paper":
        del asked["cal-metric"]  # a baseline of ours
    upper = replace(plan, closure="full")  # all labels, and all they imply
    return {
        "lambda": {f"mgue-flat-{lam}": replace(flat, strategy="mgue", lam=float(lam)) for lam in LAMBDAS},
        "diversity": {
            "mgue": asked["mgue"],
            "mgue-flat-3": replace(flat, strategy="mgue", lam=3.0),
            "bcgue": asked["bcgue"],
            "bcgue-flat": replace(flat, strategy="bcgue"),
        },
        "comparison": {**asked, "upper": replace(upper, strategy="mgue")},
        "panels": {name: asked[name] for name in ("cal", "bcgue", "mgue")},
    }


def choices(plan: Plan) -> dict[str, Plan]:
    """What the paper leaves open, one setting changed at a time."""
    mgue, bcgue = replace(plan, strategy="mgue"), replace(plan, strategy="bcgue")
    other = "backbone" if plan.depth != "full" else "head"
    return {
        "mgue": mgue,
        f"mgue compared-in-{other}": replace(mgue, space=other),
        "mgue pair-vector-sum": replace(mgue, diversity="kmeans-sum"),
        "mgue pair-vector-product": replace(mgue, diversity="kmeans-product"),
        "mgue restart-cold": replace(mgue, restart="cold"),
        "mgue restart-cold-twice-as-long": replace(mgue, restart="cold", length=2),
        "mgue 336-a-round": replace(mgue, per_round=336),
        "mgue closure-single": replace(mgue, closure="single"),
        "mgue loss-contrastive": replace(mgue, loss="contrastive"),
        "bcgue": bcgue,
        **{f"bcgue γ={gamma}": replace(bcgue, gamma=gamma) for gamma in (0.1, 0.3)},
        **{f"bcgue widths-{w[0]}-{w[1]}": replace(bcgue, widths=w) for w in ((32, 16), (256, 64))},
        "bcgue restart-cold": replace(bcgue, restart="cold"),
        "cal": replace(plan, strategy="cal"),
        "cal restart-cold": replace(plan, strategy="cal", restart="cold"),
        "cal-metric": replace(plan, strategy="cal-metric"),
    }


def beyond(plan: Plan) -> dict[str, tuple[Plan, float]]:
    """Everybody from nothing, under one cost model and with one learner."""
    names = ("place", "mgue", "bcgue", "random", "cal", "cal-metric", "typiclust", "coreset")
    return {name: (replace(plan, strategy=name), 0.0) for name in names}


def noise(plan: Plan) -> dict[str, tuple[Plan, float]]:
    """An oracle that errs at a rate; and one whose every word is taken."""
    both = {name: replace(plan, strategy=name) for name in ("place", "mgue")}
    found = {f"{name} noise-{rate:.0%}": (its, rate) for name, its in both.items() for rate in NOISES}
    trusting = {f"{name} noise-5%-trusted": (replace(its, recheck=0), 0.05) for name, its in both.items()}
    return found | trusting


def parts(plan: Plan) -> dict[str, tuple[Plan, float]]:
    """What each part is worth, one changed at a time."""
    place, mgue = replace(plan, strategy="place"), replace(plan, strategy="mgue")
    plans = {
        "place": place,
        "place without-joining": replace(plan, strategy="place-apart"),
        "place by-doubt-alone": replace(plan, strategy="place-doubtful"),
        "place by-own-doubt": replace(plan, strategy="place-alone"),
        "place without-presuming": replace(place, presume=0),
        "place presuming-from-0.15": replace(place, presume=0.15),
        "place presuming-from-0.5": replace(place, presume=0.5),
        "place without-rechecking": replace(place, recheck=0),
        "mgue": mgue,
        "mgue threshold-logistic": replace(mgue, threshold="logistic"),
        "mgue without-presuming": replace(mgue, presume=0),
        "mgue without-rechecking": replace(mgue, recheck=0),
    }
    return {name: (its, 0.0) for name, its in plans.items()}


COLD = {"beyond": beyond, "noise": noise, "parts": parts}
"""Experiments that begin with nothing known."""


def from_nothing(name: str, plan: Plan, rounds: int) -> dict[str, Simulation]:
    """The players of one of COLD, with the defaults of the product."""
    product = replace(Plan(), backbone=plan.backbone, px=plan.px, seed=plan.seed, per_round=plan.per_round)
    return {
        player: Simulation(its, (its.strategy,), rounds - 1, 1, "cold", rate)
        for player, (its, rate) in COLD[name](product).items()
    }


def answers(rows: Sequence[Row], archive: str, title: str, path: Path) -> None:
    """What so many answers get one, from nothing."""
    shown = [row for name in BEYOND for row in rows if row["player"] == name]
    frozen = [row["map5_min"] for row in rows if row["player"] == "frozen"]
    paper = report.PAPER.get(archive)
    plots.curve(
        shown, path, by="player", labels=BEYOND, title=f"{title}: what answers get one, from nothing",
        frozen=float(np.mean(frozen)), paper=(paper.scores["mgue"], paper.bits) if paper else None,
    )  # fmt: skip


def cast(plans: Mapping[str, Plan], preset: Preset, rounds: int, train: int) -> dict[str, Simulation]:
    """The players: how far each goes, and what it is told at the start. The upper bound is told the
    classes of all ``train`` images at once, and trains as long as the others do in all their rounds."""
    players = {}
    for name, plan in plans.items():
        if name == "upper":
            length = preset.rounds + 1 if plan.restart == "warm" else 1
            told = replace(plan, length=length)
            players[name] = Simulation(told, (plan.strategy,), 0, 1, f"labelled:{train}")
        else:
            players[name] = Simulation(plan, (plan.strategy,), rounds, 1, f"labelled:{preset.labelled}")
    return players


def panel(archive: Archive, preset: Preset, players: Mapping[str, Simulation], out: Path) -> None:
    """The paper's retrieval figure: the first query of a class in the first trial, and its nearest under
    each of these players at the budget nearest to the preset's."""
    truth = Truth.of(archive)
    split = split_of(archive, next(iter(players.values())).plan.seed)
    query = int(split.val[truth.classes[split.val] == truth.names.index(preset.kind)][0])
    where = (str(out), str(archive.root), str(archive.folder))
    tasks = [Task(name, simulation, 0, False, *where) for name, simulation in players.items()]
    bits = [[row["bits"] for row, _ in task.rounds()] for task in tasks]
    numbers = [min(range(len(b)), key=lambda n: abs(b[n] - preset.bits)) for b in bits]
    heads, results = [], []
    for place, vectors in enumerate(spaces(list(zip(tasks, numbers, strict=True)))):
        ids = nearest(vectors, split.test, vectors[query][None], SHOWN).ids[0].tolist()
        right = [bool(truth.classes[i] == truth.classes[query]) for i in ids]
        spent = bits[place][numbers[place]]
        said = f"{tasks[place].player}, {spent} bits\n{sum(right)} of {len(ids)} right"
        heads.append((archive.pixels[query], said))
        found = zip(ids, right, strict=True)
        results.append([(archive.pixels[i], archive.labels[i], good) for i, good in found])
    title = f"{preset.title}: a query of class {preset.kind} and its nearest; wrong ones framed red"
    for ending in ("png", "pdf"):
        plots.panel(heads, results, out / f"panels.{ending}", title)


LABELS = {
    "mgue": "ANNEAL-MGUE",
    "bcgue": "ANNEAL-BCGUE",
    "cal": "CAL",
    "cal-metric": "CAL, labels train the metric too",
    "random": "random",
}
BEYOND = {
    "place": "placing (ours)",
    "mgue": "ANNEAL-MGUE",
    "cal-metric": "class labels (CAL)",
    "random": "random pairs",
}
FLAT = {"mgue-flat-3": "MGUE without", "bcgue-flat": "BCGUE without"}
WITH = {"mgue": "MGUE with k-means", "bcgue": "BCGUE with k-means"}


def draw(rows: Sequence[Row], title: str, out: Path, endings: Sequence[str] = ("png", "pdf")) -> None:
    """One figure for each of the paper's whose players have played."""
    level = {name: [row["map5_min"] for row in rows if row["player"] == name] for name in LEVELS}
    mean = {name: float(np.mean(values)) if values else None for name, values in level.items()}
    labels = {
        "lambda": {f"mgue-flat-{lam}": f"λ = {lam}" for lam in LAMBDAS},
        "diversity": WITH | FLAT,
        "comparison": LABELS,
    }
    heads = {
        "lambda": "MGUE without diversity",
        "diversity": "diversity by k-means",
        "comparison": "comparison",
    }
    for figure, names in labels.items():
        shown = [row for name in names for row in rows if row["player"] == name]
        if len({row["player"] for row in shown}) < (2 if figure == "comparison" else len(names)):
            continue
        for ending in endings:
            path = out / f"{figure}.{ending}"
            about = f"{title}: {heads[figure]}"
            plots.curve(
                shown, path, by="player", labels=names, title=about,
                frozen=mean["frozen"], upper=mean["upper"],
            )  # fmt: skip
