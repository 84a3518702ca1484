"""The person's turn: the next pair, an answer, an undo, how far we are. No torch in here.

A campaign is a folder: ``campaign.sqlite`` (everything a person said), ``cache/`` (pixels and frozen
features) and ``rounds/`` (the model and the vectors of each round).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from anneal.archive import Archive, reopen
from anneal.errors import CampaignError, UsageError
from anneal.pairs import UNKNOWN, Answers, Floats, Ids, Pairs, Verdict
from anneal.store import Store
from anneal.transitivity import CLOSURES, Closure

FILE = "campaign.sqlite"
PARTNERS = 4  # similar and dissimilar partners of an image whose class is given, as in the paper


@dataclass(frozen=True)
class Plan:
    """How the machine takes its turn; written once when the campaign is made."""

    backbone: str = "efficientnet-lite0"
    depth: str = "head"
    head: str = "anchored"
    views: int = 2  # quarter turns whose features are averaged (depth head)
    px: int = 224
    strategy: str = "mgue"
    per_round: int = 100
    closure: str = "full"
    diversity: str = "kmeans"
    lam: float = 3.0  # λ, the paper's best
    space: str = "search"  # where pairs are compared to be asked: search (as retrieval does), backbone, head
    loss: str = "mix"
    recipe: str = "anneal"  # how the network is trained, or paper: as the paper trains its own
    restart: str = "warm"  # each round from the one before, or cold: from the pretrained weights
    length: int = 1  # how many times as long as the recipe says training takes
    gamma: float = 0.03  # weight of BCGUE's classifier in the loss
    widths: tuple[int, int] = (64, 32)  # its first two layers
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("--closure", self.closure, CLOSURES)
        _one_of("--depth", self.depth, ("head", "last", "full"))
        _one_of("--head", self.head, ("anchored", "paper"))
        _one_of("--diversity", self.diversity, ("kmeans", "kmeans-sum", "kmeans-product", "none"))
        _one_of("--space", self.space, ("search", "backbone", "head"))
        _one_of("--loss", self.loss, ("mix", "contrastive", "ntxent"))
        _one_of("--recipe", self.recipe, ("anneal", "paper"))
        _one_of("--restart", self.restart, ("cold", "warm"))
        if not 1 <= self.views <= 4:
            raise UsageError(f"--views {self.views}: an image has 1 to 4 quarter turns.")
        if not np.isfinite(self.lam):
            raise UsageError(f"--lambda {self.lam} is not a number: the paper's value is 3.")
        if self.per_round < 1:
            raise UsageError(f"--per-round {self.per_round}: ask at least one question a round.")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: give a whole number from 0 up.")

    def rng(self, *purpose: int) -> np.random.Generator:
        """A generator for one purpose, the same whatever ran before it: a stopped run that goes on
        draws what it would have drawn."""
        return np.random.default_rng([self.seed, *purpose])


@dataclass(frozen=True)
class Standing:
    """How far the campaign is."""

    images: int
    answers: int
    similar: int
    dissimilar: int
    unsure: int
    labels: int
    implied: int
    contradictions: int
    rounds: int
    queued: int


class Campaign:
    """An open campaign."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        saved = store.settings()
        try:
            known = {field.name for field in fields(Plan)}
            plan = {k: v for k, v in saved["plan"].items() if k in known}
            if "widths" in plan:
                plan["widths"] = tuple(plan["widths"])  # JSON knows lists only
            self.plan = Plan(**plan)
            self.images: Ids = np.array(saved["images"], dtype=np.int64)
            self._archive = saved["archive"]
            self.size = int(saved["size"])  # images in the archive
        except KeyError:
            raise CampaignError(
                f"{folder} holds a campaign that was never finished being made: run init again."
            ) from None

    @classmethod
    def create(
        cls, folder: Path, archive: Archive, plan: Plan, images: Ids, first: Pairs | None = None
    ) -> Campaign:
        """A new campaign on ``archive`` that asks about ``images`` only, ``first`` these pairs."""
        cls.refuse_if_made(folder)
        store = Store(folder / FILE, create=True)
        where = {"root": str(archive.root.resolve()), "folder": str(archive.folder.resolve())}
        if first is not None:
            store.queue(0, first, "cold")  # before the settings, which say that the campaign is made
        store.set(plan=asdict(plan), images=images.tolist(), archive=where, size=len(archive))
        return cls(folder, store)

    @classmethod
    def open(cls, folder: Path) -> Campaign:
        return cls(folder, Store(folder / FILE))

    @classmethod
    def refuse_if_made(cls, folder: Path) -> None:
        if cls.is_made(folder):
            raise UsageError(f"{folder} already holds a campaign: go on with it, or give another --campaign.")

    @staticmethod
    def is_made(folder: Path) -> bool:
        """Whether ``create`` came to its end here."""
        if not (folder / FILE).exists():
            return False
        store = Store(folder / FILE)
        made = "plan" in store.settings()
        store.close()
        return made

    def close(self) -> None:
        self.store.close()

    def archive(self) -> Archive:
        """The archive, from what was kept of it when the campaign was made."""
        kept = Path(self._archive["folder"])
        beside = self.folder / "cache" / kept.name  # the campaign's folder may have been moved
        folder = beside if beside.exists() else kept
        return reopen(Path(self._archive["root"]), folder, self.plan.px)

    # -- the person ------------------------------------------------------------------------------

    def next_pair(self) -> tuple[int, int] | None:
        """The next question whose verdict is neither given nor implied; None when all are."""
        pairs = self.store.questions().pairs
        left = pairs[self.closure().relations.of(pairs) == UNKNOWN]
        return next(iter(left), None)

    def answer(self, a: int, b: int, verdict: Verdict, annotator: str = "me") -> None:
        """Safe on disk when this returns. A later answer on the same pair replaces this one."""
        self.answer_all(Pairs.of([a], [b]), [verdict], annotator)

    def answer_all(self, pairs: Pairs, verdicts: Sequence[int], annotator: str = "me") -> None:
        """Many answers in one step: all of them are kept, or none."""
        if len(pairs) and not (pairs.a.min() >= 0 and pairs.b.max() < self.size):
            raise UsageError(f"A pair names an image outside 0 … {self.size - 1}.")
        if not set(verdicts) <= {UNKNOWN, *Verdict}:
            raise UsageError("A verdict is 1 (similar), 2 (dissimilar), 3 (unsure), or 0 to take one back.")
        queue = self.store.questions()
        rows = [(a, b, int(v)) for (a, b), v in zip(pairs, verdicts, strict=True)]
        self.store.add_answers(rows, annotator=annotator, strategy=queue.strategy, round=queue.round)

    def undo(self, annotator: str = "me") -> tuple[int, int] | None:
        """Take back this annotator's last answer that stands; the pair, or None if there is none."""
        last = self.store.last_answer(annotator)
        if last is not None:
            self.answer_all(Pairs.of([last[0]], [last[1]]), [UNKNOWN], annotator)
        return last

    # -- what follows ------------------------------------------------------------------------------

    def evidence(self, upto: int | None = None) -> Answers:
        """All that is to be learnt from: the answers, and the pairs that class labels stand for; of all
        rounds, or of those up to this one."""
        labels = label_pairs(self.store.labels(upto), self.plan.rng(0))
        return self.store.answers(upto).then(labels)

    def closure(self) -> Closure:
        return CLOSURES[self.plan.closure](self.size, self.evidence())

    def standing(self) -> Standing:
        answers, closure = self.store.answers(), self.closure()
        relations = closure.relations
        similar, dissimilar, unsure = (len(answers.given(v)) for v in Verdict)
        pairs = self.store.questions().pairs
        return Standing(
            images=self.size,
            answers=len(answers),
            similar=similar,
            dissimilar=dissimilar,
            unsure=unsure,
            labels=len(self.store.labels()),
            implied=relations.implied(answers),
            contradictions=len(closure.contradictions),
            rounds=len(self.store.rounds()),
            queued=int((relations.of(pairs) == UNKNOWN).sum()),
        )

    # -- what the machine left ---------------------------------------------------------------------

    def round_folder(self, number: int) -> Path:
        return self.folder / "rounds" / f"{number:04d}"

    def vectors(self) -> Floats:
        """Every image in the metric space of the newest round; the frozen one before the first."""
        rounds = self.store.rounds()
        folder = self.round_folder(rounds[-1][0]) if rounds else self.folder / "rounds" / "frozen"
        try:
            loaded: Floats = np.load(folder / "vectors.npy", mmap_mode="r")
        except FileNotFoundError:
            raise CampaignError(f"{folder} has lost its vectors: run anneal round again.") from None
        return loaded


def label_pairs(labels: dict[int, str], rng: np.random.Generator) -> Answers:
    """The pairs that class labels stand for: for each labelled image up to four partners of its class
    and four of others, all among the labelled images."""
    images = np.array(sorted(labels), dtype=np.int64)
    classes = np.array([labels[i] for i in images.tolist()])
    a: list[int] = []
    b: list[int] = []
    verdicts: list[int] = []
    for i, own in zip(images, classes, strict=True):
        same = images[(classes == own) & (images != i)]
        for pool, verdict in (
            (same, Verdict.SIMILAR),
            (images[classes != own], Verdict.DISSIMILAR),
        ):
            partners = rng.permutation(pool)[:PARTNERS]
            a += [int(i)] * len(partners)
            b += partners.tolist()
            verdicts += [int(verdict)] * len(partners)
    return Answers.of(Pairs.of(a, b), verdicts)


def _one_of(option: str, value: str, choices: Any) -> None:
    if value not in choices:
        raise UsageError(f"{option} {value!r}: choose one of {', '.join(choices)}.")
