"""The list of answers, contradictions, and asking again."""

from __future__ import annotations

import numpy as np
import pytest

from anneal.campaign.campaign import Campaign
from anneal.pairs import Verdict
from served import KEY, Site, answer, finish_round


def test_a_contradiction_is_shown_with_its_answers_and_can_be_settled(site: Site, campaign: Campaign) -> None:
    triangle = [
        ({"a": 0, "b": 1}, "similar"),
        ({"a": 1, "b": 2}, "similar"),
        ({"a": 0, "b": 2}, "dissimilar"),
    ]
    events = [answer(number, pair, word) for number, (pair, word) in enumerate(triangle)]
    assert site.say(*events)["state"]["standing"]["contradictions"] == 1
    (contradiction,) = site.get("/api/contradictions")
    assert [(row["a"], row["b"], row["verdict"]) for row in contradiction["answers"]] == [
        (0, 1, "similar"),
        (1, 2, "similar"),
        (0, 2, "dissimilar"),
    ]
    wrong = contradiction["answers"][1]["id"]
    state = site.say({"key": KEY.format(9), "of": wrong, "verdict": "dissimilar"}, annotator="chief")["state"]
    assert state["standing"]["contradictions"] == 0
    assert site.get("/api/contradictions") == []
    row = campaign.log().standing()[-1]
    assert (*row.pair, row.verdict) == (1, 2, Verdict.DISSIMILAR)
    assert (row.annotator, row.entered) == ("me", "chief")


def test_answers_are_listed_filtered_and_withdrawn(site: Site) -> None:
    site.say(answer(1, {"a": 0, "b": 1}, "similar"), answer(2, {"a": 3, "b": 50}, "dissimilar"))
    site.say(answer(3, {"a": 4, "b": 60}, "unsure"), annotator="ann")

    def pairs(query: str) -> list[tuple[int, int]]:
        return [(row["a"], row["b"]) for row in site.get(f"/api/answers?{query}")["answers"]]

    assert pairs("") == [(4, 60), (3, 50), (0, 1)]  # newest first
    assert site.get("/api/answers")["annotators"] == ["ann", "me"]
    assert pairs("verdict=similar") == [(0, 1)]
    assert pairs("annotator=ann") == [(4, 60)]
    assert pairs("pair=50") == [(3, 50)]
    assert pairs("pair=BEACH_004") == [(4, 60)]
    assert pairs("limit=1&offset=1") == [(3, 50)]
    assert site.get("/api/answers")["total"] == 3
    number = site.get("/api/answers?pair=50")["answers"][0]["id"]
    site.say({"key": KEY.format(4), "of": number, "verdict": "none"})
    assert pairs("") == [(4, 60), (0, 1)]
    assert pairs("verdict=none") == [(3, 50)]
    site.say({"key": KEY.format(5), "undoes": None})
    assert pairs("verdict=dissimilar") == [(3, 50)]


def test_a_row_says_what_the_answer_is_for(site: Site, campaign: Campaign) -> None:
    a, b = next(iter(campaign.rounds.heldout_pairs()))
    site.say(answer(1, {"a": 0, "b": 1}, "similar"), answer(2, {"a": a, "b": b}, "unsure"))
    rows = site.get("/api/answers")["answers"]
    assert [(row["id"], row["purpose"]) for row in rows] == [(2, "held-out"), (1, "chosen")]
    assert (rows[1]["names"], rows[1]["strategy"], rows[1]["round"]) == (
        list(campaign.archive().paths[:2]),
        "mgue",
        0,
    )


def test_an_unsure_pair_is_asked_again_only_on_request(site: Site) -> None:
    (pair,) = site.get("/api/questions?holder=h&n=1")["questions"]
    assert pair not in site.say(answer(1, pair, "unsure"))["questions"]
    (row,) = site.get("/api/answers?verdict=unsure")["answers"]
    assert site("POST", "/api/again", {"ids": [row["id"]]}).json == {"asked": 1}
    assert site.get("/api/questions?holder=other&n=1")["questions"] == [
        {**pair, "again": "somebody asked for it"}
    ]


def test_answers_that_the_model_disagrees_with_come_strongest_first(site: Site, campaign: Campaign) -> None:
    vectors = np.array(campaign.rounds.vectors())
    similarity = vectors @ vectors.T
    near = [int(np.argsort(-similarity[i])[1]) for i in (0, 40)]
    far = int(np.argmin(similarity[80]))
    lowest = max(float(similarity[80, far]), 0)
    cutoff = round((lowest + float(min(similarity[0, near[0]], similarity[40, near[1]]))) / 2, 4)
    finish_round(campaign, cutoff)
    site.say(
        answer(1, {"a": 0, "b": near[0]}, "dissimilar"),
        answer(2, {"a": 40, "b": near[1]}, "similar"),
        answer(3, {"a": 80, "b": far}, "similar"),
    )
    rows = site.get("/api/answers?doubtful=true")["answers"]
    assert {(row["a"], row["b"]) for row in rows} == {
        (0, near[0]),
        (min(80, far), max(80, far)),
    }
    assert rows[0]["doubt"] >= rows[1]["doubt"] > 0
    assert rows[0]["doubt"] == pytest.approx(abs(rows[0]["score"] - cutoff), abs=1e-3)
