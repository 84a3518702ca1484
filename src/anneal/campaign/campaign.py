"""A campaign: the answers people gave, and what follows from them. No torch in here.

A campaign is a folder: ``campaign.sqlite`` (all that people said), ``cache/`` (pixels and frozen features)
and ``rounds/`` (the models and vectors of each round).
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from anneal.archive import thumbnails
from anneal.archive.catalog import Archive, folders_outside
from anneal.archive.growth import digest_of, files_of, stats, tiled
from anneal.campaign import trust
from anneal.campaign.evidence import Evidence, GrowingEvidence, answers_of, label_pairs
from anneal.campaign.holdings import Holdings
from anneal.campaign.inventory import Inventory, Near, Retired
from anneal.campaign.log import Log
from anneal.campaign.rounds import FROZEN
from anneal.campaign.store import MACHINE, Event, HeldOut, Mailbox, Purpose, Row, Store, Why
from anneal.campaign.tally import Tally
from anneal.errors import UsageError
from anneal.method.relations import CLOSURES, Known
from anneal.method.strategies import Strategy
from anneal.pairs import UNKNOWN, Answers, Ids, Pair, Pairs, Verdict
from anneal.settings import Settings, Stream
from anneal.words import count

FILE = "campaign.sqlite"
WORKER_LOCK = "worker.lock"  # held by the process that takes the machine's turns


def _html(campaign: "Campaign") -> str:
    """What a notebook shows of a campaign."""
    verdicts = campaign.tally().verdicts
    counts = ", ".join(f"{verdicts[verdict]} {verdict.name.lower()}" for verdict in Verdict)
    serving = campaign.rounds.serving
    model = "the frozen features serve" if serving == FROZEN else f"the model of round {serving} serves"
    text = f"Campaign {campaign.folder}: {count(len(campaign.images), 'image')}; answers: {counts}; {model}"
    return thumbnails.page(text, [])


class Campaign(Holdings):
    """An open campaign. What is read of it is cached until something new is said."""

    _repr_html_ = _html

    def __init__(self, folder: Path, store: Store, strategy: Strategy | str | None = None) -> None:
        super().__init__(folder, store)
        self.mailbox = Mailbox(store)
        self.id = str(store.setting("id", ""))  # one of its own, whatever the folder is called
        self.own_strategy = strategy if isinstance(strategy, str) else None  # as a person named it
        if isinstance(strategy, str):
            strategy = trust.strategy(self.settings, strategy)
        self._strategy = strategy
        self._closure = CLOSURES[self.settings.closure]

    @cached_property
    def strategy(self) -> Strategy:
        """Found when it is first needed: a campaign can be looked at without it."""
        return trust.strategy(self.settings, None) if self._strategy is None else self._strategy

    def _forget(self) -> None:
        """Nothing is read yet."""
        super()._forget()
        self._log = Log()
        self._tally = Tally()
        self._counted = 0  # changes of the log that are in the tally
        self._mark: tuple[int, int] | None = None  # of the store when the log was read
        self._labelled: tuple[int, Answers] = (0, Answers.none())  # number of the last label, pairs of all
        self._evidence: tuple[tuple[int, int, int], Evidence] | None = None
        self._growing: GrowingEvidence | None = None
        self._open_heldout: tuple[tuple[float, ...], list[Pair]] | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        archive: Archive,
        settings: Settings,
        images: Ids,
        heldout: HeldOut | None = None,
        strategy: Strategy | None = None,
        *,
        duplicates: Mapping[int, Retired] | None = None,
        near: Iterable[Near] | None = None,
        source: str = ".",
    ) -> Self:
        """A new campaign on ``archive`` that asks about ``images`` only, and of those not about
        ``duplicates``. ``near`` are those that show the same picture, if they were looked for. The ``source``
        is the folder or the manifest that the images were read from, relative to the root."""
        refuse_if_made(folder)
        store = Store(folder / FILE, create=True)
        root = archive.root.resolve()
        where = {"root": str(root), "folder": str(archive.folder.resolve())}
        where["beside"] = os.path.relpath(root, folder.resolve())
        inventory = Inventory(store)
        with store.transaction():
            if heldout is not None:
                store.add_heldout(heldout)
            store.set(id=uuid.uuid4().hex, archive=where, size=len(archive))
            store.set(sources=[source], compared=0 if near is None else len(archive))
            files = files_of(archive)
            store.set(folders=folders_outside(files))
            digests = {file: digest_of(root / file) for file in tiled(archive)}
            inventory.note_files(stats(root, files), digests)
            inventory.retire(duplicates or {})
            inventory.add_near(near or [])
            everything = len(images) == len(archive)
            store.set(settings=asdict(settings), images=None if everything else images.tolist())
        return cls(folder, store, strategy)

    @classmethod
    def open(cls, folder: Path | str, strategy: Strategy | str | None = None) -> Self:
        """The campaign in a folder. A strategy of its own, ``module:name``, must be named here to be used."""
        return cls(Path(folder), Store(Path(folder) / FILE), strategy)

    @staticmethod
    def is_made(folder: Path) -> bool:
        """Whether ``create`` came to its end here."""
        if not (folder / FILE).exists():
            return False
        store = Store(folder / FILE)
        made = "settings" in store.settings()
        store.close()
        return made

    def close(self) -> None:
        self.store.close()

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
        sheet: str | None = None,
        guess: int | None = None,
    ) -> int:
        """Give a verdict on a pair; it is on disk when this returns. Returns its row number. A later answer
        of the same annotator replaces it. An event with the same ``key`` is taken once. ``sheet`` and
        ``guess`` are those of the question."""
        pair = (min(a, b), max(a, b))
        self.check([pair], [verdict])
        with self.transaction() as log:
            strategy = self.settings.strategy if self._strategy is None else self._strategy.name
            number = self.rounds.current
            purpose = self._purpose(log, pair)
            event = Event(*pair, int(verdict), annotator, strategy, number, purpose, asked, looked, key)
            return self.store.add([replace(event, sheet=sheet, guess=guess)])[0]

    def _purpose(self, log: Log, pair: Pair) -> str:
        """What an answer to this pair is for: what it was given out for, else what its last one was for."""
        leased = self.store.leased_for(pair)
        if leased is not None:
            return leased
        if log.last_purpose(pair) is None and pair in self.rounds.heldout_pairs():
            return Purpose.HELD_OUT
        return log.purpose_of_repeat(pair)

    def check(self, pairs: Sequence[Pair], verdicts: Iterable[int]) -> None:
        """Refuse pairs of images that are not there, and unknown verdicts."""
        if any(not 0 <= a < b < self.size for a, b in pairs):
            raise UsageError(f"A pair is two different images from 0 to {self.size - 1}.")
        if not set(verdicts) <= {UNKNOWN, *Verdict}:
            raise UsageError("A verdict is 1 (similar), 2 (dissimilar), 3 (unsure), or 0 to withdraw one.")

    def label(
        self, labels: Iterable[tuple[int, str]], annotator: str = "folders", strategy: str = "import"
    ) -> None:
        """Give images their class."""
        self.store.add_labels(labels, annotator=annotator, strategy=strategy, round=self.rounds.current)

    def undo(
        self, annotator: str = "me", *, key: str | None = None, undoes: str | None = None
    ) -> Pair | None:
        """Take back the last act of this person, with all of its sheet, or the one sent with the key
        ``undoes`` and all later acts on its pair. What was said before stands again. Returns the pair, or
        None if there was nothing."""
        with self.transaction() as log:
            sent = None if key is None else log.sent(key)
            if sent is not None:  # a second time
                return sent.pair
            act = log.last_by(annotator) if undoes is None else log.sent(undoes)
            if act is None:
                return None
            acts = [one for one in log.acts(act.pair) if one.annotator == act.annotator and one.id >= act.id]
            if undoes is None:  # with what the machine made of it
                acts = [one for one in acts if one.id == act.id or one.entered == MACHINE]
                acts += [one for one in log.effort.on_sheet(act.sheet) if one not in acts]
            events = [replace(_event(one, UNKNOWN, annotator), undoes=one.id) for one in acts]
            if events:
                self.store.add([replace(events[0], key=key), *events[1:]])
            return act.pair

    def correct(self, number: int, verdict: int, by: str = "me", *, key: str | None = None) -> Pair:
        """Replace the verdict of a row, by any annotator; 0 withdraws it. Returns the pair."""
        with self.transaction() as log:
            row = log.row(number)
            if row is None:
                raise UsageError(f"There is no answer {number}: look at the list again.")
            self.check([row.pair], [verdict])
            event = replace(_event(row, int(verdict), by), key=key)
            if verdict == UNKNOWN and row.purpose == Purpose.AGAIN:
                event = replace(event, purpose=Purpose.CHOSEN)  # it is not to be asked again
            self.store.add([event])
            return row.pair

    def again(self, numbers: Iterable[int] | Mapping[int, Why], by: str = "me") -> int:
        """Withdraw these answers, so that their pairs are asked again, before others. Returns how many. A
        mapping gives the reason of each; without one it is that somebody wants it."""
        reasons = numbers if isinstance(numbers, Mapping) else dict.fromkeys(numbers, Why.REQUEST)
        with self.transaction() as log:
            named = [log.row(number) for number in sorted(reasons)]
            rows = [row for row in named if row is not None and log.is_standing(row)]
            current = self.rounds.current
            for row in rows:
                event = _event(row, UNKNOWN, by)
                why = reasons[row.id]
                self.store.add([replace(event, purpose=Purpose.AGAIN, round=current, why=why)])
            return len({row.pair for row in rows})

    def is_round_over(self) -> bool:
        """Whether a round's worth of answers came since the newest model, and there is something to learn."""
        enough = self.log().news(self.rounds.seen) >= self.settings.per_round
        return enough and self.known().count_groups(1) > 0

    @contextmanager
    def transaction(self) -> Iterator[Log]:
        """All or nothing, and nobody else writes meanwhile. What was read in vain is forgotten."""
        try:
            with self.store.transaction():
                yield self.log()
        except BaseException:
            self._forget()
            raise

    def log(self) -> Log:
        """All events so far; only new ones are read from disk. The pairs of new labels are drawn too."""
        mark = self.store.mark
        if mark is None or mark != self._mark:
            self._log.extend(self.store.events(self._log.newest))
            newest = self.store.newest_label()
            if newest != self._labelled[0]:
                drawn = label_pairs(self.store.labels(), self.settings.rng(Stream.LABEL_PAIRS))
                self._labelled = newest, drawn
            self._mark = mark
        return self._log

    def tally(self) -> Tally:
        """Counts of what stands."""
        changes = self.log().changes
        for change in changes[self._counted :]:
            self._tally.change(change)
        self._counted = len(changes)
        return self._tally

    def evidence(self) -> Evidence:
        """What is to be learnt from, and what follows from it, computed from all answers: for the machine's
        turn. Between two questions ``known`` costs less."""
        log = self.log()
        version = log.newest, self._labelled[0], self.size
        if self._evidence is None or self._evidence[0] != version:
            rows = [row for row in log.standing() if row.purpose != Purpose.HELD_OUT]
            labels = self._labelled[1]
            rounds = np.array([row.round for row in rows] + [-1] * len(labels), dtype=np.int64)
            answers = answers_of(rows).then(labels)
            self._evidence = version, Evidence(rows, answers, rounds, self._closure(self.size, answers))
        return self._evidence[1]

    def known(self) -> Known:
        """What is known about pairs. With the full closure one more answer costs the same however many there
        were before."""
        if self.settings.closure != "full":
            return self.evidence().closure.relations
        return self.growing().closure

    def growing(self) -> GrowingEvidence:
        """What the full closure of the answers gives, kept up answer by answer."""
        log = self.log()
        newest, labels = self._labelled
        size = self.size
        growing = self._growing
        if growing is None or growing.newest_label != newest or len(growing.closure) != size:
            growing = GrowingEvidence(size, newest, labels)
        growing.follow(log)
        self._growing = growing
        return growing

    @contextmanager
    def supposing(self, released: Sequence[Row]) -> Iterator[Known]:
        """What is known as if these held-out answers were learnt from."""
        if self.settings.closure == "full":
            closure = self.growing().closure
            for row in released:
                closure.add(row.id, row.pair, row.verdict)
            yield closure
            for row in released:
                closure.remove(row.id)
        elif released:
            yield self._closure(self.size, self.evidence().answers.then(answers_of(released))).relations
        else:
            yield self.known()

    def contradictions(self) -> list[list[Row]]:
        """Sets of answers that cannot all be true; pairs of class labels are left out."""
        if self.settings.closure == "full":
            log = self.log()
            found = self.growing().closure.contradictions
            return [[row for key in keys if (row := log.row(key)) is not None] for keys in found]
        evidence = self.evidence()
        given = evidence.rows
        return [[given[i] for i in rows if i < len(given)] for rows in evidence.closure.contradictions]

    def open_heldout(self, known: Known) -> list[Pair]:
        """Held-out pairs without an answer, given or implied, in the order drawn. As long as no answer is
        taken back, a pair that was not open stays so."""
        version = (*self.rounds.version, self.tally().removals, self._labelled[0])
        pairs: Iterable[Pair] = self.rounds.heldout_pairs()
        if self._open_heldout is not None and self._open_heldout[0] == version:
            pairs = self._open_heldout[1]
        pairs = [pair for pair in pairs if not self._log.standing_on(pair)]
        verdicts = known.of(Pairs.from_list(pairs)).tolist()
        unknown = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict == UNKNOWN]
        self._open_heldout = version, unknown
        return unknown


def refuse_if_made(folder: Path) -> None:
    if Campaign.is_made(folder):
        raise UsageError(f"{folder} already holds a campaign: go on with it, or give another --campaign.")


def _event(row: Row, verdict: int, by: str) -> Event:
    """A new verdict on the same pair and in the same name, entered by this person."""
    entered = None if by == row.annotator else by
    return Event(row.a, row.b, verdict, row.annotator, row.strategy, row.round, row.purpose, entered=entered)
