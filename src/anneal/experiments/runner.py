"""Trials of players, side by side in processes, going on after a stop. ``simulate`` and ``reproduce`` use it.

A trial is one campaign of one player with one seed. It runs in a process of one thread: the last digits of a
matrix product depend on the number of threads, so the curves do not depend on how many trials run at once.
"""

import csv
import io
import json
import os
import platform
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_limits

from anneal.archive.catalog import Archive, reopen
from anneal.archive.reading import SPLITS
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import Record
from anneal.errors import UsageError
from anneal.experiments.curves import Row, read
from anneal.experiments.oracle import Oracle, Split, inner_split, score, split_of
from anneal.experiments.play import NothingLeftError, Player, changes, play
from anneal.files import explain_disk_errors, write_text
from anneal.method.neighbours import unit
from anneal.network import backbones, encode
from anneal.network.backbones import Backbone
from anneal.pairs import Floats
from anneal.watch import Watch, unwatched
from anneal.work import Workers

INNER_SEEDS = 3  # trials whose test images the inner split leaves out
KEY = ("player", "trial", "round")
COLUMNS = (
    "player", "strategy", "trial", "round", "bits", "answers", "acts", "labels", "implied",
    "similar_share", "threshold", "map5_min", "map5_hits", "map5_all", "p5", "p5_class",
)  # fmt: skip
"""Columns of ``curve.csv``. Nothing in it depends on the machine's speed."""
STEPS = ("infer", "fit", "embed", "heldout", "index", "plan")
"""Columns of ``seconds.csv`` after KEY."""

_OTHER_SPLIT = {
    True: "{out} holds a run with --report, on test images: give --report again, or a new --out.",
    False: "{out} holds a run without --report, on training images: leave it out again, or give a new --out.",
}
"""Why a run is refused, by whether it is an inner one."""

Tell = Callable[[Row], None]
"""Called with each row of the curve, and the seconds of its round, when it is finished."""


def untold(row: Row) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Trial:
    """One trial of one player, as a process is told of it."""

    name: str
    player: Player  # with the seed of this trial
    number: int
    inner: bool
    out: Path
    root: Path
    cache: Path
    pinned: tuple[int, ...] = ()  # rounds whose files are kept

    @property
    def folder(self) -> Path:
        name = "".join(c if c.isalnum() or c in "-=." else "_" for c in self.name)
        return self.out / "trials" / f"{name}-{self.number}"

    def absolute(self) -> "Trial":
        """With paths that mean the same in every process."""
        paths = {name: getattr(self, name).absolute() for name in ("out", "root", "cache")}
        return replace(self, **paths)

    def split(self, archive: Archive) -> Split:
        return split_of_trial(archive, self.player.settings.seed, self.number, self.inner)

    def records(self) -> list[Record]:
        """What has been played of it, by any process."""
        if not Campaign.is_made(self.folder):
            return []
        campaign = Campaign.open(self.folder, self.player.strategy)
        records = campaign.rounds.records()[: self.player.rounds + 1]
        campaign.close()
        return [record for record in records if record.curve is not None]

    def row(self, record: Record) -> Row:
        curve = {**(record.curve or {}), "player": self.name, "trial": self.number}
        return {name: curve.get(name, "") for name in COLUMNS}

    def times(self, record: Record) -> Row:
        return {"player": self.name, "trial": self.number, "round": record.number, **record.seconds}

    def vectors(self, number: int) -> Floats:
        """Every image in the space that served after a round, if that round was pinned or is recent."""
        campaign = Campaign.open(self.folder, self.player.strategy)
        files = campaign.rounds.files(campaign.rounds.records()[number].serving)
        campaign.close()
        if not files.has_vectors:
            raise UsageError(f"{self.folder} has not kept round {number}: play into a new --out to see it.")
        return np.array(files.vectors())


def split_of_trial(archive: Archive, seed: int, number: int, inner: bool) -> Split:
    """The split of the trial with this number and seed; an ``inner`` one is of training images alone."""
    if not inner:
        return split_of(archive, seed)
    first = seed - number  # the seed of the first trial
    return inner_split(archive, range(first, first + INNER_SEEDS), seed)


def trials_of(
    archive: Archive,
    players: Mapping[str, Player],
    out: Path,
    trials: int,
    *,
    inner: bool = False,
    pinned: Mapping[str, Collection[int]] | None = None,
) -> list[Trial]:
    todo = []
    for number in range(trials):
        for name, player in players.items():
            seeded = player.with_seed(player.settings.seed + number)
            kept = tuple((pinned or {}).get(name, ()))
            todo.append(Trial(name, seeded, number, inner, out, archive.root, archive.folder, kept))
    return todo


def run(
    archive: Archive,
    trials: Sequence[Trial],
    jobs: int,
    watch: Watch = unwatched,
    tell: Tell = untold,
    workers: Workers | None = None,
    begin: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Play every trial from where it stands, ``jobs`` at a time or each by one of the ``workers``. Its files
    grow with each round. ``begin`` is called before anything is scored, when the run is not refused. Where
    a trial has nothing left to ask, the others are played to their end before that is raised."""
    oracle = Oracle.of(archive)
    out = trials[0].out
    settings = trials[0].player.settings
    network = backbones.load(backbones.fetch(settings.backbone))
    backbone = backbones.for_bands(network, archive.reading.kernels)
    stored = partial(encode.inputs, progress=watch("encoding"), views=settings.views, workers=workers)
    frozen = stored(archive, backbone, "head")
    stored(archive, backbone, settings.depth)  # type: ignore[arg-type]
    splits = {trial.number: trial.split(archive) for trial in trials}
    about = _about(archive, oracle, trials)
    with _locked_and_merged(out, about):
        begin()
        untrained = [
            {"player": "frozen", "strategy": "frozen", "trial": number, "round": 0, "bits": 0}
            | score(unit(frozen), split, oracle.classes)
            for number, split in splits.items()
        ]
        order = ["frozen", *about["players"]]
        for number, split in splits.items():
            _write_split(out / "splits" / f"trial-{number}.csv", archive, split)
        write_text(out / "run.json", json.dumps(about, indent=1))
        for played in _played(trials, jobs, watch, tell, workers):
            rows = [trial.row(record) for trial, records in played.items() for record in records]
            _update(out / "curve.csv", [*untrained, *rows], COLUMNS, order)
            times = [trial.times(record) for trial, records in played.items() for record in records]
            _update(out / "seconds.csv", times, (*KEY, *STEPS), order)
    return read(out / "curve.csv")


def _played(
    trials: Sequence[Trial], jobs: int, watch: Watch, tell: Tell, workers: Workers | None
) -> Iterator[dict[Trial, list[Record]]]:
    """All records so far, each time there are more. What a worker plays is read when it has ended: SQLite's
    file cannot be read on one machine while another one writes it."""
    progress = watch("playing")
    total = sum(trial.player.rounds + 1 for trial in trials)
    records: dict[Trial, list[Record]] = {trial: [] for trial in trials}
    playing: dict[Trial, Future[None]]
    if workers is None:
        executor = get_reusable_executor(jobs, initializer=_start_process, initargs=(os.getpid(),))
        playing = {trial: executor.submit(_play, trial) for trial in trials}
    else:
        playing = {trial: workers.submit("playing a trial", _play, trial.absolute()) for trial in trials}
    pending = set(playing.values())
    ended: list[NothingLeftError] = []
    try:
        while True:
            done, pending = wait(pending, timeout=2.0, return_when=FIRST_COMPLETED)
            before = sum(map(len, records.values()))
            for trial, seen in records.items():
                if len(seen) <= trial.player.rounds and (workers is None or playing[trial] not in pending):
                    for record in trial.records()[len(seen) :]:
                        seen.append(record)
                        tell({**trial.row(record), "seconds": sum(record.seconds.values())})
            count = sum(map(len, records.values()))
            progress(count, total)
            if count > before:
                yield records
            for future in done:
                try:
                    future.result()
                except NothingLeftError as error:
                    ended.append(error)
            if not pending:
                break
    except BaseException:
        if workers is None:
            executor.shutdown(wait=False, kill_workers=True)
        raise
    if ended:
        raise ended[0]


def _start_process(parent: int) -> None:
    """In each process before its first trial: end when the parent is gone; what was finished is on disk."""

    def leave_with_parent() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1.0)
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c: the parent ends this process


def _play(trial: Trial) -> None:
    """One trial from where it stands to its end, in one thread."""
    torch.set_num_threads(1)
    settings = trial.player.settings
    with threadpool_limits(1):
        archive = reopen(trial.root, trial.cache, settings.px)
        backbone = backbones.for_bands(_backbone(settings.backbone), archive.reading.kernels)
        split = trial.split(archive)
        oracle = Oracle.of(archive, trial.player.noise, settings.seed, trial.player.overlooked)
        trial.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(trial.folder / "playing.lock"):  # a process whose parent was killed may not have ended
            campaign = trial.player.open(trial.folder, archive, split, backbone)
            for _ in play(campaign, trial.player, oracle, split, backbone, pinned=trial.pinned):
                pass
            campaign.close()


@lru_cache(maxsize=1)
def _backbone(name: str) -> Backbone:
    return backbones.load(name)


def _about(archive: Archive, oracle: Oracle, trials: Sequence[Trial]) -> dict[str, Any]:
    """``run.json``: what was played on which images, with which versions."""
    first = trials[0].player.settings
    packages = ("anneal", "numpy", "scipy", "scikit-learn", "torch", "transformers", "pillow")
    about = {
        "archive": {
            "name": archive.root.name,
            "images": len(archive),
            "classes": len(oracle.names),
            "skipped": archive.skipped,
            "duplicates": [[archive.paths[i] for i in group] for group in archive.duplicates],
        },
        "inner": trials[0].inner,
        "network": {name: getattr(first, name) for name in ("backbone", "depth", "views", "px")},
        "seed": first.seed - trials[0].number,
        "trials": 1 + max(trial.number for trial in trials),
        "players": {trial.name: trial.player.about() for trial in trials if trial.number == 0},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }
    return dict(json.loads(json.dumps(about)))


@contextmanager
def _locked_and_merged(out: Path, about: dict[str, Any]) -> Iterator[None]:
    """Lock ``out``. Refuse it if it holds another run; else add the players it has to ``about``."""
    with explain_disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / "run.lock"):
        if (out / "run.json").exists():
            before = json.loads((out / "run.json").read_text(encoding="utf-8"))
            if bool(before.get("inner")) != about["inner"]:
                raise UsageError(_OTHER_SPLIT[about["inner"]].format(out=out))
            same = ("archive", "network", "seed")
            changed = [name for name in same if before.get(name) != about[name]]
            if changed:
                raise UsageError(f"{out} holds a run with another {', '.join(changed)}: give a new --out.")
            for name, player in about["players"].items():
                earlier = before["players"].get(name, player)
                if changed := changes(earlier, player):
                    what = ", ".join(changed)
                    raise UsageError(f"{out} holds {name} with another {what}: give a new --out.")
                player["rounds"] = max(player["rounds"], earlier["rounds"])
            about["players"] = {**before["players"], **about["players"]}
            about["trials"] = max(about["trials"], before["trials"])
        yield


def _update(file: Path, rows: Sequence[Row], columns: Sequence[str], order: Sequence[str]) -> None:
    """Write these rows among those that are there, in the order of the players."""

    def place(row: Row) -> tuple[int, int, int]:
        return order.index(row["player"]), int(row["trial"]), int(row["round"])

    by_place: dict[tuple[int, int, int], Row] = {}
    if file.exists():
        with file.open(encoding="utf-8", newline="") as lines:
            by_place = {place(row): row for row in csv.DictReader(lines)}
        for row in by_place.values():
            if "alpha" in row:  # the name in older files
                row["threshold"] = row.pop("alpha")
    by_place |= {place(row): row for row in rows}
    write_text(file, to_csv([by_place[at] for at in sorted(by_place)], columns))


def to_csv(rows: Iterable[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()})
    return text.getvalue()


def _write_split(path: Path, archive: Archive, split: Split) -> None:
    """A manifest: in the archive's folder it gives anyone the same three parts."""
    part = {int(i): name for name in SPLITS for i in getattr(split, name)}
    rows = []
    for i, name in sorted(part.items()):
        rows.append({"path": archive.paths[i], "class": archive.labels[i], "split": name})
    write_text(path, to_csv(rows, ("path", "class", "split")))
