"""Players and their trials, played side by side in processes and gone on with after a stop.

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

from filelock import FileLock
from threadpoolctl import threadpool_limits

from anneal.archive.catalog import SPLITS, Archive, reopen
from anneal.archive.pixels import disk, write_text
from anneal.campaign.campaign import Campaign
from anneal.campaign.turn import Watch, unwatched
from anneal.errors import UsageError
from anneal.experiments import report
from anneal.experiments.play import (
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
from anneal.method.neighbours import unit
from anneal.network import backbones
from anneal.pairs import Floats
from anneal.settings import Plan

TRIALS = 3  # of the paper's experiments
KEY = ("player", "trial", "round")
FIELDS = ("player", *(name for name in COLUMNS if name != "seconds"))
"""Columns of ``curve.csv``: nothing in it depends on the machine's speed."""
Played = list[tuple[Row, dict[str, float]]]
"""Rows of the curve, each with the seconds of the round's steps."""


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
        rows = [{name: {**note["row"], **about}.get(name, "") for name in FIELDS} for note in notes]
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
            _update(out / "seconds.csv", times, (*KEY, *report.STEPS), order)
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


def spaces(wanted: Sequence[tuple[Task, int]]) -> list[Floats]:
    """Every image in the space of a past round of each task, learnt again as it was played."""
    with ProcessPoolExecutor(1, get_context("spawn"), _one_thread) as pool:
        return list(pool.map(_vectors, *zip(*wanted, strict=True)))


def _vectors(task: Task, number: int) -> Floats:
    stage = _stage(task.root, task.kept, replace(Plan(), **_network(task.plan)))
    campaign = Campaign.open(task.folder)
    vectors = replay(stage, campaign, number).vectors
    campaign.close()
    return vectors


def _network(plan: Plan) -> dict[str, Any]:
    """What the encoded archive depends on."""
    return {name: getattr(plan, name) for name in ("backbone", "depth", "views", "px")}


def _write_split(path: Path, archive: Archive, split: Split) -> None:
    """A manifest: put into the archive's folder, it gives anyone the same three parts."""
    part = {int(i): name for name in SPLITS for i in getattr(split, name)}
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
