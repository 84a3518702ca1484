"""The HTTP interface: what it answers, what it refuses, and that nothing said is lost or counted twice."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anneal.archive.catalog import open_archive
from anneal.campaign import heldout, turn
from anneal.campaign.campaign import FROZEN, Campaign
from anneal.campaign.store import Audit, Questions
from anneal.method.neighbours import unit
from anneal.method.relations import none
from anneal.pairs import Answers, Pairs, Verdict
from anneal.settings import Plan
from served import Site, page_of

SIMILAR, DISSIMILAR, UNSURE = Verdict
KEY = "key-number-{}"


@pytest.fixture(scope="session")
def made(drawn: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign on the drawn archive whose vectors are its shrunk pixels: no network is needed here."""
    folder = tmp_path_factory.mktemp("web") / "campaign"
    archive = open_archive(drawn, 32, cache)
    plan = Plan(px=32, strategy="mgue", per_round=30, recheck=0, audit=0.1)
    vectors = unit(np.asarray(archive.pixels[:, ::8, ::8]).reshape(len(archive), -1).astype(np.float32) - 128)
    images = np.arange(len(archive))
    turn.save(folder / "rounds" / "frozen", vectors=vectors, top=heldout.top(vectors, images, plan.rng(5)))
    lot = heldout.first(vectors, images, none(len(images), Answers.none()).relations, plan)
    first = heldout.mixed(turn.first_questions(vectors, images, 30, plan.rng(3)), lot.asked)
    Campaign.create(folder, archive, plan, images, first, lot.kept).close()
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Iterator[Campaign]:
    shutil.copytree(made, tmp_path / "c")
    opened = Campaign.open(tmp_path / "c")
    yield opened
    opened.close()


@pytest.fixture
def site(campaign: Campaign) -> Iterator[Site]:
    with page_of(campaign) as found:
        yield found


def answer(number: int, pair: dict[str, int], verdict: str, **more: Any) -> dict[str, Any]:
    return {"key": KEY.format(number), **pair, "verdict": verdict, **more}


def stored(campaign: Campaign) -> list[tuple[int, int, int, str]]:
    return [(row.a, row.b, row.verdict, row.annotator) for row in campaign.store.standing()]


# -- answering -------------------------------------------------------------------------------------


def test_questions_are_answered_one_after_another(site: Site, campaign: Campaign) -> None:
    questions = site.get("/api/questions?holder=h&n=6")["questions"]
    assert [(q["a"], q["b"]) for q in questions] == list(campaign.store.questions().pairs)[:6]
    first = questions[0]
    reply = site.say(answer(1, first, "similar", asked=1_700_000_000_000, looked=850))
    assert reply["done"] == [{"key": KEY.format(1), **first, "verdict": "similar"}]
    assert first not in reply["questions"]
    assert reply["questions"][:5] == questions[1:]  # what was fetched ahead stays in its place
    assert len(reply["questions"]) == 6
    assert reply["state"]["standing"]["answers"] == 1
    (row,) = campaign.store.standing()
    assert (row.a, row.b, row.verdict, row.annotator) == (first["a"], first["b"], SIMILAR, "me")
    assert (row.asked, row.looked, row.strategy, row.round) == (1_700_000_000.0, 850, "cold", 0)


def test_an_event_sent_again_counts_once(site: Site, campaign: Campaign) -> None:
    one, two = site.get("/api/questions?holder=h&n=2")["questions"]
    sent = [answer(1, one, "similar"), answer(2, two, "dissimilar"), {"key": KEY.format(3), "undoes": None}]
    assert site.say(*sent)["done"] == site.say(*sent)["done"]
    assert campaign.store.events() == 3
    assert stored(campaign) == [(one["a"], one["b"], SIMILAR, "me")]


def test_undo_goes_back_as_far_as_one_likes_and_to_what_was_said_before(
    site: Site, campaign: Campaign
) -> None:
    one, two = site.get("/api/questions?holder=h&n=2")["questions"]
    site.say(answer(1, one, "similar"), answer(2, two, "similar"), answer(3, one, "unsure"))
    for number, (pair, left) in enumerate([(one, 2), (two, 1), (one, 0)]):
        (done,) = site.say({"key": KEY.format(10 + number), "undoes": None})["done"]
        assert (done["a"], done["b"]) == (pair["a"], pair["b"])
        assert len(stored(campaign)) == left
    (done,) = site.say({"key": KEY.format(20), "undoes": None})["done"]
    assert (done["a"], done["b"]) == (None, None)
    assert campaign.store.events() == 6


def test_an_undo_may_name_what_it_undoes(site: Site, campaign: Campaign) -> None:
    one, two = site.get("/api/questions?holder=h&n=2")["questions"]
    site.say(answer(1, one, "similar"), answer(2, two, "similar"))
    site.say({"key": KEY.format(3), "undoes": KEY.format(1)})
    assert stored(campaign) == [(two["a"], two["b"], SIMILAR, "me")]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"a": 0, "b": 10**6, "verdict": "similar"}, "outside 0 … 119"),
        ({"a": 5, "b": 5, "verdict": "similar"}, "no pair with itself"),
        ({"of": 99, "verdict": "similar"}, "no answer 99"),
    ],
)
def test_an_event_that_cannot_be_is_named_and_the_others_are_carried_out(
    site: Site, campaign: Campaign, event: dict[str, Any], why: str
) -> None:
    done = site.say({"key": KEY.format(1), **event}, answer(2, {"a": 0, "b": 1}, "similar"))["done"]
    assert why in done[0]["error"]
    assert "error" not in done[1]
    assert stored(campaign) == [(0, 1, SIMILAR, "me")]


def test_what_cannot_be_read_is_refused_as_a_whole(site: Site, campaign: Campaign) -> None:
    for wrong in (
        {"holder": "h", "events": [{"key": "12345678", "a": 0, "b": 1, "verdict": "maybe"}]},
        {"holder": "h", "events": [{"a": 0, "b": 1, "verdict": "similar"}]},  # no key
        {"holder": "h", "events": [{"key": "12345678", "a": 0, "b": 1, "verdit": "similar"}]},
        {"holder": "h", "events": [{"key": "12345678", "a": 0, "b": 1}]},
        {"holder": "h", "events": [{"key": "12345678"}]},
        {"holder": "", "events": []},
        {"holder": "h", "events": [], "n": 10_000},
    ):
        assert site("POST", "/api/answers", wrong).status == 422
    assert site("POST", "/api/answers", b"{").status == 422
    assert campaign.store.events() == 0


def test_two_screens_are_never_asked_the_same_pair(site: Site) -> None:
    seen: set[tuple[int, int]] = set()
    for holder in ("one", "two", "three"):
        for q in site.get(f"/api/questions?holder={holder}&annotator=ann&n=8")["questions"]:
            assert (q["a"], q["b"]) not in seen
            seen.add((q["a"], q["b"]))
    assert len(seen) == 24


def test_an_undone_pair_stays_with_the_screen_that_shows_it(site: Site) -> None:
    first = site.get("/api/questions?holder=ann&n=4")["questions"]
    site.say(answer(1, first[0], "similar"), holder="ann", n=4)
    told = site.say({"key": KEY.format(2), "undoes": KEY.format(1)}, holder="ann", n=4)
    assert told["questions"] == first
    assert first[0] not in site.get("/api/questions?holder=bob&n=20")["questions"]


def test_undoing_an_answer_takes_back_its_correction_too(site: Site, campaign: Campaign) -> None:
    (pair,) = site.get("/api/questions?holder=h&n=1")["questions"]
    site.say(answer(1, pair, "similar"))
    number = site.get("/api/answers")["answers"][0]["id"]
    site.say({"key": KEY.format(2), "of": number, "verdict": "dissimilar"})
    site.say({"key": KEY.format(3), "undoes": KEY.format(1)})
    assert stored(campaign) == []


def test_answers_to_another_campaign_are_not_taken(site: Site, campaign: Campaign) -> None:
    sent = {"holder": "h", "events": [answer(1, {"a": 0, "b": 1}, "similar")]}
    assert site("POST", "/api/answers", {**sent, "campaign": "another"}).status == 409
    assert campaign.store.events() == 0
    own = site.get("/api/state")["id"]
    assert own == campaign.id
    assert site("POST", "/api/answers", {**sent, "campaign": own}).status == 200


def test_an_answer_the_disk_refuses_is_not_called_done(site: Site, campaign: Campaign) -> None:
    event = answer(1, {"a": 0, "b": 1}, "similar")
    with closing(sqlite3.connect(campaign.store.path, isolation_level=None)) as other:
        campaign.store._db.execute("PRAGMA busy_timeout = 100")
        other.execute("BEGIN IMMEDIATE")  # somebody holds the file
        refused = site("POST", "/api/answers", {"holder": "h", "events": [event]})
        other.execute("ROLLBACK")
    assert refused.status == 503
    assert "do the last step again" in refused.json["detail"]
    assert "error" not in site.say(event)["done"][0]
    assert stored(campaign) == [(0, 1, SIMILAR, "me")]


def test_many_at_once_lose_nothing_and_double_nothing(site: Site, campaign: Campaign) -> None:
    """Eight screens answer as fast as they can, and send every event twice."""
    given: list[tuple[int, int]] = []

    def person(name: str) -> None:
        questions = site.get(f"/api/questions?holder={name}&annotator={name}&n=2")["questions"]
        for number in range(6):
            if not questions:
                return
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
    assert sorted((a, b) for a, b, _, _ in stored(campaign)) == sorted(given)
    assert campaign.store.events() == 48


# -- contradictions, review ------------------------------------------------------------------------


def test_a_contradiction_is_shown_with_what_is_behind_it_and_settled(site: Site, campaign: Campaign) -> None:
    triangle = [
        ({"a": 0, "b": 1}, "similar"),
        ({"a": 1, "b": 2}, "similar"),
        ({"a": 0, "b": 2}, "dissimilar"),
    ]
    state = site.say(*(answer(i, pair, word) for i, (pair, word) in enumerate(triangle)))["state"]
    assert state["standing"]["contradictions"] == 1
    (found,) = site.get("/api/contradictions")
    assert [(row["a"], row["b"], row["verdict"]) for row in found["answers"]] == [
        (0, 1, "similar"),
        (1, 2, "similar"),
        (0, 2, "dissimilar"),
    ]
    wrong = found["answers"][1]["id"]
    state = site.say({"key": KEY.format(9), "of": wrong, "verdict": "dissimilar"}, annotator="chief")["state"]
    assert state["standing"]["contradictions"] == 0
    assert site.get("/api/contradictions") == []
    row = campaign.store.standing()[-1]
    assert (row.a, row.b, row.verdict, row.annotator, row.entered) == (1, 2, DISSIMILAR, "me", "chief")


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


def test_an_unsure_pair_is_asked_again_only_when_somebody_wants_it(site: Site) -> None:
    (pair,) = site.get("/api/questions?holder=h&n=1")["questions"]
    assert pair not in site.say(answer(1, pair, "unsure"), n=20)["questions"]
    (row,) = site.get("/api/answers?verdict=unsure")["answers"]
    assert site("POST", "/api/again", {"ids": [row["id"]]}).json == {"asked": 1}
    assert site.get("/api/questions?holder=other&n=1")["questions"] == [pair]


def test_answers_the_model_disagrees_with_come_strongest_first(site: Site, campaign: Campaign) -> None:
    vectors = campaign.vectors()
    nearest = [int(np.argsort(-(vectors[i] @ vectors.T))[1]) for i in (0, 40)]
    far = int(np.argmin(vectors[80] @ vectors.T))
    top = heldout.top(vectors, campaign.images, campaign.plan.rng(5))
    turn.save(campaign.round_folder(0), vectors=np.asarray(vectors), top=top)
    nothing = Questions.of(Pairs.none(), 1, "mgue")
    campaign.store.finish_round(0, {"limit": 0.5}, nothing, Audit([], []))
    site.say(
        answer(1, {"a": 0, "b": nearest[0]}, "dissimilar"),
        answer(2, {"a": 40, "b": nearest[1]}, "similar"),
        answer(3, {"a": 80, "b": far}, "similar"),
    )
    rows = site.get("/api/answers?doubtful=true")["answers"]
    assert {(row["a"], row["b"]) for row in rows} == {
        (min(0, nearest[0]), max(0, nearest[0])),
        (min(80, far), max(80, far)),
    }
    assert rows[0]["doubt"] >= rows[1]["doubt"] > 0
    assert rows[0]["doubt"] == pytest.approx(abs(rows[0]["score"] - 0.5), abs=1e-3)


# -- state, progress -------------------------------------------------------------------------------


def test_the_state_says_how_far_the_campaign_is(site: Site) -> None:
    state = site.get("/api/state")
    assert state["standing"] == {
        "images": 120, "answers": 0, "similar": 0, "dissimilar": 0, "unsure": 0, "held_back": 0, "labels": 0,
        "implied": 0, "contradictions": 0, "rounds": 0, "queued": 30,
    }  # fmt: skip
    assert (state["campaign"], state["criterion"], state["images"], state["share"]) == ("c", "", 120, None)
    assert state["aim"] == [0.3, 0.7]
    assert state["machine"]["state"] == "absent"
    assert (state["machine"]["fresh"], state["machine"]["needed"]) == (0, 10)
    assert "anneal label starts it" in state["machine"]["text"]


def test_the_machine_s_words_reach_the_page(site: Site, campaign: Campaign) -> None:
    campaign.store.set_machine(state="learning", step="learning", done=30, total=200)
    machine = site.get("/api/state")["machine"]
    assert (machine["state"], machine["done"], machine["total"]) == ("learning", 30, 200)
    campaign.store.set_machine(state="failed", error="The disk is full.", again=0)
    assert "The disk is full." in site.get("/api/state")["machine"]["text"]


def test_the_criterion_is_the_owner_s_to_word(site: Site) -> None:
    assert site("PUT", "/api/criterion", {"text": " same <b>land</b> use "}).json == {
        "criterion": "same <b>land</b> use"
    }
    assert site.get("/api/state")["criterion"] == "same <b>land</b> use"
    assert site("PUT", "/api/criterion", {"text": "x" * 500}).status == 422


def test_a_model_that_is_not_in_service_is_neither_searched_with_nor_kept_quiet(
    site: Site, campaign: Campaign
) -> None:
    told = site.get("/api/progress")
    assert (told["serving"], told["refusal"]) == (FROZEN, "")
    found = site.get("/api/search?image=0&k=5")
    turn.save(campaign.round_folder(0), vectors=np.asarray(campaign.vectors())[::-1].copy())
    nothing = Questions.of(Pairs.none(), 1, "mgue")
    campaign.store.finish_round(0, {"limit": 0.5, "serves": FROZEN}, nothing, Audit([], []))
    assert site.get("/api/search?image=0&k=5") == found
    told = site.get("/api/progress")
    assert told["serving"] == FROZEN
    assert "not in service" in told["refusal"]


def test_progress_tells_quality_only_by_questions_drawn_by_lot(site: Site, campaign: Campaign) -> None:
    told = site.get("/api/progress")
    assert [(m["round"], m["answers"], m["p5"]) for m in told["models"]] == [(FROZEN, 0, None)]
    queue = campaign.store.questions()
    assert queue.audit.sum() == 3
    labels = campaign.archive().labels
    for number, (a, b) in enumerate(queue.pairs):
        word = "similar" if labels[a] == labels[b] else "dissimilar"
        site.say(answer(number, {"a": a, "b": b}, word, looked=2000))
    told = site.get("/api/progress")
    assert told["held_back"] == 3
    (model,) = told["models"]
    assert model["low"] is None or 0 <= model["low"] <= model["p5"] <= model["high"] <= 1
    assert told["people"] == [{"annotator": "me", "answers": 30, "per_minute": 30.0, "unsure": 0}]
    assert [share["answers"] for share in told["shares"]] == [27]
    assert told["advice"]["stop"] is False


# -- images, search --------------------------------------------------------------------------------


def test_images_are_served_by_number_and_nothing_else(site: Site, campaign: Campaign) -> None:
    with Image.open(io.BytesIO(site("GET", "/api/images/7").body)) as large:
        assert (large.format, large.size) == ("JPEG", (48, 48))
    small = site("GET", "/api/thumbs/7")
    with Image.open(io.BytesIO(small.body)) as image:
        assert image.size == (160, 160)
    assert "immutable" in small.headers["cache-control"]
    assert (campaign.folder / "cache" / "pictures" / "small" / "0000" / "7.jpg").read_bytes() == small.body
    for wrong in ("/api/images/120", "/api/images/-1", "/api/thumbs/99999999999999999999"):
        assert site("GET", wrong).status == 404, wrong
    for wrong in (
        "/api/images/..%2F..%2Fcampaign.sqlite",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/c",
    ):
        assert site("GET", wrong).status in (404, 422), wrong
    names = site.get("/api/names?offset=118&limit=10")
    assert (names["total"], names["names"]) == (120, list(campaign.archive().paths[118:]))


def test_an_image_whose_file_is_gone_is_still_shown(tmp_path: Path, made: Path, drawn: Path) -> None:
    shutil.copytree(made, tmp_path / "c")
    opened = Campaign.open(tmp_path / "c")
    opened.store.set(archive={**opened.store.settings()["archive"], "root": str(tmp_path / "gone")})
    opened.close()
    moved = Campaign.open(tmp_path / "c")
    with page_of(moved) as site:
        reply = site("GET", "/api/images/7")
        with Image.open(io.BytesIO(reply.body)) as image:
            assert image.size == (32, 32)  # what was kept of it
        assert reply.headers["cache-control"] == "no-store"
    assert not list((tmp_path / "c" / "cache").rglob("*.jpg"))  # nor is it taken for the image ever after
    moved.close()


def test_search_finds_the_nearest_and_is_refined_by_examples(site: Site, campaign: Campaign) -> None:
    vectors = campaign.vectors()
    order = np.argsort(-(vectors[5] @ vectors.T), kind="stable")
    found = site.get("/api/search?image=5&k=4")
    assert [hit["id"] for hit in found["results"]] == order[1:5].tolist()
    assert found["results"][0]["score"] == pytest.approx(float(vectors[5] @ vectors[order[1]]), abs=1e-3)
    assert (found["round"], found["threshold"]) == (None, None)
    plus, minus = int(order[30]), int(order[1])
    wanted = (vectors[5] + vectors[plus]) / 2 - vectors[minus] / 2
    refined = site.get(f"/api/search?image=5&plus={plus}&minus={minus}&k=3")
    best = [i for i in np.argsort(-(wanted @ vectors.T), kind="stable").tolist() if i not in (5, plus, minus)]
    assert [hit["id"] for hit in refined["results"]] == best[:3]
    for wrong in ("", "image=500", "image=5&plus=a,b", "image=5&k=0", "query=unknown", "image=5&minus=-3"):
        assert site("GET", f"/api/search?{wrong}").status in (404, 422), wrong


def png(width: int, height: int) -> bytes:
    """A small file that claims to be this large an image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


def test_an_image_brought_to_search_with_waits_for_the_machine(site: Site, campaign: Campaign) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (10, 120, 200)).save(file, "PNG")
    reply = site("POST", "/api/queries", file.getvalue())
    assert reply.status == 202
    name = reply.json["id"]
    waiting = site.get(f"/api/queries/{name}")
    assert waiting["state"] == "waiting"
    assert "not running" in waiting["text"]
    assert site("GET", f"/api/search?query={name}").status == 409
    with Image.open(io.BytesIO(site("GET", f"/api/queries/{name}/image").body)) as image:
        assert image.size == (32, 32)
    vector = np.asarray(campaign.vectors()[33], dtype=np.float32)
    campaign.store.encoded(name, FROZEN, vector.tobytes(), None)  # the machine's part
    assert site.get(f"/api/queries/{name}")["state"] == "ready"
    assert site.get(f"/api/search?query={name}&k=1")["results"][0]["id"] == 33
    assert site("GET", "/api/queries/unknown").status == 404


def test_what_is_brought_has_limits(site: Site) -> None:
    for data, why in (
        (b"not an image at all", "cannot be read"),
        (b"", "cannot be read"),
        (png(12_000, 12_000), "more than 100 million"),
    ):
        reply = site("POST", "/api/queries", data)
        assert reply.status == 422
        assert why in reply.json["detail"]
    for path, length, limit in (("/api/queries", 33 * 2**20, "32 MB"), ("/api/answers", 2 * 2**20, "1 MB")):
        with closing(HTTPConnection(site.address.split("/")[2])) as line:
            line.putrequest("POST", path)
            line.putheader("content-length", str(length))
            line.endheaders()  # refused before any of it is sent
            told = line.getresponse()
            assert told.status == 413
            assert limit in json.loads(told.read())["detail"]
        with closing(HTTPConnection(site.address.split("/")[2])) as line:
            line.putrequest("POST", path)
            line.putheader("transfer-encoding", "chunked")  # of a length nobody knows beforehand
            line.endheaders()
            with suppress(OSError):  # hung up on, at the limit
                for _ in range(length // 2**16 + 1):
                    line.send(b"10000\r\n" + bytes(2**16) + b"\r\n")
                line.send(b"0\r\n\r\n")
            with suppress(OSError, HTTPException):
                assert line.getresponse().status in (400, 413)


# -- who may come in -------------------------------------------------------------------------------


def test_only_somebody_who_was_told_to_come_here_gets_in(site: Site) -> None:
    assert site("GET", "/api/state", headers={"host": "evil.example"}).status == 421
    assert site("GET", "/api/state", headers={"host": "localhost:1"}).status == 200
    assert site("GET", "/api/state", headers={"host": "127.0.0.1.evil.example"}).status == 421


def test_another_site_s_page_can_send_nothing(site: Site, campaign: Campaign) -> None:
    sent = {"holder": "h", "events": [answer(1, {"a": 0, "b": 1}, "similar")]}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        reply = site("POST", "/api/answers", sent, headers={"origin": origin})
        assert reply.status == 403, origin
    assert site("GET", "/api/questions?holder=x", headers={"sec-fetch-site": "cross-site"}).status == 403
    assert campaign.store.events() == 0
    assert campaign.store.leases() == []
    own = site.address.rstrip("/")
    assert site("POST", "/api/answers", sent, headers={"origin": own}).status == 200


def test_every_answer_tells_the_browser_to_trust_nothing_but_this_page(site: Site) -> None:
    for path in ("/", "/docs", "/static/app.js", "/api/state", "/api/images/0", "/nowhere"):
        headers = site("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert site("GET", "/api/state", headers={"host": "evil.example"}).headers["content-security-policy"]


def test_the_pages_load_nothing_from_elsewhere() -> None:
    import anneal.web

    static = Path(anneal.web.__file__).parent / "static"
    pages = sorted(static.iterdir())
    assert {"index.html", "docs.html", "style.css", "app.js"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, page.name
        assert "https://" not in text, page.name
        assert " style=" not in text, page.name
        assert "innerHTML" not in text, page.name
        assert "<script>" not in text, page.name


def test_with_a_token_only_those_who_know_it_get_in(campaign: Campaign) -> None:
    with page_of(campaign, "open sesame") as site:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "anneal=wrong"}):
            assert site("GET", "/api/state", headers=headers).status == 401
        assert site("GET", "/?token=wrong").status == 401
        welcome = site("GET", "/?token=open%20sesame")
        assert (welcome.status, welcome.headers["location"]) == (303, "/")
        cookie = welcome.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        name = cookie.split(";")[0]
        assert site("GET", "/api/state", headers={"cookie": name}).status == 200
        assert site("GET", "/api/state", headers={"authorization": "Bearer open sesame"}).status == 200
        known = {"authorization": "Bearer open sesame", "host": "archive.example:8000"}
        assert site("GET", "/api/state", headers=known).status == 200


def test_listening_to_others_wants_a_token(campaign: Campaign) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anneal", "label", "--campaign", str(campaign.folder), "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        env={"PATH": "", "COLUMNS": "300"},
        check=False,
    )
    assert done.returncode == 2
    assert "--token" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_interface_describes_itself(site: Site) -> None:
    described = json.loads(site("GET", "/openapi.json").body)
    assert {"/api/questions", "/api/answers", "/api/search", "/api/progress"} <= set(described["paths"])
    assert site("GET", "/docs").status == 200
