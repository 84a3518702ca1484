"""The paper's experiments and those past it: who plays in each figure, how far, and what is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from anneal.archive.catalog import Archive
from anneal.campaign.turn import Training
from anneal.errors import UsageError
from anneal.experiments import figures, plots, reported, tuned
from anneal.experiments import report as tables
from anneal.experiments.claims import LAMBDAS
from anneal.experiments.curves import PACE, Pace, Row, curves, read
from anneal.experiments.oracle import Oracle
from anneal.experiments.play import NothingLeftError, Player
from anneal.experiments.runner import Tell, Trial, run, split_of_trial, trials_of, untold
from anneal.files import write_text
from anneal.method.labelling import LABELLERS
from anneal.settings import Settings
from anneal.watch import Watch, unwatched
from anneal.work import Workers

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
    names = [name for name in tables.ASKED if name != "cal-metric" or base.training.recipe != "paper"]
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
        "bcgue at-0.9": replace(bcgue, ablation="bcgue-at-0.9"),
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
    by_pairs = ("place", "mgue", "bcgue", "random", "cobra", "pfma")
    return {name: base.cold_player(name) for name in (*by_pairs, *LABELLERS)}


def sheets(base: Base) -> Players:
    """What sheets spare a person, and what haste costs."""
    place = base.cold_player("place")
    return {
        "place": place,
        "place one-by-one": base.cold_player("place", sheets=0),
        "place 3%-overlooked": replace(place, overlooked=0.03),
        "mgue": base.cold_player("mgue"),
    }


def noise(base: Base) -> Players:
    """An oracle that errs at a rate, with and without asking again."""
    players: Players = {}
    for name in ("place", "mgue"):
        for rate in NOISES:
            players[f"{name} noise-{rate:.0%}"] = base.cold_player(name, rate)
        players[f"{name} noise-5%-trusted"] = base.cold_player(name, 0.05, recheck=0.0)
    place = base.cold_player("place", 0.05)
    players["place noise-5%-doubt-taught"] = replace(place, training=replace(place.training, doubt=False))
    return players


def parts(base: Base) -> Players:
    """What each part is worth, one changed at a time."""
    place = base.cold_player("place")
    return {
        "place": place,
        "place without-joining": base.cold_player("place", ablation="no-joins"),
        "place by-doubt-at-once": base.cold_player("place", ablation="no-typical"),
        "place by-doubt-alone": base.cold_player("place", ablation="doubt-alone"),
        "place by-own-doubt": base.cold_player("place", ablation="own-doubt"),
        "place without-pseudo-labels": base.cold_player("place", pseudo_labels=0.0),
        "place pseudo-labels-from-0.15": base.cold_player("place", pseudo_labels=0.15),
        "place pseudo-labels-from-0.5": base.cold_player("place", pseudo_labels=0.5),
        "place without-rechecking": base.cold_player("place", recheck=0.0),
        "place without-regression": replace(place, training=replace(place.training, regression=False)),
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


def finetuned(base: Base) -> Players:
    """What is fine-tuned in ``tuned``."""
    return {"place": base.cold_player("place")}


PAPERS: dict[str, Callable[[Base], Players]] = {
    "comparison": comparison,
    "lambda": lambdas,
    "diversity": diversity,
    "panels": panels,
}
"""The paper's figures; they start from class labels. ``all`` plays all of them."""
COLD: dict[str, Callable[[Base], Players]] = {
    "beyond": beyond,
    "sheets": sheets,
    "noise": noise,
    "parts": parts,
    "anchors": anchors,
    "finetune": finetuned,
}
"""Experiments that start from nothing, with the product's settings."""
EXPERIMENTS = {**PAPERS, "choices": choices, **COLD}
INNER = ("choices", "parts")
"""Settings are chosen by these, so they are never played on test images."""


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
    report: Path | None = None,
    pace: Pace = PACE,
) -> list[Row]:
    """Play an experiment (or ``all`` figures of the paper), draw it and report it into ``out``. It is scored
    on training images, split anew; with ``report``, a log that it is noted in, on test images. Minutes are
    counted at the ``pace``."""
    oracle = Oracle.of(archive)
    if experiment in INNER and report is not None:
        raise UsageError(f"{experiment} is for choosing settings, on training images: leave out --report.")
    if experiment == "finetune":
        return tuned.play(
            archive, settings, out, rounds=rounds, trials=trials, jobs=jobs, watch=watch, tell=tell,
            inner=report is None, begin=partial(_note, report, experiment, archive),
        )  # fmt: skip
    inner = report is None
    title = _title(preset.title, inner)
    split = split_of_trial(archive, settings.seed, 0, inner)
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
    todo = trials_of(archive, players, out, trials, inner=inner, pinned=pinned)
    begin = partial(_note, report, experiment, archive, todo)
    rows, ended = _played(out, partial(run, archive, todo, jobs, watch, tell, workers, begin))
    if experiment == "beyond":
        figures.costs(rows, preset.name, title, out, pace)
    elif of_paper:
        figures.draw(rows, title, out)
    if has_panel:
        pinned_trials = [trial for trial in todo if trial.number == 0 and trial.pinned]
        figures.panel(archive, preset.kind, title, pinned_trials, shown, out)
    write_text(out / "report.md", _report(experiment, rows, preset.name, title, pace) + ended)
    return rows


def _played(out: Path, play: Callable[[], list[Row]]) -> tuple[list[Row], str]:
    """The rows, and a line on a player that had nothing left to ask: its curve is shorter."""
    try:
        return play(), ""
    except NothingLeftError as error:
        return read(out / "curve.csv"), f"\n{error}\n"


def _title(title: str, inner: bool) -> str:
    return f"{title}, training images only" if inner else title


def _note(report: Path | None, experiment: str, archive: Archive, trials: Sequence[Trial]) -> None:
    """Note the run in its log, if it has one."""
    if report is not None:
        reported.note(report, experiment, archive.root.name, trials)


def _report(experiment: str, rows: Sequence[Row], archive: str, title: str, pace: Pace) -> str:
    if experiment == "choices":
        return f"# {title}: open points\n\n{tables.choice_table(curves(rows))}\n"
    if experiment in COLD:
        parts = [f"# {title}: {experiment}", tables.curve_table(curves(rows))]
        return "\n\n".join([*parts, tables.cost_table(rows, pace=pace)]) + "\n"
    return tables.of_run(rows, archive, title)


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
    report: Path | None = None,
) -> list[Row]:
    """Play these players and draw ``curve.png``. They are scored on training images, split anew; with
    ``report``, a log that the run is noted in, on test images."""
    todo = trials_of(archive, players, out, trials, inner=report is None)
    begin = partial(_note, report, "simulate", archive, todo)
    rows = run(archive, todo, jobs, watch, tell, workers, begin)
    shown = [row for row in rows if row["player"] != "frozen"]
    first = next(iter(players.values()))
    name = _title(archive.root.name, report is None)
    title = f"{name}, {first.settings.backbone}, depth {first.settings.depth}, {first.start}"
    plots.curve(shown, out / "curve.png", by="player", frozen=figures.mean_score(rows, "frozen"), title=title)
    return rows
