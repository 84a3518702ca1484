"""Which pair comes next, and for whom.

``arrange`` decides, as a pure function; a sheet (``method.sheets``) counts as one question. ``take`` reads
what it needs from the campaign, calls it once, and writes what came out. ``next_question`` is ``take`` for
one question of the current round.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.campaign.evidence import answers_of
from anneal.campaign.log import Log, is_given
from anneal.campaign.recheck import withdraw_suspects
from anneal.campaign.store import MACHINE, Event, Lease, Purpose, Row
from anneal.method.relations import Known
from anneal.method.snapshot import Snapshot
from anneal.pairs import UNKNOWN, Pair, Pairs, Verdict
from anneal.settings import Stream

LATEST = 200  # answers that a strategy sees when it picks
LEASE = 300.0  # seconds for which a pair is kept for the person who has it on the screen


@dataclass(frozen=True)
class Question:
    pair: Pair
    purpose: str
    sheet: str | None = None  # the sheet that the pair is shown on, with others
    guess: int | None = None  # the verdict that is marked there


@dataclass(frozen=True)
class Askable:
    """What may be asked of one person now."""

    mine: list[Question]  # on this person's screen already
    others: list[Question]  # on other screens
    again: list[Question]  # to be asked once more
    second: list[Question]  # one person answered it, a second one is wanted
    heldout: list[Pair]  # drawn at random and not answered yet
    answered: list[str]  # the purpose of each answer of this round so far


def arrange(
    askable: Askable,
    pick: Callable[[int], list[Pair]],
    n: int,
    share: float,
    overlap: float,
    sheet: Callable[[], list[Question]] = list,
) -> list[Question]:
    """The next n questions, fewer only if there are no more, or if a sheet is the last of them: what follows
    depends on it.

    First what is on the screen and what is asked again, then second opinions, then the ``sheet`` if there is
    one, else what ``pick`` chooses, with held-out questions mixed in evenly at their ``share``.
    """
    second = askable.second[: math.ceil(n * overlap)]  # they are sampled already; not all at once
    by_pair: dict[Pair, Question] = {}
    for question in (*askable.mine, *askable.again, *second):
        by_pair.setdefault(question.pair, question)
    first = _first(by_pair.values(), n)
    taken = {question.pair for question in first}
    heldout = [pair for pair in askable.heldout if pair not in taken]
    before = askable.answered + [question.purpose for question in (*askable.others, *first)]
    so_far = before.count(Purpose.HELD_OUT)
    slots = _heldout_slots(len(before), so_far, len(heldout), n - _count(first), share)
    tiles = sheet() if False in slots else []
    if tiles:
        shown = {tile.pair for tile in tiles}
        before_it = slots.index(False)
        measured = [pair for pair in heldout if pair not in shown][:before_it]
        return [*first, *(Question(pair, Purpose.HELD_OUT) for pair in measured), *tiles]
    chosen = pick(slots.count(False)) if False in slots else []
    if not set(heldout).isdisjoint(chosen):  # a pair that is both counts as chosen
        chosen = pick(len(slots))  # enough for every slot: there may be no other held-out pair
        heldout = [pair for pair in heldout if pair not in set(chosen)]
    later: list[Question] = []
    for is_heldout in slots:
        if heldout and (is_heldout or not chosen):
            later.append(Question(heldout.pop(0), Purpose.HELD_OUT))
        elif chosen:
            later.append(Question(chosen.pop(0), Purpose.CHOSEN))
    return first + later


def _first(questions: Iterable[Question], n: int) -> list[Question]:
    """The first n, where a sheet counts as one."""
    first: list[Question] = []
    for question in questions:
        if _count([*first, question]) > n:
            break
        first.append(question)
    return first


def _count(questions: Sequence[Question]) -> int:
    sheets = {question.sheet for question in questions if question.sheet is not None}
    return len(sheets) + sum(question.sheet is None for question in questions)


def _heldout_slots(position: int, so_far: int, available: int, n: int, share: float) -> list[bool]:
    """For each of the next n questions of a round: is it a held-out one? Their share is even."""
    slots = []
    for at in range(position, position + n):
        due = available > 0 and so_far + 0.5 <= share * (at + 0.5)
        slots.append(due)
        so_far += due
        available -= due
    return slots


def prototypes(questions: Iterable[Question]) -> dict[str, int | None]:
    """The prototype of each sheet: the image that all its pairs have, if there is one and all are expected to
    be similar. One pair that is left is no sheet."""
    tiles: dict[str, list[Question]] = {}
    for question in questions:
        if question.sheet is not None:
            tiles.setdefault(question.sheet, []).append(question)
    found: dict[str, int | None] = {}
    for sheet, some in tiles.items():
        if len(some) > 1:
            shared = set.intersection(*(set(one.pair) for one in some))
            likely = all(one.guess == Verdict.SIMILAR for one in some)
            found[sheet] = min(shared) if shared and likely else None
    return found


def next_question(campaign: Campaign, annotator: str = "me") -> Question | None:
    """The next question of the current round; None when the round is over and the machine should learn, or
    when nothing is left to ask."""
    if campaign.is_round_over():
        return None
    return next(iter(take(campaign, annotator, holder=annotator, n=1)), None)


def take(
    campaign: Campaign, annotator: str, holder: str, n: int, shown: Sequence[Pair] = ()
) -> list[Question]:
    """The next n questions for this person at this screen (``holder``). They are leased: nobody else is asked
    them for a while. ``shown`` are pairs that should come first, if they are open.

    A pair that the strategy picks and that has a held-out answer is not asked again: the answer is released
    to be learnt from. Otherwise only pairs that the strategy does not want would be held out.
    """
    with campaign.transaction():
        withdraw_suspects(campaign)
        leases = campaign.store.leases()
        overlap = campaign.store.setting("overlap", 0.0)
        released: list[Row] = []
        while True:
            with campaign.supposing(released) as known:
                askable = _askable(campaign, known, leases, annotator, holder, shown, overlap, n)
                pick = partial(_pick, campaign, known, askable)
                sheet = partial(_sheet, campaign, known, askable)
                questions = arrange(askable, pick, n, campaign.settings.heldout, overlap, sheet)
            wanted = [row for row in _heldout_answers(campaign.log(), questions) if row not in released]
            if not wanted:  # a released pair is known, so it is not picked again
                break
            released += wanted
        campaign.store.add(_release(campaign, row) for row in released)
        wanted_leases = [Lease(one.pair, holder, one.purpose, one.sheet, one.guess) for one in questions]
        if wanted_leases != [lease for lease in leases if lease.holder == holder]:  # else they are renewed
            campaign.store.lease(wanted_leases, holder, LEASE)
        if not questions and not askable.others and not is_all_asked(campaign):
            campaign.store.set(all_asked=_position(campaign))
    return questions


def is_all_asked(campaign: Campaign) -> bool:
    """Whether somebody was told that no question is left, and nothing was said or learnt since. ``take``
    notes it."""
    return bool(campaign.store.setting("all_asked", None) == _position(campaign))


def _position(campaign: Campaign) -> list[int]:
    """It changes with every event and every round."""
    return [campaign.rounds.current, campaign.log().newest]


def _pick(campaign: Campaign, known: Known, askable: Askable, n: int) -> list[Pair]:
    """What the strategy wants to ask now."""
    rounds = campaign.rounds
    if not rounds.has_vectors(rounds.serving):
        return []
    snapshot = _snapshot(campaign, known, askable)
    return list(campaign.strategy.pick(snapshot, rounds.agenda(), n, _rng(campaign, askable)))


def _sheet(campaign: Campaign, known: Known, askable: Askable) -> list[Question]:
    """The tiles of the sheet that the strategy wants to show now, if it pays."""
    rounds = campaign.rounds
    log = campaign.log()
    most = campaign.store.setting("sheets", campaign.settings.sheets)
    if not most or campaign.strategy.sheet is None or not rounds.has_vectors(rounds.serving):
        return []
    on_screens = len(askable.mine) + len(askable.others) + len(askable.again)
    room = campaign.settings.per_round - log.news(rounds.seen) - on_screens
    largest = min(most, room) if room > 0 else most  # people go on while the machine learns
    rng = _rng(campaign, askable)
    sheet = campaign.strategy.sheet(_snapshot(campaign, known, askable), rounds.agenda(), largest, rng)
    pairs = list(sheet.pairs)
    name = "-".join(map(str, (log.newest, *pairs[0]))) if pairs else None
    tiles = zip(pairs, sheet.guesses.tolist(), strict=True)
    return [Question(pair, Purpose.CHOSEN, name, guess) for pair, guess in tiles]


def _rng(campaign: Campaign, askable: Askable) -> np.random.Generator:
    """What breaks ties until the next answer."""
    return campaign.settings.rng(Stream.PICK, campaign.rounds.current, len(askable.answered))


def _snapshot(campaign: Campaign, known: Known, askable: Askable) -> Snapshot:
    rounds = campaign.rounds
    pending = Pairs.from_list(one.pair for one in (*askable.mine, *askable.others, *askable.again))
    latest = campaign.log().latest(LATEST)
    return Snapshot(
        rounds.vectors(),
        campaign.images,
        known,
        answers_of(latest),
        np.array([row.round for row in latest], dtype=np.int64),
        pending=pending,
    )


def _heldout_answers(log: Log, questions: Sequence[Question]) -> list[Row]:
    chosen = [question.pair for question in questions if question.purpose == Purpose.CHOSEN]
    return [row for pair in chosen for row in log.standing_on(pair) if row.purpose == Purpose.HELD_OUT]


def _release(campaign: Campaign, row: Row) -> Event:
    strategy = campaign.strategy.name
    number = campaign.rounds.current
    return Event(*row.pair, row.verdict, row.annotator, strategy, number, Purpose.RELEASED, entered=MACHINE)


def _askable(
    campaign: Campaign,
    known: Known,
    leases: Sequence[Lease],
    annotator: str,
    holder: str,
    shown: Sequence[Pair],
    overlap: float,
    n: int,
) -> Askable:
    log = campaign.log()
    gone = set(campaign.retired().tolist())
    leases = [lease for lease in leases if gone.isdisjoint(lease.pair)]
    shown = [pair for pair in shown if gone.isdisjoint(pair)]
    others = [_leased(lease) for lease in leases if lease.holder != holder]
    taken = {question.pair for question in others}
    leased = {lease.pair: lease.purpose for lease in leases if lease.holder == holder}
    own = {lease.pair: _leased(lease) for lease in leases if lease.holder == holder}
    waiting = [pair for pair in log.waiting if pair not in taken and gone.isdisjoint(pair)]
    again = [Question(pair, log.purpose_of_repeat(pair)) for pair in waiting]
    once = campaign.tally().answered_once(overlap, campaign.settings.seed) if overlap else {}
    by_others = (row.pair for row in once.values() if row.annotator != annotator and row.pair not in taken)
    wanted = (pair for pair in by_others if gone.isdisjoint(pair))
    second = [Question(pair, log.purpose_of_repeat(pair)) for pair in islice(wanted, n)]
    wanted_twice = {pair for pair in (*shown, *leased) if pair in once and once[pair].annotator != annotator}
    heldout = [pair for pair in campaign.open_heldout(known) if pair not in taken]
    leased |= {pair: Purpose.HELD_OUT for pair in shown if pair in heldout}  # their lease ran out
    mine = [
        replace(own.get(pair, Question(pair, "")), purpose=leased.get(pair) or log.purpose_of_repeat(pair))
        for pair in dict.fromkeys((*shown, *leased))
        if pair not in taken and (pair in wanted_twice or _is_open(log, known, pair))
    ]
    answered = [row.purpose for row in log.since(campaign.rounds.seen) if is_given(row)]
    return Askable(mine, others, again, second, heldout, answered)


def _leased(lease: Lease) -> Question:
    return Question(lease.pair, lease.purpose, lease.sheet, lease.guess)


def _is_open(log: Log, known: Known, pair: Pair) -> bool:
    """Whether a pair has no answer, given or implied. A pair that waits to be asked again may be implied:
    each part of a contradiction is implied by the others."""
    if log.standing_on(pair):
        return False
    return pair in log.waiting or known.of(Pairs.from_list([pair]))[0] == UNKNOWN
