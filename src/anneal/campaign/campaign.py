"""The person's turn: the next pairs, an answer, an undo, and what follows. No torch in here.

A campaign is a folder: ``campaign.sqlite`` (everything a person said), ``cache/`` (pixels and frozen
features) and ``rounds/`` (the model and the vectors of each round).
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from anneal.archive.catalog import Archive, reopen
from anneal.campaign.store import AUDIT, EVER, IMPORT, MACHINE, Audit, Event, Questions, Row, Store
from anneal.errors import CampaignError, UsageError
from anneal.method import placing, suspects
from anneal.method.mining import pairwise
from anneal.method.relations import CLOSURES, Closure, Relations
from anneal.method.strategies import Order, Snapshot, Strategy, cold, strategies
from anneal.method.uncertainty import balanced
from anneal.pairs import UNKNOWN, Answers, Floats, Ids, Pairs, Verdict
from anneal.settings import Plan

FILE = "campaign.sqlite"
WORKER_LOCK = "worker.lock"  # held by whoever takes the machine's turns
PARTNERS = 4  # similar and dissimilar partners of an image whose class is given, as in the paper
MANY = 10_000  # images among which partners are drawn one by one: shuffling them all would take too long
FROZEN = -1  # the number of the model before the first round
LEASE = 300.0  # seconds a pair is kept for whoever has it on the screen
RECENT = 50  # answers whose share of similar ones is watched
SLACK = 0.2  # around the share that is aimed at
BEFORE = {"recheck": 0.0, "presume": 0.0}  # of campaigns that were made before there was such a thing
FEW = 50  # pairs that are read one by one
Pair = tuple[int, int]


class Campaign:
    """An open campaign."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self._closure: tuple[Any, Closure] | None = None
        self._known: tuple[int, Relations] | None = None
        self._least: tuple[int, float] | None = None
        self._rows: tuple[int, list[Row]] = 0, []
        self._labelled: tuple[Any, Answers] | None = None
        self._vectors: tuple[int, Floats] | None = None
        self._orders: tuple[int, Order] | None = None
        saved = store.settings()
        try:
            known = {field.name for field in fields(Plan)}
            plan = {k: v for k, v in {**BEFORE, **saved["plan"]}.items() if k in known}
            if "widths" in plan:
                plan["widths"] = tuple(plan["widths"])  # JSON knows lists only
            self.plan = Plan(**plan)
            self.images: Ids = np.array(saved["images"], dtype=np.int64)
            self._archive = saved["archive"]
            self.size = int(saved["size"])  # images in the archive
            self.id = str(saved.get("id", ""))  # tells it from any other, whatever the folder is called
        except KeyError:
            raise CampaignError(
                f"{folder} holds a campaign that was never finished being made: run init again."
            ) from None
        found = strategies().get(self.plan.strategy)
        self._placing: Strategy | None = found if found is not None and found.order is not None else None

    @property
    def one_by_one(self) -> bool:
        """Whether each question is made in the light of the answers before it, not a batch at a time."""
        return self._placing is not None

    @classmethod
    def create(
        cls,
        folder: Path,
        archive: Archive,
        plan: Plan,
        images: Ids,
        first: Questions | None = None,
        audit: Audit | None = None,
    ) -> Campaign:
        """A new campaign on ``archive`` that asks about ``images`` only, ``first`` these questions."""
        cls.refuse_if_made(folder)
        store = Store(folder / FILE, create=True)
        where = {"root": str(archive.root.resolve()), "folder": str(archive.folder.resolve())}
        if first is not None:  # before the settings, which say that the campaign is made
            store.queue(first)
        if audit is not None:
            store.add_audit(audit)
        made = {"plan": asdict(plan), "images": images.tolist(), "archive": where, "size": len(archive)}
        store.set(**made, id=uuid.uuid4().hex)
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

    def next_pair(self) -> Pair | None:
        """The next question whose verdict is neither given nor implied; None when all are."""
        with self._alone() if self.one_by_one else nullcontext():
            return next(iter(self._open("me", "", 1)), None)

    def take(self, annotator: str, holder: str, n: int, shown: Sequence[Pair] = ()) -> list[Pair]:
        """The next n questions for this person at this screen, kept for it for a while: nobody else is
        asked them meanwhile. First those that are ``shown`` there and those it has; where the queue has
        run dry while the machine learns, more are made up. What may have been a slip is asked again."""
        with self._alone():
            if self.has_vectors():
                self.second_look(self.vectors(), self._against())
            had = [(a, b) for a, b, whose in self.store.leases() if whose == holder]
            open_ = self._open(annotator, holder, n, (*shown, *had))
            if len(open_) < n and self._fill():
                open_ = self._open(annotator, holder, n, (*shown, *had))
            still = set(open_)
            first = [pair for pair in (*shown, *had) if pair in still]
            taken = list(dict.fromkeys([*first, *open_]))[:n]
            if taken != had:
                self.store.lease(taken, holder, LEASE)
            return taken

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else writes meanwhile. What was read of a step that came to nothing is forgotten."""
        try:
            with self.store.alone():
                yield
        except BaseException:
            self._rows, self._closure = (0, []), None
            raise

    def renew(self, holder: str) -> None:
        """This screen is still there."""
        self.store.renew(holder, LEASE)

    def _open(self, annotator: str, holder: str, n: int, first: Sequence[Pair] = ()) -> list[Pair]:
        """The questions this person may be asked now, in order. Where each is made in the light of the
        answers before it, n of them, with ``first`` those that are on the screen."""
        held = {(a, b) for a, b, whose in self.store.leases() if whose != holder}
        if self._placing is None:
            queue, open_ = self._queue(held)
            fresh = list(self._steer(queue, open_))
        else:
            fresh = self._made(held, n, first)
        overlap = self.overlap
        if not overlap:
            return fresh
        judged: dict[Pair, set[str]] = defaultdict(set)
        for row in self.said():
            judged[row.a, row.b].add(row.annotator)
        second = [  # what one person has judged and another is to judge too
            pair
            for pair, people in judged.items()
            if len(people) == 1
            and annotator not in people
            and pair not in held
            and self._twice(pair, overlap)
        ]
        every = max(round(1 / overlap), 1)  # so many questions, one of which is such a one
        for i, pair in enumerate(second):
            fresh.insert(i * every, pair)
        return fresh

    def _queue(self, held: set[Pair]) -> tuple[Questions, NDArray[np.bool_]]:
        """The queue, and which of it is neither judged nor ``held`` by others, nor known but for what is to
        be asked again: of a contradiction each part is implied by the others."""
        queue = self.store.questions()
        closed = held | {(row.a, row.b) for row in self.said()}
        again = {(row.a, row.b) for row in self.store.waiting()}
        free = np.array([pair not in closed for pair in queue.pairs], dtype=bool)
        wanted = np.array([pair in again for pair in queue.pairs], dtype=bool)
        return queue, free & (wanted | (self.closure().relations.of(queue.pairs) == UNKNOWN))

    def _made(self, held: set[Pair], n: int, first: Sequence[Pair]) -> list[Pair]:
        """n questions: those that are on the screen, then chosen ones, which are made when they are missing,
        with one drawn by lot in so many; the others of the lot where there is nothing to choose."""
        while True:
            queue, open_ = self._queue(held)
            drawn = {pair for pair, lot in zip(queue.pairs, queue.audit, strict=True) if lot}
            there = {pair: None for pair, free in zip(queue.pairs, open_, strict=True) if free}
            mine = [pair for pair in dict.fromkeys(first) if pair in there]
            free = [pair for pair in there if pair not in mine]
            lot, chosen = [p for p in free if p in drawn], [p for p in free if p not in drawn]
            given = len(queue) - len(free), len(drawn) - len(lot)
            listed, missing = with_lot(lot, chosen, given, self.plan.audit, n - len(mine))
            asked = pairs_of(pair for pair in {**there, **dict.fromkeys(held)} if pair not in drawn)
            if not missing or not self._place(missing, asked, queue.round):
                return list(dict.fromkeys([*mine, *listed, *lot]))

    def _place(self, n: int, asked: Pairs, number: int) -> bool:
        """Put up n more questions of a round, chosen in the light of all answers so far; whether there were
        any. Images that are being placed by what is ``asked`` already are left out. What is chosen and has
        an answer that is held back is learnt from, not asked again."""
        order = self._order()
        if self._placing is None or self._placing.select is None or order is None or not self.has_vectors():
            return False
        known, rows = self.closure().relations, self.said()
        now = Snapshot(self.vectors(), self.images, known, order=placing.without(order, known, asked))
        answers = sum(row.round == number and row.strategy != AUDIT for row in rows)
        found = self._placing.select(now, n + len(asked), self.plan.rng(7, number, answers))
        closed = {*asked, *((row.a, row.b) for row in rows if row.strategy != AUDIT)}
        new = [pair for pair in found if pair not in closed][:n]
        released = self.release(Questions.of(pairs_of(new), number, self.plan.strategy))
        fresh = pairs_of(pair for pair in new if pair not in released)
        self.store.queue_more(Questions.of(fresh, number, self.plan.strategy))
        return len(new) > 0

    def release(self, chosen: Questions) -> set[Pair]:
        """Answers that were held back on pairs that are now chosen to be learnt from: they are, from now on,
        and nobody is asked again. Else the pairs that measure would be just those nobody cared to ask."""
        wanted = set(chosen.pairs)
        held = [row for row in self.said() if row.strategy == AUDIT and (row.a, row.b) in wanted]
        self.store.add(
            Event(row.a, row.b, row.verdict, row.annotator, chosen.strategy, chosen.round, entered=MACHINE)
            for row in held
        )
        return {(row.a, row.b) for row in held}

    def _steer(self, queue: Questions, open_: NDArray[np.bool_]) -> Pairs:
        """The open questions in their order; where the latest answers were similar too often or too
        seldom, those that are expected to mend it come first. Questions drawn by lot keep their place."""
        rows = np.flatnonzero(open_)
        share, aim = self.share(), self.aim
        if share is None or aim is None or aim[0] <= share <= aim[1] or not self.has_vectors():
            return queue.pairs[rows]
        free = ~queue.audit[rows]
        if free.any():
            s = pairwise(self.vectors(), queue.pairs[rows[free]]) * (-1 if share > aim[1] else 1)
            rows[free] = rows[free][np.argsort(s < np.median(s), kind="stable")]
        return queue.pairs[rows]

    def _twice(self, pair: Pair, overlap: float) -> bool:
        """Whether two people are to judge this pair, to see whether they agree: this share of all, by lot."""
        mixed = (pair[0] * 0x9E3779B1 + pair[1] * 0x85EBCA77 + self.plan.seed) % 2**32
        return (mixed ^ (mixed >> 15)) * 0x2C1B3C6D % 2**32 < overlap * 2**32

    def _fill(self, n: int = 12) -> bool:
        """Put up some more questions, made without the machine: near and far neighbours as at the start."""
        if not self.has_vectors():
            return False
        queue = self.store.questions()
        rng = self.plan.rng(4, queue.round, len(queue))
        snapshot = Snapshot(self.vectors(), self.images, self.closure().relations)
        found, asked = cold(snapshot, n, rng), set(queue.pairs)
        new = found[np.array([pair not in asked for pair in found], dtype=bool)]
        self.store.queue_more(Questions.of(new, queue.round, "cold"))
        return len(new) > 0

    @property
    def overlap(self) -> float:
        """The share of questions that two people are asked."""
        return float(self.store.setting("overlap", 0.0))

    @property
    def criterion(self) -> str:
        """What the owner means by similar, in a few words."""
        return str(self.store.setting("criterion", ""))

    @property
    def aim(self) -> tuple[float, float] | None:
        """The share of similar answers that is aimed at, from … to; None where it is let alone."""
        share = 0.0 if self.one_by_one else self.plan.share
        return (round(max(share - SLACK, 0.05), 3), round(min(share + SLACK, 0.95), 3)) if share else None

    def lean(self, level: float) -> float:
        """How far from MGUE's threshold, which lies at ``level``, to ask next, for the share of similar
        answers to be what is aimed at. The first answers span all levels and tell it outright; after that
        the lean follows the share, gently, and only if two rounds in a row missed it to the same side: late
        in a campaign similar and dissimilar pairs lie so far apart that a small step goes from one to the
        other."""
        if self.aim is None or math.isnan(level):
            return 0.0
        rounds = self.store.rounds()
        if not rounds:
            seen, verdicts = self.store.levels()
            if len(seen) < 10:
                return 0.0
            similar = np.array(verdicts) == Verdict.SIMILAR
            high, low = (balanced(np.array(seen), similar, share) for share in self.aim)
            return max(math.log(min(max(level, low), high) / level), 0.0)
        before = float(rounds[-1][1].get("lean", 0.0))
        last, one_before = (self._excess(rounds[-1][0] + back) for back in (1, 0))
        excess = min(last, one_before) if last > 0 else max(last, one_before)  # of both, if to the same side
        lasting = excess if last * one_before > 0 else 0.0
        return max(0.5 * before + min(max(0.25 * lasting, -0.5), 0.5), 0.0)

    def _excess(self, number: int) -> float:
        """How far a round's share of similar answers lies above what is aimed at, or below, in logits."""
        assert self.aim is not None
        said = [verdict for round_, verdict in self.settled() if round_ == number]
        share = (said.count(Verdict.SIMILAR) + 1) / (len(said) + 2)
        return float(logit(share) - logit(min(max(share, self.aim[0]), self.aim[1])))

    def settled(self) -> list[tuple[int, int]]:
        """Round and verdict of the answers to chosen questions that say similar or dissimilar."""
        said = ((row.round, row.verdict) for row in self.said() if row.strategy != AUDIT)
        return [(number, verdict) for number, verdict in said if verdict != Verdict.UNSURE]

    def share(self) -> float | None:
        """Similar ones among the latest answers to questions that were chosen; None before there are ten."""
        last = [verdict for _, verdict in self.settled()[-RECENT:]]
        return last.count(Verdict.SIMILAR) / len(last) if len(last) >= 10 else None

    def answer(
        self,
        a: int,
        b: int,
        verdict: Verdict | int,
        annotator: str = "me",
        *,
        key: str | None = None,
        asked: float | None = None,
        looked: int | None = None,
    ) -> int:
        """Safe on disk when this returns; its row. A later answer on the same pair replaces this one; the
        same ``key`` is taken once only."""
        pair = Pairs.of([a], [b])
        queue = self.store.questions()
        asker = self.store.question(*next(iter(pair)))
        round_, strategy = (queue.round, queue.strategy or self.plan.strategy) if asker is None else asker
        (event,) = self._events(pair, [verdict], annotator, strategy, round_)
        return self.store.add([replace(event, key=key, asked=asked, looked=looked)])[0]

    def answer_all(
        self, pairs: Pairs, verdicts: Sequence[int], annotator: str = "me", strategy: str | None = None
    ) -> None:
        """Many answers in one step: all of them are kept, or none."""
        queue = self.store.questions()
        strategy = strategy or queue.strategy or self.plan.strategy
        self.store.add(self._events(pairs, verdicts, annotator, strategy, queue.round))

    def _events(
        self, pairs: Pairs, verdicts: Sequence[int], annotator: str, strategy: str, round: int
    ) -> list[Event]:
        if len(pairs) and not (pairs.a.min() >= 0 and pairs.b.max() < self.size):
            raise UsageError(f"A pair names an image outside 0 … {self.size - 1}.")
        if not set(verdicts) <= {UNKNOWN, *Verdict}:
            raise UsageError("A verdict is 1 (similar), 2 (dissimilar), 3 (unsure), or 0 to take one back.")
        return [
            Event(a, b, int(v), annotator, strategy, round) for (a, b), v in zip(pairs, verdicts, strict=True)
        ]

    def label(self, labels: Iterable[tuple[int, str]], annotator: str = "folders") -> None:
        """Classes of images that are known already."""
        number = self.store.questions().round
        self.store.add_labels(labels, annotator=annotator, strategy=IMPORT, round=number)

    def undo(
        self, annotator: str = "me", *, key: str | None = None, undoes: str | None = None
    ) -> Pair | None:
        """Take back what this person did last and has not taken back, or what went by the key ``undoes``;
        what was said before it stands again. The pair, or None if there was nothing to take back."""
        if key is not None and (done := self.store.row_of(key)) is not None:
            row = self.store.row(done)  # sent a second time
            return None if row is None else (row.a, row.b)
        if undoes is None:
            row = self.store.last_act(annotator)
            acts = [] if row is None else self.store.acts_on(row)
            rows = acts[:1] + [act for act in acts[1:] if act.entered == MACHINE]  # what was made of it
        else:  # and with it whatever was said of the pair after it
            number = self.store.row_of(undoes)
            row = None if number is None else self.store.row(number)
            rows = [] if row is None else self.store.acts_on(row)
        if row is None:
            return None
        events = [
            Event(
                act.a,
                act.b,
                UNKNOWN,
                act.annotator,
                act.strategy,
                act.round,
                undoes=act.id,
                entered=annotator if annotator != act.annotator else None,
            )
            for act in rows
        ]
        if events:
            self.store.add([replace(events[0], key=key), *events[1:]])
        return row.a, row.b

    def correct(self, number: int, verdict: int, by: str = "me", *, key: str | None = None) -> Pair:
        """Replace a row's verdict, whosever word it was; 0 withdraws it. The pair."""
        row = self.store.row(number)
        if row is None:
            raise UsageError(f"There is no answer {number}: look at the list again.")
        (event,) = self._events(Pairs.of([row.a], [row.b]), [verdict], row.annotator, row.strategy, row.round)
        entered = by if by != row.annotator else None
        self.store.add([replace(event, key=key, entered=entered)])
        return row.a, row.b

    def again(self, numbers: Sequence[int], by: str = "me") -> int:
        """Withdraw these answers and ask their pairs anew, before all others; how many."""
        wanted = set(numbers)
        rows = [row for row in self.said() if row.id in wanted]
        pairs = list(dict.fromkeys((row.a, row.b) for row in rows))
        strategies = {(row.a, row.b): row.strategy for row in rows}
        number = self.store.questions().round
        with self.store.alone():
            self.store.add(
                Event(
                    row.a,
                    row.b,
                    UNKNOWN,
                    row.annotator,
                    row.strategy,
                    number,
                    entered=by if by != row.annotator else None,
                )
                for row in rows
            )
            asked = Questions(pairs_of(pairs), number, tuple(strategies[pair] for pair in pairs))
            self.store.queue_more(asked, first=True)
        return len(pairs)

    def second_look(self, vectors: Floats, against: Iterable[Pair] = ()) -> list[Pair]:
        """The pairs that are to be asked again: answers that may be slips (``slips``) are withdrawn, as soon
        as none is waiting. ``vectors`` is the space this round is asked in, which has not learnt from its
        answers; ``against`` are the pairs on which the frozen features speak against an earlier answer."""
        if not self.plan.recheck:
            return []
        queue = self.store.questions()
        if waiting := self.store.waiting():
            queued = set(queue.pairs)
            lost = [row for row in waiting if (row.a, row.b) not in queued]  # since another round
            if lost:
                names = tuple(row.strategy for row in lost)
                pairs = pairs_of((row.a, row.b) for row in lost)
                self.store.queue_more(Questions(pairs, queue.round, names), first=True)
        elif rows := self._suspects(vectors, against, queue.round):
            self.again(rows, by=MACHINE)
            waiting = self.store.waiting()
        return [(row.a, row.b) for row in waiting]

    def _suspects(self, vectors: Floats, against: Iterable[Pair], number: int) -> list[int]:
        """Rows that may be slips, and have not been settled by asking again."""
        ours = [row for row in self.said() if row.strategy not in (AUDIT, IMPORT)]
        last = list({(row.a, row.b): row for row in ours if row.round == number}.values())
        fresh, earlier, odd = _answers(last), self.store.doubted(), list(against)
        chance = suspects.chances(vectors, fresh, fresh)
        joined = suspects.joins(self.before(number), fresh)
        doubted = [row for row in last if (row.a, row.b) in earlier]  # asked again: alike this time?
        if self._least is None or self._least[0] != number:  # the same all through a round
            self._least = number, self.plan.recheck * self._paying(number)
        doubted += [last[i] for i in suspects.suspects(chance, joined, self._least[1])]
        found = [row.id for row in doubted if not self._sure(row, 1, earlier)]
        for rows in self.contradictions():
            if len({(row.a, row.b) for row in rows}) < len(rows):
                continue  # two people disagree about a pair: that is for them to settle
            chance = suspects.chances(vectors, _answers(rows), fresh)
            leads = [self._lead(row, earlier) for row in rows]
            order = sorted(zip(leads, chance, [-row.id for row in rows], rows, strict=True))
            open_ = [row.id for *_, row in order if not self._sure(row, 3, earlier)]
            found += open_[:1]  # of like ones the newest
        if not found and odd:  # one at a time
            rows_of = {(row.a, row.b): row for row in ours if (row.a, row.b) not in earlier}
            found = [rows_of[pair].id for pair in odd if pair in rows_of][:1]
        return list(dict.fromkeys(found))

    def _sure(self, row: Row, lead: int, doubted: Set[Pair]) -> bool:
        """Whether a pair need not be asked again: it was, and what stands has been said so much more often
        than anything else, or is that nobody can tell; or it was asked so often that it will not be told."""
        times = len(self._given(row))
        enough = row.verdict == Verdict.UNSURE or self._lead(row, doubted) >= lead
        return times > 1 and (enough or times > 2 * lead)

    def _lead(self, row: Row, doubted: Set[Pair]) -> int:
        """How much more often a pair was given the verdict that stands than another. Who corrects themselves
        has thought about it twice."""
        given = self._given(row)
        if (row.a, row.b) not in doubted:
            return min(len(given), 2)
        return 2 * given.count(row.verdict) - len(given)

    def _given(self, row: Row) -> list[int]:
        """All that was ever said of a pair, in order."""
        acts = self.store.acts_about(row.a, row.b)
        return [act.verdict for act in acts if act.verdict and act.entered != MACHINE]

    def against(self, told: Answers, known: Relations, frozen: Floats, before: int = EVER) -> Pairs:
        """Pairs of which the frozen features speak against what was said before a round, and which have not
        been asked again: the strangest, about a quarter of a round at most, and fewer where asking again has
        seldom brought out a slip. Whoever is careful is hardly asked."""
        found = suspects.against(frozen, told, known, self.store.doubted(before))
        return found[: math.ceil(self.plan.per_round / 4 * self._paying(before))]

    def _paying(self, before: int) -> float:
        """How much of the asking again is to go on, going by what it brought before a round."""
        return suspects.paying(len(self.store.doubted(before)), self.store.overturned(before))

    def before(self, number: int) -> Relations:
        """What was known before a round."""
        if self._known is None or self._known[0] != number:
            told = self.evidence(number - 1) if number else Answers.none()
            self._known = number, CLOSURES[self.plan.closure](self.size, told).relations
        return self._known[1]

    # -- what follows ------------------------------------------------------------------------------

    def evidence(self, upto: int | None = None) -> Answers:
        """All that is to be learnt from: the answers but for those that are held back, and the pairs that
        class labels stand for; of all rounds, or of those up to this one."""
        if upto is None:
            told = _answers([row for row in self.said() if row.strategy != AUDIT])
        else:
            told = self.store.answers(upto, held_back=False)
        return told.then(self._label_pairs(upto))

    def _label_pairs(self, upto: int | None) -> Answers:
        version = upto, self.store.newest_label()
        if self._labelled is None or self._labelled[0] != version:
            self._labelled = version, label_pairs(self.store.labels(upto), self.plan.rng(0))
        return self._labelled[1]

    def closure(self) -> Closure:
        """What follows from the answers, made once for as long as nothing new is said."""
        if self._closure is None or self._closure[0] != self._version():
            self._closure = self._version(), CLOSURES[self.plan.closure](self.size, self.evidence())
        return self._closure[1]

    def said(self) -> list[Row]:
        """What stands, in order; of what was read before only the pairs that were touched since are read."""
        newest, (before, rows) = self.store.newest(), self._rows
        if newest != before:
            touched = self.store.touched(before)
            if len(touched) > FEW:
                self._rows = newest, self.store.standing()
            else:
                still = [row for row in rows if (row.a, row.b) not in touched]
                new = [row for pair in touched for row in self.store.standing_about(*pair)]
                self._rows = newest, sorted(still + new, key=lambda row: row.id)
        return self._rows[1]

    def _version(self) -> tuple[int, int]:
        return self.store.newest(), self.store.newest_label()

    def contradictions(self) -> list[list[Row]]:
        """Sets of answers that cannot all be true. (Pairs that class labels stand for are not shown.)"""
        found = self.closure().contradictions
        rows = [row for row in self.said() if row.strategy != AUDIT] if found else []
        return [[rows[i] for i in one.rows if i < len(rows)] for one in found]

    # -- what the machine left ---------------------------------------------------------------------

    def round_folder(self, number: int) -> Path:
        return self.folder / "rounds" / ("frozen" if number == FROZEN else f"{number:04d}")

    def vectors(self) -> Floats:
        """Every image in the metric space of the model in service; the frozen one before the first."""
        return self.vectors_of(self.serving())

    def serving(self, before: int = EVER) -> int:
        """The number of the model in service: the newest one, or an earlier one where the held-back answers
        say that the newest is worse; now, or as it was ``before`` a round."""
        rounds = [(number, about) for number, about in self.store.rounds() if number < before]
        return int(rounds[-1][1].get("serves", rounds[-1][0])) if rounds else FROZEN

    def newest(self) -> int:
        """The number of the newest model, in service or not."""
        rounds = self.store.rounds()
        return rounds[-1][0] if rounds else FROZEN

    def has_vectors(self) -> bool:
        """Whether they are there: without them answering goes on all the same."""
        return (self.round_folder(self.serving()) / "vectors.npy").exists()

    def _against(self) -> Pairs:
        """The pairs on which the frozen features speak against what was said before the newest round."""
        file = self.round_folder(self.newest()) / "against.npy"
        return Pairs(*np.load(file).T) if file.exists() else Pairs.none()

    def _order(self) -> Order | None:
        """What the newest round wants to ask about; None if that is lost."""
        newest = self.newest()
        if self._orders is None or self._orders[0] != newest:
            names = ("joins", "order", "beside")
            kept = {n: np.load(f) for n in names if (f := self.round_folder(newest) / f"{n}.npy").exists()}
            if not {"joins", "order"} <= kept.keys():
                return None
            order = Order(Pairs(*kept["joins"].T), kept["order"])  # as earlier versions left it …
            self._orders = newest, replace(order, beside=kept["beside"]) if "beside" in kept else order
        return self._orders[1]

    def vectors_of(self, model: int) -> Floats:
        if self._vectors is None or self._vectors[0] != model:
            folder = self.round_folder(model)
            try:
                self._vectors = model, np.load(folder / "vectors.npy", mmap_mode="r")
            except FileNotFoundError:
                raise CampaignError(f"{folder} has lost its vectors: run anneal round again.") from None
        return self._vectors[1]


def _answers(rows: Sequence[Row]) -> Answers:
    return Answers.of(pairs_of((row.a, row.b) for row in rows), [row.verdict for row in rows])


def with_lot(
    lot: Sequence[Pair], chosen: Sequence[Pair], given: tuple[int, int], share: float, n: int
) -> tuple[list[Pair], int]:
    """The next n questions of a round of which so many were ``given`` already, and so many of these were
    drawn by lot: chosen ones, and one of the lot in as many as its share says. And how many are missing
    because there are no chosen ones left."""
    (before, drawn), left, more = given, list(lot), list(chosen)
    found: list[Pair] = []
    missing = 0
    for place in range(before, before + n):
        if left and drawn + 0.5 <= share * place:
            found.append(left.pop(0))
            drawn += 1
        elif more:
            found.append(more.pop(0))
        else:
            missing += 1
    return found, missing


def pairs_of(pairs: Iterable[Pair]) -> Pairs:
    listed = list(pairs)
    return Pairs.of(*zip(*listed, strict=True)) if listed else Pairs.none()


def label_pairs(labels: dict[int, str], rng: np.random.Generator) -> Answers:
    """The pairs that class labels stand for: for each labelled image up to four partners of its class
    and four of others, all among the labelled images."""
    images = np.array(sorted(labels), dtype=np.int64)
    classes = np.array([labels[i] for i in images.tolist()])
    pools = {own: (images[classes == own], images[classes != own]) for own in np.unique(classes).tolist()}
    a: list[int] = []
    b: list[int] = []
    verdicts: list[int] = []
    for i, own in zip(images.tolist(), classes.tolist(), strict=True):
        same, others = pools[own]
        for pool, verdict in ((same[same != i], Verdict.SIMILAR), (others, Verdict.DISSIMILAR)):
            partners = rng.permutation(pool)[:PARTNERS] if len(pool) < MANY else rng.choice(pool, PARTNERS)
            a += [i] * len(partners)
            b += partners.tolist()
            verdicts += [int(verdict)] * len(partners)
    return Answers.of(Pairs.of(a, b), verdicts)
