"""The paper's experiments: who plays, in how many trials, side by side, and what is drawn from it.

A *player* is a simulation of one strategy with its settings, and each of its trials a campaign of its
own. Trials run in processes of one thread each, so that their number changes nothing but the time.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from threadpoolctl import threadpool_limits

from anneal import backbones, plots, report
from anneal.archive import Archive, reopen
from anneal.campaign import Campaign, Plan
from anneal.cycle import Watch, unwatched
from anneal.errors import UsageError
from anneal.index import nearest, unit
from anneal.kept import disk, write_text
from anneal.pairs import Floats
from anneal.simulate import (
    COLUMNS,
    Row,
    Simulation,
    Split,
    Stage,
    Tell,
    Truth,
    campaign_at,
    inner_split,
    play,
    replay,
    score,
    split_of,
    to_csv,
    untold,
    versions,
)

LAMBDAS = (1, 2, 3, 4, 5, 6)
SHOWN = 10  # results in a panel
TRIALS = 3  # of the paper's experiments
KEY = ("player", "trial", "round")
STEPS = ("infer", "fit", "embed", "threshold", "ask")  # of a round, each timed
FIELDS = ("player", *(name for name in COLUMNS if name != "seconds"))
"""Columns of ``curve.csv``: nothing in it depends on the machine's speed."""
Played = list[tuple[Row, dict[str, float]]]
"""Rows of the curve, each with the seconds of the round's steps."""


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
    trials: int = TRIALS
    px: int | None = None  # in place of the mode's own


PRESETS = {
    "ucmerced": Preset("ucmerced", "UC-Merced", 84, 369, 10, "mediumresidential", 1476),
    "aid": Preset("aid", "AID at 150 px", 80, 392, 18, "Airport", 5090),
    "demo": Preset("demo", "drawn scenes", 24, 40, 2, "orchard", 126, trials=1, px=96),
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
)
"""The paper's network and training."""


EXPERIMENTS = ("comparison", "lambda", "diversity", "panels")


def settings(mode: str, preset: Preset, seed: int = 0, backbone: str | None = None, **changed: Any) -> Plan:
    """The plan of a mode on an archive; what is given in ``changed``, and is not None, replaces its own."""
    if mode not in ("ours", "paper"):
        raise UsageError(f"--mode {mode!r}: choose ours or paper.")
    plan = PAPER if mode == "paper" else Plan()
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
        panel(archive, preset, {player: players[player] for player in figures(plan)["panels"]}, out)
    write_text(out / "report.md", report.of_run(rows, preset.name, preset.title))
    return rows


def figures(plan: Plan) -> dict[str, dict[str, Plan]]:
    """Who plays in which figure. A player of several figures plays once."""
    flat = replace(plan, diversity="none")
    asked = {name: replace(plan, strategy=name) for name in ("mgue", "bcgue", "cal", "cal-metric", "random")}
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


@dataclass(frozen=True)
class Task:
    """One trial of one player, as a process is told of it."""

    player: str
    simulation: Simulation
    trial: int
    inner: bool  # on images that no trial is tested on
    out: str
    root: str
    kept: str

    @property
    def folder(self) -> Path:
        name = "".join(c if c.isalnum() or c in "-=." else "_" for c in self.player)
        return Path(self.out) / "trials" / f"{name}-{self.trial}"

    @property
    def plan(self) -> Plan:
        plan = self.simulation.plan
        return replace(plan, seed=plan.seed + self.trial)

    def split(self, archive: Archive) -> Split:
        if not self.inner:
            return split_of(archive, self.plan.seed)
        first = self.simulation.plan.seed
        return inner_split(archive, range(first, first + TRIALS), self.plan.seed)

    def rounds(self) -> Played:
        """What has been played of it, whoever played it."""
        if not Campaign.is_made(self.folder):
            return []
        campaign = Campaign.open(self.folder)
        notes = [note for _, note in campaign.store.rounds()][: self.simulation.rounds + 1]
        campaign.close()
        about = {"player": self.player, "trial": self.trial}
        rows = [{name: {**note["row"], **about}[name] for name in FIELDS} for note in notes]
        return [(row, note["seconds"]) for row, note in zip(rows, notes, strict=True)]


def run(
    archive: Archive,
    players: Mapping[str, Simulation],
    out: Path,
    *,
    trials: int,
    jobs: int,
    inner: bool = False,
    watch: Watch = unwatched,
    tell: Tell = untold,
) -> list[Row]:
    """Play every trial of every player, ``jobs`` at a time, going on where an earlier run stopped.
    ``curve.csv`` and ``seconds.csv`` grow with each round, whoever finishes first; what other players
    have left in them stays."""
    truth, first = Truth.of(archive), next(iter(players.values())).plan
    stage = Stage.of(archive, backbones.load(first.backbone), first, watch)  # encoded before they start
    where = (str(out), str(archive.root), str(archive.folder))
    tasks = [
        Task(name, simulation, trial, inner, *where)
        for trial in range(trials)
        for name, simulation in players.items()
    ]
    splits = [replace(tasks[0], trial=trial).split(archive) for trial in range(trials)]
    frozen = [
        {"player": "frozen", "strategy": "frozen", "trial": trial, "round": 0, "bits": 0}
        | score(unit(stage.frozen), split, truth.classes)
        for trial, split in enumerate(splits)
    ]
    about = _about(archive, truth, players, trials, inner)
    with _alone(out, about):
        order = ["frozen", *about["players"]]
        for trial, split in enumerate(splits):
            _write_split(out / "splits" / f"trial-{trial}.csv", archive, split)
        write_text(out / "run.json", json.dumps(about, indent=1))
        for played in _played(tasks, jobs, watch, tell):
            times = [{**{name: row[name] for name in KEY}, **seconds} for row, seconds in played]
            _update(out / "curve.csv", [*frozen, *(row for row, _ in played)], FIELDS, order)
            _update(out / "seconds.csv", times, (*KEY, *STEPS), order)
    return report.read(out / "curve.csv")


@contextmanager
def _alone(out: Path, about: dict[str, Any]) -> Iterator[None]:
    """Nobody else writes here; and what is here was made of the same images in the same way. Players of
    an earlier run join those of this one."""
    with disk(out):
        out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / "reproduce.lock"):
        if (out / "run.json").exists():
            before = json.loads((out / "run.json").read_text(encoding="utf-8"))
            if changed := [name for name in ("archive", "inner", "network") if before[name] != about[name]]:
                raise UsageError(f"{out} holds a run with another {', '.join(changed)}: give a new --out.")
            about["players"] = {**before["players"], **about["players"]}
            about["trials"] = max(about["trials"], before["trials"])
        yield


def _update(file: Path, rows: Sequence[Row], columns: Sequence[str], order: Sequence[str]) -> None:
    """Write these rows among those that are there, in the order of the players."""
    found: dict[tuple[int, int, int], Row] = {}
    if file.exists():
        with file.open(encoding="utf-8", newline="") as lines:
            found = {_place(row, order): row for row in csv.DictReader(lines)}
    found |= {_place(row, order): row for row in rows}
    write_text(file, to_csv([found[place] for place in sorted(found)], columns))


def _place(row: Row, order: Sequence[str]) -> tuple[int, int, int]:
    return order.index(row["player"]), int(row["trial"]), int(row["round"])


def _played(tasks: Sequence[Task], jobs: int, watch: Watch, tell: Tell) -> Iterator[Played]:
    """All rounds so far, each time there are more."""
    progress = watch("playing")
    total = sum(task.simulation.rounds + 1 for task in tasks)
    found: dict[Task, Played] = {task: [] for task in tasks}
    # A fresh interpreter for each: a forked one would inherit the locks of torch's threads.
    context = get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(jobs, context, _begin, (os.getpid(), stop)) as pool:
        pending = {pool.submit(_play, task) for task in tasks}
        try:
            while True:
                done, pending = wait(pending, timeout=2.0, return_when=FIRST_COMPLETED)
                before = sum(map(len, found.values()))
                for task, rounds in found.items():
                    if len(rounds) <= task.simulation.rounds:
                        for row, seconds in task.rounds()[len(rounds) :]:
                            rounds.append((row, seconds))
                            tell({**row, "strategy": row["player"], "seconds": sum(seconds.values())})
                played = [entry for rounds in found.values() for entry in rounds]
                progress(len(played), total)
                if len(played) > before:
                    yield played
                for future in done:
                    future.result()
                if not pending:
                    return
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(parent: int, stop: Event) -> None:
    """In each process before its first trial."""

    def leave() -> None:
        while os.getppid() == parent and not stop.wait(1.0):
            pass
        os._exit(1)  # nobody waits for more; what was finished is on disk

    threading.Thread(target=leave, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ctrl-c: the parent says what there is to say
    _one_thread()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
    threadpool_limits(1)  # and NumPy's


@lru_cache(maxsize=1)
def _stage(root: str, kept: str, plan: Plan) -> Stage:
    archive = reopen(Path(root), Path(kept), plan.px)
    return Stage.of(archive, backbones.load(plan.backbone), plan)


def _play(task: Task) -> None:
    """One campaign from where it stands to its end."""
    plan = task.plan
    stage = _stage(task.root, task.kept, replace(Plan(), **_network(plan)))
    split = task.split(stage.archive)
    task.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(task.folder / "playing.lock"):  # a process whose parent was killed may be at it yet
        campaign = campaign_at(task.folder, stage.archive, plan, split.train)
        for _ in play(stage, campaign, split, task.simulation, task.trial):
            pass
        campaign.close()


def _vectors(task: Task, number: int) -> Floats:
    """Every image in the space of one round, learnt again."""
    stage = _stage(task.root, task.kept, replace(Plan(), **_network(task.plan)))
    campaign = Campaign.open(task.folder)
    vectors = replay(stage, campaign, number).vectors
    campaign.close()
    return vectors


def _network(plan: Plan) -> dict[str, Any]:
    """What the encoded archive depends on."""
    return {name: getattr(plan, name) for name in ("backbone", "depth", "views", "px")}


def panel(archive: Archive, preset: Preset, players: Mapping[str, Simulation], out: Path) -> Path:
    """The paper's retrieval figure: the first query of a class in the first trial, and its nearest under
    each of these players at the budget nearest to the preset's."""
    truth = Truth.of(archive)
    split = split_of(archive, next(iter(players.values())).plan.seed)
    query = int(split.val[truth.classes[split.val] == truth.names.index(preset.kind)][0])
    heads, results = [], []
    pool = ProcessPoolExecutor(1, get_context("spawn"), _one_thread)  # as it was played
    for name, simulation in players.items():
        task = Task(name, simulation, 0, False, str(out), str(archive.root), str(archive.folder))
        bits = [row["bits"] for row, _ in task.rounds()]
        number = min(range(len(bits)), key=lambda n: abs(bits[n] - preset.bits))
        vectors = pool.submit(_vectors, task, number).result()
        ids = nearest(vectors, split.test, vectors[query][None], SHOWN).ids[0].tolist()
        right = [bool(truth.classes[i] == truth.classes[query]) for i in ids]
        heads.append(
            (archive.pixels[query], f"{name}, {bits[number]} bits\n{sum(right)} of {len(ids)} right")
        )
        found = zip(ids, right, strict=True)
        results.append([(archive.pixels[i], archive.labels[i], good) for i, good in found])
    pool.shutdown()
    title = f"{preset.title}: a query of class {preset.kind} and its nearest; wrong ones framed red"
    for ending in ("png", "pdf"):
        plots.panel(heads, results, out / f"panels.{ending}", title)
    return out / "panels.png"


def _write_split(path: Path, archive: Archive, split: Split) -> None:
    """A manifest: put into the archive's folder, it gives anyone the same three parts."""
    part = {int(i): name for name in ("train", "val", "test") for i in getattr(split, name)}
    rows = [
        {"path": archive.paths[i], "class": archive.labels[i], "split": name}
        for i, name in sorted(part.items())
    ]
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, to_csv(rows, ("path", "class", "split")))


def _about(
    archive: Archive, truth: Truth, players: Mapping[str, Simulation], trials: int, inner: bool
) -> dict[str, Any]:
    first = next(iter(players.values())).plan
    return {
        "archive": {"name": archive.root.name, "images": len(archive), "classes": len(truth.names)},
        "trials": trials,
        "inner": inner,
        "network": {**_network(first), "seed": first.seed},
        "players": {name: asdict(simulation) for name, simulation in players.items()},
        "versions": versions(),
    }


LABELS = {
    "mgue": "ANNEAL-MGUE",
    "bcgue": "ANNEAL-BCGUE",
    "cal": "CAL",
    "cal-metric": "CAL, labels train the metric too",
    "random": "random",
}
FLAT = {"mgue-flat-3": "MGUE without", "bcgue-flat": "BCGUE without"}
WITH = {"mgue": "MGUE with k-means", "bcgue": "BCGUE with k-means"}


def draw(rows: Sequence[Row], title: str, out: Path, endings: Sequence[str] = ("png", "pdf")) -> None:
    """One figure for each of the paper's whose players have played."""
    level = {name: [row["map5_min"] for row in rows if row["player"] == name] for name in ("frozen", "upper")}
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
