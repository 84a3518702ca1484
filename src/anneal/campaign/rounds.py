"""What the machine leaves behind after each round: files with names and types, and a record of figures."""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from anneal.campaign.intact import UNREADABLE, is_json, is_whole, network_file, rows_in, table
from anneal.campaign.inventory import Inventory
from anneal.campaign.store import HeldOut, Store
from anneal.errors import CampaignError
from anneal.files import checksum, release, replacing, save_array
from anneal.method.neighbours import Index, build_index, unit
from anneal.method.snapshot import Agenda
from anneal.pairs import Floats, Ids, Pair, Pairs

FROZEN = -1  # the number of the model before the first round: the frozen features
LAST = 3  # rounds whose files are kept whatever else
BLOCK = 8192  # vectors at once
EXACT = 100_000  # images: up to here a search compares the query with all of them, past it there is an index


@dataclass(frozen=True)
class Record:
    """The figures of a finished round."""

    number: int
    seen: int  # the last row of the answers that it learnt from
    serving: int  # the number of the model that serves from then on
    answers: int = 0  # given so far
    bits: float = 0.0
    minutes: float = 0.0  # of looking
    threshold: float = float("nan")  # MGUE's α_t
    cutoff: float = float("nan")  # similarity from which the model calls a pair similar
    loss: float = float("nan")
    recheck_rate: float = 1.0  # how much rechecking goes on in the round after it (method.suspects)
    seconds: dict[str, float] = field(default_factory=dict)  # of each step
    p5: tuple[float, float, float] | None = None  # value, low, high: the estimate when its files were removed
    tuned: str = ""  # what of the network was fine-tuned in this round, last or full; usually nothing
    curve: dict[str, Any] | None = None  # a simulation's row of curve.csv
    files: dict[str, tuple[int, str]] = field(default_factory=dict)  # name → size and checksum

    @classmethod
    def from_json(cls, about: dict[str, Any]) -> Self:
        known = {one.name for one in fields(cls)}  # a later version may have saved more
        whole = isinstance(about, dict) and all(
            type(about.get(name)) is int for name in ("number", "seen", "serving")
        )
        if not whole:
            raise CampaignError("The record of a round cannot be read: run anneal check.")
        return cls(**{name: value for name, value in about.items() if name in known})


@dataclass(frozen=True)
class Round:
    """The files of one round, or of the frozen features: vectors.npy, index.faiss (of a large archive),
    neighbours.npz (of the frozen features), top.npy (the nearest of the queries), agenda.npz, against.npy
    (suspects), the model, and while it is trained training.safetensors. Nobody else spells their names."""

    folder: Path
    number: int

    @classmethod
    def of(cls, campaign: Path, number: int) -> Self:
        return cls(campaign / "rounds" / ("frozen" if number == FROZEN else f"{number:04d}"), number)

    def save_space(self, vectors: Floats, nearest: Ids) -> None:
        with self.new_vectors(*vectors.shape) as rows:
            rows[:] = vectors
        self.save_nearest(nearest)

    @contextmanager
    def new_vectors(self, n: int, d: int) -> Iterator[Floats]:
        """(n, d) memory-mapped rows to fill. At the end they are on disk as this round's vectors, and without
        an index; if an error comes in between nothing changes."""
        with self._replacing_vectors(n, d) as rows:
            yield rows
            self._index.unlink(missing_ok=True)
            self.neighbours.unlink(missing_ok=True)

    @contextmanager
    def longer_vectors(self, n: int) -> Iterator[Floats]:
        """As ``new_vectors``, with the rows that are there already filled in. An index of them stays: it does
        not know the others yet."""
        before = self.vectors()
        with self._replacing_vectors(n, before.shape[1]) as rows:
            for i in range(0, len(before), BLOCK):
                rows[i : i + BLOCK][: len(before) - i] = before[i : i + BLOCK]
                release(before)
                release(rows)
            yield rows

    @contextmanager
    def _replacing_vectors(self, n: int, d: int) -> Iterator[Floats]:
        with replacing(self.folder / "vectors.npy") as out:
            rows = np.lib.format.open_memmap(out.name, mode="w+", dtype=np.float32, shape=(n, d))
            if n * d:  # a full disk is an error here; while rows are filled it would kill the process
                os.posix_fallocate(out.fileno(), 0, rows.offset + rows.nbytes)
            yield rows
            rows.flush()

    def save_features(self, features: Floats) -> Floats:
        """Save the frozen features as unit rows, a block at a time; returns them, memory-mapped."""
        with self.new_vectors(*features.shape) as rows:
            for i in range(0, len(features), BLOCK):
                rows[i : i + BLOCK] = unit(features[i : i + BLOCK])
                release(features)
                release(rows)
        return self.vectors()

    def save_nearest(self, nearest: Ids) -> None:
        save_array(self.folder / "top.npy", nearest)

    @property
    def has_vectors(self) -> bool:
        """Whether they are there and can be read."""
        return rows_in(self.folder / "vectors.npy") is not None

    def vectors(self) -> Floats:
        """(n, d) unit rows, memory-mapped: every image in this round's space."""
        if not self.has_vectors:
            raise CampaignError(
                f"{self.folder} has lost its vectors: run anneal check --repair on the campaign."
            )
        vectors: Floats = np.load(self.folder / "vectors.npy", mmap_mode="r")
        return vectors

    @property
    def neighbours(self) -> Path:
        return self.folder / "neighbours.npz"

    @property
    def _index(self) -> Path:
        return self.folder / "index.faiss"

    def index_vectors(self) -> None:
        """Make and save the index of a round that has vectors, if the archive is large."""
        vectors = self.vectors()
        if len(vectors) > EXACT:
            self.save_index(build_index(vectors))

    def grow_index(self) -> None:
        """Let the index know all vectors; make one if the archive has become large."""
        index = self.index(to_grow=True)
        vectors = self.vectors()
        if index is None:
            self.index_vectors()
        elif len(index) < len(vectors):
            index.add(vectors[len(index) :])
            self.save_index(index)

    def save_index(self, index: Index) -> None:
        import faiss

        with replacing(self._index) as out:
            faiss.write_index(index.lists, faiss.PyCallbackIOWriter(out.write))

    def index(self, *, to_grow: bool = False) -> Index | None:
        """The index of the vectors, or None if there is none that can be read. It is memory-mapped unless it
        is ``to_grow``."""
        if not self._index.exists():
            return None
        import faiss

        try:
            return Index(faiss.read_index(str(self._index), 0 if to_grow else faiss.IO_FLAG_MMAP_IFC))
        except RuntimeError:  # of another version, or damaged: search goes without
            return None

    def nearest(self) -> Ids | None:
        """(queries, 6): images by which P@5 is measured, and the five nearest of each."""
        return table(self.folder / "top.npy", 6)

    def save_agenda(self, agenda: Agenda) -> None:
        pairs = np.column_stack([agenda.pairs.a, agenda.pairs.b])
        others = {name: getattr(agenda, name) for name in ("images", "beside", "near", "sheets", "lean")}
        with replacing(self.folder / "agenda.npz") as out:
            np.savez(out, pairs=pairs, **others)

    def agenda(self) -> Agenda | None:
        """What the round after this one asks about; None if that is lost."""
        file = self.folder / "agenda.npz"
        if not file.exists():
            return _agenda_of_version_2(self.folder)
        try:
            with file.open("rb") as opened, np.load(opened) as saved:
                pairs = Pairs(saved["pairs"][:, 0], saved["pairs"][:, 1])
                some = {name: saved[name] for name in ("near", "sheets") if name in saved}  # not in old ones
                return Agenda(pairs, saved["images"], saved["beside"], lean=float(saved["lean"]), **some)
        except UNREADABLE:
            return None

    def save_suspects(self, pairs: Pairs) -> None:
        save_array(self.folder / "against.npy", np.column_stack([pairs.a, pairs.b]))

    def suspects(self) -> Pairs:
        """Earlier answers that the frozen features speak against."""
        saved = table(self.folder / "against.npy", 2)
        return Pairs.none() if saved is None else Pairs(saved[:, 0], saved[:, 1])

    @property
    def has_model(self) -> bool:
        """Whether the encoder is there and whole: network.model writes its JSON last."""
        return (self.folder / "model.json").exists() and not self.has_torn_model

    @property
    def has_torn_model(self) -> bool:
        """Whether the encoder's files are there and cannot be read, or its network cannot."""
        about = self.folder / "model.json"
        weights = [self.folder / "model.safetensors", *filter(None, [network_file(self.folder)])]
        return about.exists() and not (is_json(about) and all(map(is_whole, weights)))

    @property
    def training(self) -> Path:
        """Where a training that takes minutes is saved on its way."""
        return self.folder / "training.safetensors"

    def checksums(self) -> dict[str, tuple[int, str]]:
        """The size and the checksum of each file."""
        files = [file for file in sorted(self.folder.iterdir()) if file.suffix != ".tmp"]
        return {file.name: (file.stat().st_size, checksum(file)) for file in files}

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _agenda_of_version_2(folder: Path) -> Agenda | None:
    files = [folder / f"{name}.npy" for name in ("joins", "order", "beside")]
    if not all(file.exists() for file in files):
        return None
    joins, order, beside = (np.load(file) for file in files)
    return Agenda(Pairs(joins[:, 0], joins[:, 1]), order, beside)


class Rounds:
    """The finished rounds of a campaign: their records and files. Read again only when one was saved, or when
    the images have changed."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder
        self._store = store
        self._version: tuple[int, float, int] | None = None
        self._size: int | None = None
        self._mark: tuple[int, int] | None = None
        self._records: list[Record] = []
        self._heldout: list[tuple[int, int, int, int]] = []
        self._heldout_pairs: dict[Pair, None] = {}
        self._ranks: dict[tuple[int, int, int], tuple[int, int, float]] | None = None
        self._vectors: tuple[int, Floats] | None = None
        self._index: tuple[int, Index | None] | None = None
        self._agenda: tuple[int, Agenda | None] | None = None

    def records(self) -> list[Record]:
        """The figures of every finished round."""
        mark = self._store.mark
        if mark is None or mark != self._mark:
            version = self._store.rounds_version()
            if version != self._version:
                self._records = [Record.from_json(about) for about in self._store.rounds()]
                self._heldout = self._store.heldout()
                gone = Inventory(self._store).retired()
                pairs = ((a, b) for _, _, a, b in self._heldout)
                self._heldout_pairs = {pair: None for pair in pairs if gone.keys().isdisjoint(pair)}
                self._ranks = None
                self._size = self._store.setting("size", None)
                self._vectors = self._index = self._agenda = None
                self._version = version
            self._mark = mark
        return self._records

    def save(self, record: Record, heldout: HeldOut | None = None) -> None:
        """Add a round, or replace its record."""
        self._store.save_round(asdict(record), heldout)

    def heldout_draws(self) -> list[tuple[int, int, int, int]]:
        """(model, draw, a, b) of every held-out pair, in the order drawn; those of retired images too."""
        self.records()
        return self._heldout

    def heldout_pairs(self) -> dict[Pair, None]:
        """Every held-out pair once, in the order drawn, without those of retired images."""
        self.records()
        return self._heldout_pairs

    def ranks(self) -> dict[tuple[int, int, int], tuple[int, int, float]]:
        """(model, a, b) → the ranks and the similarity of a held-out pair in a model (``Store.ranks``)."""
        self.records()
        if self._ranks is None:
            self._ranks = self._store.ranks()
        return self._ranks

    @property
    def version(self) -> tuple[int, float, int]:
        """Changes whenever a round is saved, or the images change, by any process."""
        self.records()
        return self._version or (0, 0.0, 0)

    @property
    def grown(self) -> int:
        """Changes whenever the images change, by any process."""
        return self.version[-1]

    @property
    def size(self) -> int:
        """The number of images that count; files of a growth that was stopped may have more."""
        self.records()
        return self._size or 0

    @property
    def current(self) -> int:
        """The number of the round that is being asked."""
        return len(self.records())

    @property
    def seen(self) -> int:
        """The last row of the answers that the newest model learnt from."""
        records = self.records()
        return records[-1].seen if records else 0

    @property
    def serving(self) -> int:
        """The number of the serving model: the newest one, or an earlier one if the newest is worse, or if
        its vectors cannot be read."""
        records = self.records()
        chosen = records[-1].serving if records else FROZEN
        earlier = sorted({record.serving for record in records if record.serving < chosen} | {FROZEN})
        readable = (number for number in (chosen, *reversed(earlier)) if self.has_vectors(number))
        return next(readable, chosen)

    def cutoff(self, number: int) -> float:
        """The similarity from which a model calls a pair similar; NaN for the frozen features."""
        return float("nan") if number == FROZEN else self.records()[number].cutoff

    def has_vectors(self, number: int) -> bool:
        """Whether a model's vectors can be read, and none is missing."""
        rows = rows_in(self.files(number).folder / "vectors.npy")
        return rows is not None and rows >= self.size

    def is_whole(self, number: int) -> bool:
        """Whether a model's vectors can be read, and its encoder too if it was saved with one."""
        if not self.has_vectors(number) or self.files(number).has_torn_model:
            return False
        saved = {record.number: record.files for record in self.records()}.get(number, {})
        return "model.json" not in saved or self.files(number).has_model

    def files(self, number: int) -> Round:
        return Round.of(self._folder, number)

    def vectors(self, model: int | None = None) -> Floats:
        """Every image in the space of the serving model, or of another one."""
        self.records()
        number = self.serving if model is None else model
        if self._vectors is None or self._vectors[0] != number:
            self._vectors = number, self.files(number).vectors()[: self._size]
        return self._vectors[1]

    def index(self, model: int | None = None) -> Index | None:
        """The index of these vectors, if there is one."""
        self.records()
        number = self.serving if model is None else model
        if self._index is None or self._index[0] != number:
            self._index = number, self.files(number).index()
        return self._index[1]

    def agenda(self) -> Agenda:
        """What the current round asks about; empty if that was lost."""
        return self.agenda_if_any() or Agenda()

    def agenda_if_any(self) -> Agenda | None:
        """What the current round asks about; None if that was lost."""
        number = self.current
        if self._agenda is None or self._agenda[0] != number:
            agenda = self.files(number - 1).agenda()
            old = self._store.setting("agenda", {})  # the list of a campaign of version 2
            if agenda is None and old.get("round") == number:
                agenda = Agenda(Pairs.from_list(old["pairs"]), lean=old["lean"])
            if agenda is not None and agenda.last >= (self.size or agenda.last + 1):
                agenda = None
            self._agenda = number, agenda
        return self._agenda[1]

    def kept(self) -> list[int]:
        """The models whose vectors are there."""
        return [number for number in range(FROZEN, self.current) if self.has_vectors(number)]

    def forget(self) -> None:
        """Files were made again: read them anew."""
        self._vectors = self._index = self._agenda = None

    def unneeded(self, keep: Collection[int]) -> list[Record]:
        """Rounds whose files nothing needs: all but the last few, the serving one and ``keep``."""
        records = self.records()
        needed = {record.number for record in records[-LAST:]} | set(keep) | {self.serving}
        old = [record for record in records if record.number not in needed]
        return [record for record in old if self.files(record.number).folder.exists()]
