"""Questions and answers over HTTP: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import Any

import pytest

from anneal.campaign import database
from anneal.campaign.campaign import Campaign
from anneal.campaign.log import is_given
from anneal.campaign.store import Purpose
from anneal.pairs import Verdict
from served import KEY, Site, answer, finish_round, page_of, stored

Pair = tuple[int, int]


def pairs_of(questions: list[dict[str, int]]) -> list[Pair]:
    return [(one["a"], one["b"]) for one in questions]


# -- questions -------------------------------------------------------------------------------------


def test_questions_are_answered_one_after_another(site: Site, campaign: Campaign) -> None:
    questions = site.get("/api/questions?holder=h&n=3")["questions"]
    assert pairs_of(questions) == list(campaign.rounds.agenda().pairs)[:3]
    first = questions[0]
    reply = site.say(answer(1, first, "similar", asked=1_700_000_000_000, looked=850))
    assert reply["done"] == [{"key": KEY.format(1), **first, "verdict": "similar"}]
    assert first not in reply["questions"]
    assert reply["questions"][:2] == questions[1:]  # what was loaded ahead stays in its place
    assert len(reply["questions"]) == 3
    assert reply["state"]["standing"]["answers"] == 1
    (row,) = campaign.log().standing()
    assert (*row.pair, row.verdict, row.annotator) == (first["a"], first["b"], Verdict.SIMILAR, "me")
    assert (row.asked, row.looked) == (1_700_000_000.0, 850)
    assert (row.strategy, row.round, row.purpose) == ("mgue", 0, Purpose.CHOSEN)


def test_at_most_three_questions_are_loaded_ahead(site: Site) -> None:
    assert len(site.get("/api/questions?holder=h&n=20")["questions"]) == 3
    assert len(site.say(n=20)["questions"]) == 3


def test_an_answer_with_n_0_gets_no_questions_and_leases_none(site: Site, campaign: Campaign) -> None:
    (first,) = site.get("/api/questions?holder=h&n=1")["questions"]
    leased = campaign.store.leases()
    assert [lease.pair for lease in leased] == [(first["a"], first["b"])]
    reply = site.say(answer(1, first, "similar"), n=0)
    assert reply["questions"] == []
    assert reply["state"]["standing"]["answers"] == 1
    assert campaign.store.leases() == leased
    assert site.say(answer(2, {"a": 0, "b": 1}, "similar"), holder="other", n=0)["questions"] == []
    assert campaign.store.leases() == leased


def test_two_screens_are_never_asked_the_same_pair(site: Site) -> None:
    asked: list[Pair] = []
    for holder in ("one", "two", "three"):
        asked += pairs_of(site.get(f"/api/questions?holder={holder}&annotator=ann&n=3")["questions"])
    assert len(asked) == len(set(asked)) == 9
    assert site.get("/api/state?holder=three")["others"] == 6


def test_an_undone_pair_stays_with_the_screen_that_shows_it(site: Site) -> None:
    first = site.get("/api/questions?holder=ann&n=3")["questions"]
    site.say(answer(1, first[0], "similar"), holder="ann")
    reply = site.say({"key": KEY.format(2), "undoes": KEY.format(1)}, holder="ann")
    assert reply["questions"] == first
    assert first[0] not in site.get("/api/questions?holder=bob&n=3")["questions"]


# -- answers, undos, corrections -------------------------------------------------------------------


def test_an_event_that_is_sent_again_counts_once(site: Site, campaign: Campaign) -> None:
    one, two = site.get("/api/questions?holder=h&n=2")["questions"]
    sent = [answer(1, one, "similar"), answer(2, two, "dissimilar"), {"key": KEY.format(3), "undoes": None}]
    assert site.say(*sent)["done"] == site.say(*sent)["done"]
    assert len(campaign.log().rows) == 3
    assert stored(campaign) == [(one["a"], one["b"], "similar")]


def test_undo_goes_back_to_the_start_and_to_earlier_verdicts(site: Site, campaign: Campaign) -> None:
    one, two = site.get("/api/questions?holder=h&n=2")["questions"]
    site.say(answer(1, one, "similar"), answer(2, two, "similar"), answer(3, one, "unsure"))
    for number, (pair, left) in enumerate([(one, 2), (two, 1), (one, 0)]):
        (done,) = site.say({"key": KEY.format(10 + number), "undoes": None})["done"]
        assert (done["a"], done["b"]) == (pair["a"], pair["b"])
        assert len(stored(campaign)) == left
    (done,) = site.say({"key": KEY.format(20), "undoes": None})["done"]
    assert (done["a"], done["b"]) == (None, None)
    assert len(campaign.log().rows) == 6


def test_an_undo_may_name_the_answer(site: Site, campaign: Campaign) -> None:
    one, two = site.get("/api/questions?holder=h&n=2")["questions"]
    site.say(answer(1, one, "similar"), answer(2, two, "similar"))
    site.say({"key": KEY.format(3), "undoes": KEY.format(1)})
    assert stored(campaign) == [(two["a"], two["b"], "similar")]


def test_undoing_an_answer_undoes_its_correction_too(site: Site, campaign: Campaign) -> None:
    (pair,) = site.get("/api/questions?holder=h&n=1")["questions"]
    site.say(answer(1, pair, "similar"))
    number = site.get("/api/answers")["answers"][0]["id"]
    site.say({"key": KEY.format(2), "of": number, "verdict": "dissimilar"})
    site.say({"key": KEY.format(3), "undoes": KEY.format(1)})
    assert stored(campaign) == []


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"a": 0, "b": 10**6, "verdict": "similar"}, "from 0 to 119"),
        ({"a": 5, "b": 5, "verdict": "similar"}, "two different images"),
        ({"of": 99, "verdict": "similar"}, "no answer 99"),
    ],
)
def test_an_impossible_event_is_named_and_the_others_are_carried_out(
    site: Site, campaign: Campaign, event: dict[str, Any], why: str
) -> None:
    done = site.say({"key": KEY.format(1), **event}, answer(2, {"a": 0, "b": 1}, "similar"))["done"]
    assert why in done[0]["error"]
    assert "error" not in done[1]
    assert stored(campaign) == [(0, 1, "similar")]


def test_a_request_that_cannot_be_read_is_refused_as_a_whole(site: Site, campaign: Campaign) -> None:
    for wrong in (
        {"holder": "h", "events": [{"key": "12345678", "a": 0, "b": 1, "verdict": "maybe"}]},
        {"holder": "h", "events": [{"a": 0, "b": 1, "verdict": "similar"}]},  # no key
        {"holder": "h", "events": [{"key": "12345678", "a": 0, "b": 1, "verdit": "similar"}]},
        {"holder": "h", "events": [{"key": "12345678", "a": 0, "b": 1}]},
        {"holder": "h", "events": [{"key": "12345678"}]},
        {"holder": "", "events": []},
        {"holder": "h", "events": [], "n": 10_000},
        {"holder": "h", "events": [], "n": -1},
    ):
        assert site("POST", "/api/answers", wrong).status == 422
    assert site("POST", "/api/answers", b"{").status == 422
    assert campaign.log().rows == []


def test_answers_to_another_campaign_are_refused(site: Site, campaign: Campaign) -> None:
    sent = {"holder": "h", "events": [answer(1, {"a": 0, "b": 1}, "similar")]}
    assert site("POST", "/api/answers", {**sent, "campaign": "another"}).status == 409
    assert campaign.log().rows == []
    own = site.get("/api/state")["id"]
    assert own == campaign.id
    assert site("POST", "/api/answers", {**sent, "campaign": own}).status == 200


def test_an_answer_that_could_not_be_written_is_not_called_done(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = answer(1, {"a": 0, "b": 1}, "similar")
    other = sqlite3.connect(campaign.store.path, isolation_level=None)
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    with closing(other), page_of(campaign) as site:
        other.execute("BEGIN IMMEDIATE")  # another process is writing
        refused = site("POST", "/api/answers", {"holder": "h", "events": [event]})
        other.execute("ROLLBACK")
        assert refused.status == 503
        assert "do the last step again" in refused.json["detail"]
        assert "error" not in site.say(event)["done"][0]
    assert stored(campaign) == [(0, 1, "similar")]


def test_many_people_at_once_lose_nothing_and_double_nothing(site: Site, campaign: Campaign) -> None:
    """Eight screens answer as fast as they can, and send every event twice."""
    given: list[Pair] = []

    def person(name: str) -> None:
        questions = site.get(f"/api/questions?holder={name}&annotator={name}&n=2")["questions"]
        for number in range(6):
            pair = questions[0]
            event = answer(number, pair, "dissimilar")
            event["key"] += name
            site.say(event, annotator=name, holder=name, n=2)
            questions = site.say(event, annotator=name, holder=name, n=2)["questions"]
            given.append((pair["a"], pair["b"]))

    people = [threading.Thread(target=person, args=(f"person{i}",)) for i in range(8)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join()
    assert len(given) == len(set(given)) == 48
    assert sorted((a, b) for a, b, _ in stored(campaign)) == sorted(given)
    assert sum(map(is_given, campaign.log().rows)) == 48


# -- the cost of an answer -------------------------------------------------------------------------


def test_the_cost_of_an_answer_does_not_grow(site: Site, campaign: Campaign) -> None:
    """Few SQL statements, however many answers and rounds there are; none reads all rounds."""
    for _ in range(3):
        finish_round(campaign, cutoff=0.5)
    site.say()  # what is read once for every round is read now
    counts = []
    for number in range(24):
        (question,) = site.get("/api/questions?holder=h&n=1")["questions"]
        statements: list[str] = []
        campaign.store.db.set_trace_callback(statements.append)
        site.say(answer(number, question, "dissimilar"))
        campaign.store.db.set_trace_callback(None)
        if campaign.log().rows[-1].purpose == Purpose.CHOSEN:  # a held-out answer changes the estimates
            counts.append(len(statements))
            assert not [one for one in statements if "about FROM rounds" in one]
    assert len(counts) > 15
    assert len(set(counts)) == 1
    assert counts[0] <= 36


# -- the state -------------------------------------------------------------------------------------


def test_the_state_has_the_counts_of_the_campaign(site: Site) -> None:
    state = site.get("/api/state")
    assert state["standing"] == {
        "images": 120, "answers": 0, "similar": 0, "dissimilar": 0, "unsure": 0, "heldout": 0, "labels": 0,
        "implied": 0, "contradictions": 0, "rounds": 0, "waiting": 0, "alone": 120,
    }  # fmt: skip
    assert (state["campaign"], state["criterion"], state["images"], state["share"]) == ("c", "", 120, None)
    assert state["aim"] == [0.3, 0.7]
    assert state["others"] == 0
    assert state["machine"]["state"] == "absent"
    assert (state["machine"]["fresh"], state["machine"]["needed"]) == (0, 30)
    assert "anneal label starts it" in state["machine"]["text"]


def test_the_machine_s_state_reaches_the_page(site: Site, campaign: Campaign) -> None:
    campaign.mailbox.set_machine(state="learning", step="learning", done=30, total=200)
    machine = site.get("/api/state")["machine"]
    assert (machine["state"], machine["done"], machine["total"]) == ("learning", 30, 200)
    campaign.mailbox.set_machine(state="failed", error="The disk is full.", again=0)
    assert "The disk is full." in site.get("/api/state")["machine"]["text"]


def test_the_criterion_can_be_changed(site: Site) -> None:
    reply = site("PUT", "/api/criterion", {"text": " same <b>land</b> use "})
    assert reply.json == {"criterion": "same <b>land</b> use"}
    assert site.get("/api/state")["criterion"] == "same <b>land</b> use"
    assert site("PUT", "/api/criterion", {"text": "x" * 500}).status == 422
