"""Which answers of this campaign are asked again (``method.suspects`` has the rules as pure functions)."""

import math
from collections.abc import Set

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.campaign.evidence import answers_of
from anneal.campaign.log import Log
from anneal.campaign.store import MACHINE, Purpose, Row, Why
from anneal.method import suspects
from anneal.pairs import Answers, Floats, Pair, Pairs, Verdict

OWN = (Purpose.CHOSEN, Purpose.AGAIN, Purpose.RELEASED)  # imported and held-out answers are not doubted
SECOND = "a second opinion is wanted"
WORDS = {
    Why.MODEL: "the model expected the other answer",
    Why.JOIN: "the answer joins two large groups",
    Why.CONTRADICTION: "it contradicts other answers",
    Why.FEATURES: "the images look otherwise",
    Why.CHANGED: "the answers so far differ",
    Why.REQUEST: "somebody asked for it",
}
LEAD_IN_CONTRADICTION = 3  # more votes than its contrary, until an answer in a contradiction is believed


def withdraw_suspects(campaign: Campaign) -> None:
    """Withdraw answers that may be mistakes, so that their pairs are asked again; not while others wait."""
    log = campaign.log()
    rounds = campaign.rounds
    if not campaign.settings.recheck or log.waiting or not rounds.has_vectors(rounds.serving):
        return
    found = _suspects(campaign, log)
    if found:
        campaign.again(found, by=MACHINE)


def reason(log: Log, pair: Pair, annotator: str) -> str:
    """Why this person is asked about a pair that had an answer before, in a few words; else nothing."""
    if pair in log.waiting:
        why = log.waiting[pair].why
        return WORDS.get(Why(why), "") if why in set(Why) else "to be sure"  # earlier versions noted none
    others = [row for row in log.standing_on(pair) if row.annotator != annotator]
    return SECOND if others else ""


def _suspects(campaign: Campaign, log: Log) -> dict[int, Why]:
    """Row numbers of suspects that asking again has not settled, and why each is one."""
    rounds = campaign.rounds
    vectors = rounds.vectors()  # they have not learnt from the answers of this round
    current = rounds.current
    answered = [row for row in log.since(rounds.seen) if row.round == current]
    own = {row.pair: row for row in answered if row.purpose in OWN and row in log.standing_on(row.pair)}
    this_round = list(own.values())
    fresh = answers_of(this_round)
    records = rounds.records()
    rate = records[-1].recheck_rate if records else 1.0
    probability = suspects.verdict_probability(vectors, fresh, fresh)
    joins = np.array([row.id in _large_joins(campaign) for row in this_round], dtype=bool)
    candidates = [(row, Why.CHANGED) for row in this_round if log.is_doubted(row.pair)]  # the same this time?
    unlikely = suspects.unlikely(probability, joins, campaign.settings.recheck * rate)
    candidates += [(this_round[i], Why.JOIN if joins[i] else Why.MODEL) for i in unlikely]
    found = {row.id: why for row, why in reversed(candidates) if not _is_settled(log, row, 1)}
    for rows in campaign.contradictions():
        weakest = _weakest(log, rows, vectors, fresh)
        if weakest is not None:
            found[weakest.id] = Why.CONTRADICTION
    if not found:  # one earlier answer at a time
        strange = [pair for pair in rounds.files(current - 1).suspects() if not log.is_doubted(pair)]
        earlier = [row for pair in strange for row in log.standing_on(pair)[-1:] if row.purpose in OWN]
        found = {row.id: Why.FEATURES for row in earlier[:1]}
    return found


def _large_joins(campaign: Campaign) -> Set[int]:
    """The rows that joined two large groups. Only the full closure has groups."""
    return campaign.growing().large_joins if campaign.settings.closure == "full" else set()


def _weakest(log: Log, rows: list[Row], vectors: Floats, fresh: Answers) -> Row | None:
    """The answer of a contradiction to ask again: the one with the smallest lead, the least likely of those,
    the newest of those. None where two people disagree about a pair: they must settle it themselves."""
    if len({row.pair for row in rows}) < len(rows):
        return None
    probability = suspects.verdict_probability(vectors, answers_of(rows), fresh).tolist()
    unsettled = [
        (_lead(log, row), chance, -row.id, row)
        for row, chance in zip(rows, probability, strict=True)
        if not _is_settled(log, row, LEAD_IN_CONTRADICTION)
    ]
    return min(unsettled, key=lambda one: one[:3])[-1] if unsettled else None


def _is_settled(log: Log, row: Row, lead: int) -> bool:
    """Whether a pair that was asked again needs no further question: its verdict has the lead, or is unsure,
    or it was asked so often that one more answer will not help."""
    times = len(log.verdicts(row.pair))
    enough = row.verdict == Verdict.UNSURE or _lead(log, row) >= lead
    return times > 1 and (enough or times > 2 * lead)


def _lead(log: Log, row: Row) -> int:
    """How many more times the verdict that stands was given than all others together. A person who
    corrects an answer without being asked has thought twice."""
    verdicts = log.verdicts(row.pair)
    if not log.is_doubted(row.pair):
        return min(len(verdicts), 2)
    return 2 * verdicts.count(row.verdict) - len(verdicts)


def recheck_rate(campaign: Campaign, before: int) -> float:
    """How much rechecking goes on, by what it found before a round."""
    log = campaign.log()
    return suspects.recheck_rate(len(log.doubted(before)), log.overturned(before))


def earlier_suspects(campaign: Campaign, frozen: Floats, rate: float) -> Pairs:
    """Pairs whose answer the frozen features speak against, strangest first, at most a quarter of a round."""
    evidence = campaign.evidence()
    known = evidence.closure.relations
    log = campaign.log()
    some_are_wrong = log.overturned() > 0
    strange = suspects.against_frozen(frozen, evidence.answers, known, log.doubted(), some_are_wrong)
    return strange[: math.ceil(campaign.settings.per_round / 4 * rate)]


def doubtful_separations(campaign: Campaign, frozen: Floats) -> list[tuple[int, int]]:
    """Groups, two by two, that training does not push apart although an answer separates them. None until
    asking again has found a mistake. Only the full closure has groups."""
    log = campaign.log()
    if campaign.settings.closure != "full" or not log.overturned():
        return []
    evidence = campaign.evidence()
    return suspects.doubtful_separations(frozen, evidence.answers, evidence.closure.relations, log.doubted())
