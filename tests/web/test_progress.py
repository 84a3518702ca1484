"""What the progress view gets."""

from __future__ import annotations

from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.campaign.store import Purpose
from served import Site, answer, finish_round


def test_quality_is_told_by_held_out_answers_only(site: Site, campaign: Campaign) -> None:
    told = site.get("/api/progress")
    (model,) = told["models"]
    assert (model["round"], model["answers"], model["p5"]) == (FROZEN, 0, None)
    labels = campaign.archive().labels
    (question,) = site.get("/api/questions?holder=h&n=1")["questions"]
    for number in range(30):
        word = "similar" if labels[question["a"]] == labels[question["b"]] else "dissimilar"
        question = site.say(answer(number, question, word, looked=2000), n=1)["questions"][0]
    told = site.get("/api/progress")
    purposes = [row.purpose for row in campaign.log().standing()]
    heldout = purposes.count(Purpose.HELD_OUT)
    assert told["heldout"] == heldout
    assert heldout + purposes.count(Purpose.RELEASED) == 3  # a tenth of 30
    (model,) = told["models"]
    assert model["low"] is None or 0 <= model["low"] <= model["p5"] <= model["high"] <= 1
    assert told["people"] == [{"annotator": "me", "answers": 30, "per_minute": 30.0, "unsure": 0}]
    assert [share["answers"] for share in told["shares"]] == [30 - heldout]
    assert told["advice"]["stop"] is False


def test_a_model_that_does_not_serve_is_named(site: Site, campaign: Campaign) -> None:
    told = site.get("/api/progress")
    assert (told["serving"], told["refusal"]) == (FROZEN, "")
    finish_round(campaign, cutoff=0.5, serving=FROZEN)
    told = site.get("/api/progress")
    assert told["serving"] == FROZEN
    assert "The model of round 0 does not serve" in told["refusal"]
