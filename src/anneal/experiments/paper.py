"""The paper's experiments and those past it: who plays in each figure, how far, and what is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anneal.archive.catalog import Archive
from anneal.campaign.turn import Training
from anneal.errors import UsageError
from anneal.experiments import plots, report
from anneal.experiments.claims import LAMBDAS, PAPER
from anneal.experiments.curves import Row, curves
from anneal.experiments.oracle import Oracle, split_of
from anneal.experiments.play import Player
from anneal.experiments.runner import Tell, Trial, run, trials_of, untold
from anneal.files import write_text
from anneal.method.labelling import LABELLERS
from anneal.method.neighbours import nearest
from anneal.settings import Settings
from anneal.watch import Watch, unwatched
from anneal.work import Workers

SHOWN = 10  # results in a panel
NOISES = (0.0, 0.02, 0.05, 0.1)


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
    cold_per_round: int  # bits a round where nothing is known at the start …
    cold_rounds: int  # … and how many rounds
    trials: int = 3
    px: int | None = None  # in place of the mode's own


PRESETS = {
    "ucmerced": Preset("ucmerced", "UC-Merced", 84, 369, 10, "mediumresidential", 1476, 123, 15),
    "aid": Preset("aid", "AID at 150 px", 80, 392, 18, "Airport", 5090, 392, 19),
    "demo": Preset("demo", "drawn scenes", 24, 40, 2, "orchard", 126, 30, 3, trials=1, px=96),
}


def preset(name: str) -> Preset:
    if name not in PRESETS:
        raise UsageError(f"--archive {name!r}: choose ucmerced or aid.")
    return PRESETS[name]


@dataclass(frozen=True)
class Base:
    """What the players of an experiment start from."""

    settings: Settings
    training: Training
    preset: Preset
    rounds: int
    train: int  # images in the training split

    def player(self, strategy: str, **settings: Any) -> Player:
        """From some class labels, as in the paper."""
        own = replace(self.settings, strategy=strategy, **settings)
        start = f"labelled:{self.preset.labelled}"
        return Player(own, self.rounds, start, training=training_of(strategy, self.training))

    def cold_player(self, strategy: str, noise: float = 0.0, ablation: str = "", **settings: Any) -> Player:
        """From nothing."""
        labelled = self.player(strategy, **settings)
        return replace(labelled, rounds=self.rounds - 1, start="cold", noise=noise, ablation=ablation)


def training_of(strategy: str, base: Training | None = None) -> Training:
    """A labeller's labels train a softmax too, or as in the paper's CAL alone."""
    training = base or Training()
    labeller = LABELLERS.get(strategy)
    return training if labeller is None else replace(training, classes=True, metric=labeller.metric)


Players = dict[str, Player]


def lambdas(base: Base) -> Players:
    return {f"mgue-flat-{lam}": base.player("mgue", lam=float(lam), diversity="none") for lam in LAMBDAS}


def diversity(base: Base) -> Players:
    return {
        "mgue": base.player("mgue"),
        "mgue-flat-3": base.player("mgue", lam=3.0, diversity="none"),
        "bcgue": base.player("bcgue"),
        "bcgue-flat": base.player("bcgue", diversity="none"),
    }


def comparison(base: Base) -> Players:
    """All strategies, and the upper bound: all classes at once, trained as long as the others in total."""
    names = [name for name in report.ASKED if name != "cal-metric" or base.training.recipe != "paper"]
    length = base.preset.rounds + 1 if base.settings.restart == "warm" else 1
    settings = replace(base.settings, strategy="mgue", closure="full")
    training = replace(base.training, length=length)
    upper = Player(settings, 0, f"labelled:{base.train}", training=training)
    return {**{name: base.player(name) for name in names}, "upper": upper}


def panels(base: Base) -> Players:
    return {name: base.player(name) for name in ("cal", "bcgue", "mgue")}


def choices(base: Base) -> Players:
    """What the paper leaves open, one setting changed at a time."""
    other = "backbone" if base.settings.depth != "full" else "head"
    mgue = base.player("mgue")
    bcgue = base.player("bcgue")

    def trained(player: Player, **changed: Any) -> Player:
        return replace(player, training=replace(player.training, **changed))

    return {
        "mgue": mgue,
        f"mgue compared-in-{other}": trained(mgue, space=other),
        "mgue pair-vector-sum": replace(mgue, ablation="pair-vector-sum"),
        "mgue pair-vector-product": replace(mgue, ablation="pair-vector-product"),
        "mgue restart-cold": base.player("mgue", restart="cold"),
        "mgue restart-cold-twice-as-long": trained(base.player("mgue", restart="cold"), length=2),
        "mgue 336-a-round": base.player("mgue", per_round=336),
        "mgue closure-single": base.player("mgue", closure="single"),
        "mgue loss-contrastive": base.player("mgue", loss="contrastive"),
        "bcgue": bcgue,
        "bcgue γ=0.1": trained(bcgue, gamma=0.1),
        "bcgue γ=0.3": trained(bcgue, gamma=0.3),
        "bcgue widths-32-16": trained(bcgue, widths=(32, 16)),
        "bcgue widths-256-64": trained(bcgue, widths=(256, 64)),
        "bcgue restart-cold": base.player("bcgue", restart="cold"),
        "cal": base.player("cal"),
        "cal restart-cold": base.player("cal", restart="cold"),
        "cal-metric": base.player("cal-metric"),
    }


def beyond(base: Base) -> Players:
    """Every strategy from nothing, with the same cost model and learner."""
    names = ("place", "mgue", "bcgue", "random", "cal", "cal-metric", "typiclust", "coreset")
    return {name: base.cold_player(name) for name in names}


def noise(base: Base) -> Players:
    """An oracle that errs at a rate, with and without asking again."""
    players: Players = {}
    for name in ("place", "mgue"):
        for rate in NOISES:
            players[f"{name} noise-{rate:.0%}"] = base.cold_player(name, rate)
        players[f"{name} noise-5%-trusted"] = base.cold_player(name, 0.05, recheck=0.0)
    return players


def parts(base: Base) -> Players:
    """What each part is worth, one changed at a time."""
    return {
        "place": base.cold_player("place"),
        "place without-joining": base.cold_player("place", ablation="no-joins"),
        "place by-doubt-alone": base.cold_player("place", ablation="doubt-alone"),
        "place by-own-doubt": base.cold_player("place", ablation="own-doubt"),
        "place without-pseudo-labels": base.cold_player("place", pseudo_labels=0.0),
        "place pseudo-labels-from-0.15": base.cold_player("place", pseudo_labels=0.15),
        "place pseudo-labels-from-0.5": base.cold_player("place", pseudo_labels=0.5),
        "place without-rechecking": base.cold_player("place", recheck=0.0),
        "mgue": base.cold_player("mgue"),
        "mgue threshold-logistic": base.cold_player("mgue", threshold="logistic"),
        "mgue without-pseudo-labels": base.cold_player("mgue", pseudo_labels=0.0),
        "mgue without-rechecking": base.cold_player("mgue", recheck=0.0),
    }


def anchors(base: Base) -> Players:
    """Mining all pairs, and as in a large archive only those of some images. AID has 32 million."""
    return {
        "mgue": base.cold_player("mgue"),
        "mgue 3.2-million-pairs": base.cold_player("mgue", ablation="budget-3200000"),
        "mgue 0.8-million-pairs": base.cold_player("mgue", ablation="budget-800000"),
    }


PAPERS: dict[str, Callable[[Base], Players]] = {
    "comparison": comparison,
    "lambda": lambdas,
    "diversity": diversity,
    "panels": panels,
}
"""The paper's figures; they start from class labels. ``all`` plays all of them."""
COLD: dict[str, Callable[[Base], Players]] = {
    "beyond": beyond,
    "noise": noise,
    "parts": parts,
    "anchors": anchors,
}
"""Experiments that start from nothing, with the product's settings."""
EXPERIMENTS = {**PAPERS, "choices": choices, **COLD}
INNER = ("choices", "parts")
"""Settings are chosen by these, so no trial's test images are in them."""


def settings_of(mode: str, preset: Preset, cold: bool, **changed: Any) -> tuple[Settings, Training]:
    """The settings of a mode on an archive; what is in ``changed`` and is not None replaces its own."""
    if mode not in ("ours", "paper"):
        raise UsageError(f"--mode {mode!r}: choose ours or paper.")
    base: dict[str, Any] = {"heldout": 0.0, "per_round": preset.cold_per_round if cold else preset.per_round}
    if not cold:
        base |= {"strategy": "mgue", "share": 0.0, "recheck": 0.0, "pseudo_labels": 0.0}
    if mode == "paper":
        base |= {"backbone": "resnet-18", "depth": "full", "head": "paper", "views": 1}
        base |= {"closure": "single", "loss": "contrastive", "restart": "cold"}
        base["px"] = 64  # the paper's size is not stated; at 64 px a round of training takes minutes here
    if preset.px is not None:
        base["px"] = preset.px
    given = {name: value for name, value in changed.items() if value is not None}
    return Settings(**{**base, **given}), Training(recipe="paper" if mode == "paper" else "anneal")


def players_of(experiment: str, base: Base, only: Sequence[str] = ()) -> Players:
    """Everyone in an experiment, or ``only`` these. A player of several figures plays once."""
    if experiment not in (*EXPERIMENTS, "all"):
        raise UsageError(f"There is no experiment {experiment!r}: choose all or {', '.join(EXPERIMENTS)}.")
    makers = PAPERS.values() if experiment == "all" else [EXPERIMENTS[experiment]]
    players = {name: player for maker in makers for name, player in maker(base).items()}
    unknown = sorted(set(only) - set(players))
    if unknown:
        raise UsageError(f"--only {', '.join(unknown)}: {experiment} has {', '.join(players)}.")
    return {name: player for name, player in players.items() if not only or name in only}


def reproduce(
    experiment: str,
    archive: Archive,
    preset: Preset,
    settings: Settings,
    training: Training,
    out: Path,
    *,
    rounds: int,
    trials: int,
    jobs: int,
    only: Sequence[str] = (),
    watch: Watch = unwatched,
    tell: Tell = untold,
    workers: Workers | None = None,
) -> list[Row]:
    """Play an experiment (or ``all`` figures of the paper), draw it and report it into ``out``."""
    oracle = Oracle.of(archive)
    split = split_of(archive, settings.seed)
    has_panel = experiment in ("panels", "all") and not only
    if has_panel:
        oracle.first_query(split, preset.kind)  # refuses a class without one before anything is played
    first_bits = preset.labelled * oracle.bits_per_label
    shown = max(round((preset.bits - first_bits) / settings.per_round), 0)  # the panel's round
    if experiment == "panels":
        trials = 1
        rounds = min(rounds, shown)
    base = Base(settings, training, preset, rounds, len(split.train))
    players = players_of(experiment, base, only)
    shown = min(shown, rounds)
    of_paper = experiment in (*PAPERS, "all")
    pinned = {name: [shown] for name in panels(base)} if of_paper else {}
    todo = trials_of(archive, players, out, trials, inner=experiment in INNER, pinned=pinned)
    rows = run(archive, todo, jobs, watch, tell, workers)
    if experiment == "beyond":
        for ending in ("png", "pdf"):
            answers(rows, preset.name, preset.title, out / f"answers.{ending}")
    elif of_paper:
        draw(rows, preset.title, out)
    if has_panel:
        panel(archive, preset, [trial for trial in todo if trial.number == 0 and trial.pinned], shown, out)
    write_text(out / "report.md", _report(experiment, rows, preset))
    return rows


def _report(experiment: str, rows: Sequence[Row], preset: Preset) -> str:
    if experiment == "choices":
        return f"# {preset.title}: open points\n\n{report.choice_table(curves(rows))}\n"
    if experiment in COLD:
        return f"# {preset.title}: {experiment}\n\n{report.curve_table(curves(rows))}\n"
    return report.of_run(rows, preset.name, preset.title)


LABELS = {
    "mgue": "ANNEAL-MGUE",
    "bcgue": "ANNEAL-BCGUE",
    "cal": "CAL",
    "cal-metric": "CAL, labels train the metric too",
    "random": "random",
}
BEYOND = {
    "place": "place (ours)",
    "mgue": "ANNEAL-MGUE",
    "cal-metric": "class labels (CAL)",
    "random": "random pairs",
}
DIVERSE = {
    "mgue": "MGUE with k-means",
    "bcgue": "BCGUE with k-means",
    "mgue-flat-3": "MGUE without",
    "bcgue-flat": "BCGUE without",
}
FIGURES = {
    "lambda": ("MGUE without diversity", {f"mgue-flat-{lam}": f"λ = {lam}" for lam in LAMBDAS}),
    "diversity": ("diversity by k-means", DIVERSE),
    "comparison": ("comparison", LABELS),
}
"""The title of each figure, and the players in it with their label."""


def draw(rows: Sequence[Row], title: str, out: Path, endings: Sequence[str] = ("png", "pdf")) -> None:
    """One figure for each of the paper's whose players have played."""
    level = {name: _mean_score(rows, name) for name in report.LEVELS}
    for figure, (heading, labels) in FIGURES.items():
        shown = [row for name in labels for row in rows if row["player"] == name]
        needed = 2 if figure == "comparison" else len(labels)
        if len({row["player"] for row in shown}) < needed:
            continue
        for ending in endings:
            plots.curve(
                shown, out / f"{figure}.{ending}", by="player", labels=labels, title=f"{title}: {heading}",
                frozen=level["frozen"], upper=level["upper"],
            )  # fmt: skip


def answers(rows: Sequence[Row], archive: str, title: str, path: Path) -> None:
    """Quality by number of answers, from nothing."""
    shown = [row for name in BEYOND for row in rows if row["player"] == name]
    paper = PAPER.get(archive)
    plots.curve(
        shown, path, by="player", labels=BEYOND, title=f"{title}: quality by number of answers, from nothing",
        frozen=_mean_score(rows, "frozen"), paper=(paper.scores["mgue"], paper.bits) if paper else None,
    )  # fmt: skip


def _mean_score(rows: Sequence[Row], player: str) -> float | None:
    scores = [row["map5_min"] for row in rows if row["player"] == player]
    return float(np.mean(scores)) if scores else None


def panel(archive: Archive, preset: Preset, trials: Sequence[Trial], number: int, out: Path) -> None:
    """The paper's retrieval figure: a query of the preset's class, and its nearest for each player."""
    oracle = Oracle.of(archive)
    split = split_of(archive, trials[0].player.settings.seed)
    query = oracle.first_query(split, preset.kind)
    heads = []
    results = []
    for trial in trials:
        vectors = trial.vectors(number)
        bits = trial.row(trial.records()[number])["bits"]
        ids = nearest(vectors, split.test, vectors[query][None], SHOWN).ids[0].tolist()
        right = [bool(oracle.classes[i] == oracle.classes[query]) for i in ids]
        heads.append((archive.pixels[query], f"{trial.name}, {bits} bits\n{sum(right)} of {len(ids)} right"))
        results.append(
            [(archive.pixels[i], archive.labels[i], archive.labels[i] == preset.kind) for i in ids]
        )
    title = f"{preset.title}: a query of class {preset.kind} and its nearest; wrong ones framed red"
    for ending in ("png", "pdf"):
        plots.panel(heads, results, out / f"panels.{ending}", title)


def simulate(
    archive: Archive,
    players: Mapping[str, Player],
    out: Path,
    *,
    trials: int,
    jobs: int,
    watch: Watch = unwatched,
    tell: Tell = untold,
    workers: Workers | None = None,
) -> list[Row]:
    """Play these players and draw ``curve.png``."""
    rows = run(archive, trials_of(archive, players, out, trials), jobs, watch, tell, workers)
    shown = [row for row in rows if row["player"] != "frozen"]
    first = next(iter(players.values()))
    title = f"{archive.root.name}, {first.settings.backbone}, depth {first.settings.depth}, {first.start}"
    plots.curve(shown, out / "curve.png", by="player", frozen=_mean_score(rows, "frozen"), title=title)
    return rows
