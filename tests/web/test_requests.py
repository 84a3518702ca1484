"""Requests made by hand: whatever is wrong with them, the reply says so and is never a 5xx."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

from anneal.campaign.campaign import Campaign
from anneal.errors import CampaignError
from served import KEY, Reply, Site, answer, page_of, stored

BIG = str(2**63)
DIGITS = "9" * 4000  # Python refuses to read so many
DEEP = "[" * 950 + "]" * 950
EVENT = '{"holder": "h", "events": [{"key": "12345678", %s}]}'
JSON = {"Content-Type": "application/json"}
ANSWER = '"a": 0, "b": 1, "verdict": "similar"'


def raw(site: Site, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
    """A request sent as it stands: no header is checked or added except Host and the length."""
    address = urlsplit(site.address)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": address.netloc, "Content-Length": str(len(body)), **headers}.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    reply = connection.getresponse()
    sent = Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
    connection.close()
    return sent


BODIES = {
    "an image id of 2⁶³": EVENT % f'"a": {BIG}, "b": 1, "verdict": "similar"',
    "an image id of 4,000 digits": EVENT % f'"a": {DIGITS}, "b": 1, "verdict": "similar"',
    "an answer's id of 2⁶³": EVENT % f'"of": {BIG}, "verdict": "similar"',
    "an answer's id of -2⁶⁴": EVENT % f'"of": -{2**64}, "verdict": "similar"',
    "a look of 2⁶³ ms": EVENT % f'{ANSWER}, "looked": {BIG}',
    "a look of 4,000 digits": EVENT % f'{ANSWER}, "looked": {DIGITS}',
    "asked at NaN": EVENT % f'{ANSWER}, "asked": NaN',
    "asked at infinity": EVENT % f'{ANSWER}, "asked": Infinity',
    "asked at 1e400": EVENT % f'{ANSWER}, "asked": 1e400',
    "asked at 4,000 digits": EVENT % f'{ANSWER}, "asked": {DIGITS}',
    "a lone surrogate as a key": EVENT.replace("12345678", "1234567\\ud800") % ANSWER,
    "a lone surrogate as a name": '{"holder": "h", "annotator": "\\udfff", "events": []}',
    "a lone surrogate as a screen": '{"holder": "\\udfff", "events": []}',
    "a lone surrogate as a campaign": '{"holder": "h", "campaign": "\\udfff", "events": []}',
    "a lone surrogate in an undo": EVENT % '"undoes": "\\udfff"',
    "an unknown field with a lone surrogate": EVENT % f'{ANSWER}, "\\udfff": 1',
    "an unknown field that is NaN": EVENT % f'{ANSWER}, "x": NaN',
    "a key nested 950 deep": EVENT % f'"key": {DEEP}',
    "events nested 950 deep": f'{{"holder": "h", "events": {DEEP}}}',
    "brackets 100,000 deep": "[" * 100_000,
    "objects 100,000 deep": '{"a":' * 100_000,
    "no JSON": "{",
    "nothing": "",
    "bytes that are no text": "\udcff\udcfe",
    "a number": "1",
    "4,000 digits": DIGITS,
    "NaN": "NaN",
}  # fmt: skip


def test_a_wrong_body_is_refused(site: Site, campaign: Campaign) -> None:
    for wrong, text in BODIES.items():
        body = text.encode("utf-8", "surrogateescape")
        reply = raw(site, "POST", "/api/answers", body, **JSON)
        assert reply.status in (400, 422), (wrong, reply.body)
        assert reply.json["detail"], wrong
    assert campaign.log().rows == []


ELSEWHERE = {
    "2⁶³ asked again": ("POST", "/api/again", f'{{"ids": [{BIG}]}}'),
    "4,000 digits asked again": ("POST", "/api/again", f'{{"ids": [{DIGITS}]}}'),
    "a name that is a lone surrogate": ("POST", "/api/again", '{"ids": [], "annotator": "\\udfff"}'),
    "a criterion with a lone surrogate": ("PUT", "/api/criterion", '{"text": "\\ud800"}'),
    "a criterion nested 950 deep": ("PUT", "/api/criterion", f'{{"text": {DEEP}}}'),
    "an image of 2⁶³": ("GET", f"/api/images/{BIG}", ""),
    "an image of 4,000 digits": ("GET", f"/api/images/{DIGITS}", ""),
    "a thumb of 4,000 digits": ("GET", f"/api/thumbs/{DIGITS}", ""),
    "names from 2⁶³ on": ("GET", f"/api/names?offset={BIG}", ""),
    "names from 4,000 digits on": ("GET", f"/api/names?offset={DIGITS}", ""),
    "names before the first": ("GET", "/api/names?offset=-1", ""),
    "answers from 4,000 digits on": ("GET", f"/api/answers?offset={DIGITS}", ""),
    "answers from 2⁶³ on": ("GET", f"/api/answers?offset={BIG}", ""),
    "a search by 2⁶³": ("GET", f"/api/search?image={BIG}", ""),
    "a search by 4,000 digits": ("GET", f"/api/search?plus={DIGITS * 2}", ""),
    "a search without 4,000 digits": ("GET", f"/api/search?image=1&minus={DIGITS * 2}", ""),
    "a search by digits of another script": ("GET", "/api/search?plus=%D9%A1%D9%A2%D9%A3%D9%A4", ""),
    "a search by a superscript": ("GET", "/api/search?plus=%C2%B2", ""),
    "answers about 5,000 digits": ("GET", f"/api/answers?pair={DIGITS}99999", ""),
    "a screen's name of 10,000 letters": ("GET", f"/api/questions?holder={'x' * 10_000}", ""),
    "no screen": ("GET", "/api/questions", ""),
    "an empty screen": ("GET", "/api/questions?holder=", ""),
    "a query that is not there": ("GET", "/api/queries/%ff%00", ""),
    "a file with a zero in its name": ("GET", "/static/%00", ""),
    "a file above": ("GET", "/static/..%2f..%2fapp.py", ""),
    "a file with a long name": ("GET", f"/static/{'x' * 5000}", ""),
    "an upload that is no image": ("POST", "/api/queries", "no image"),
    "an empty upload": ("POST", "/api/queries", ""),
}


def test_a_wrong_request_is_refused(site: Site) -> None:
    for wrong, (method, path, body) in ELSEWHERE.items():
        reply = raw(site, method, path, body.encode(), **JSON)
        assert 400 <= reply.status < 500, (wrong, reply.body)
        assert reply.json["detail"], wrong


HEADERS: list[tuple[str, str, set[int]]] = [
    ("Host", "[", {421}), ("Host", "[::1", {421}), ("Host", "", {421}), ("Host", "\xff", {400, 421}),
    ("Host", "localhost:x", {200}), ("Origin", "http://[", {403}), ("Origin", "[", {403}),
    ("Origin", "\xff", {400, 403}), ("Content-Length", "9" * 4000, {400, 413}),
    ("Cookie", "a=\xff; \x7f", {200, 400}),
]  # fmt: skip


def test_a_wrong_header_is_refused(site: Site) -> None:
    for number, (name, value, wanted) in enumerate(HEADERS):
        event = json.dumps({"holder": "h", "events": [answer(number, {"a": 0, "b": 1}, "similar")]})
        reply = raw(site, "POST", "/api/answers", event.encode(), **JSON, **{name: value})
        assert reply.status in wanted, (name, value, reply.body)


def test_a_wrong_header_does_not_replace_a_token(campaign: Campaign) -> None:
    with page_of(campaign, "open sesame") as site:
        for name, value in (("Host", "["), ("Cookie", "anneal=\xff"), ("Authorization", "Bearer \xff")):
            assert raw(site, "GET", "/api/state", b"", **{name: value}).status in (400, 401), name
        known = {"Authorization": "Bearer open sesame"}
        assert raw(site, "POST", "/api/answers", b"{}", Origin="http://[", **known).status == 403


# -- what is saved is confirmed ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vectors.npy", "agenda.npz", "top.npy"])
def test_a_torn_file_does_not_fail_an_answer_that_is_saved(site: Site, campaign: Campaign, name: str) -> None:
    for file in campaign.folder.glob(f"rounds/*/{name}"):
        file.write_bytes(b"")
    events = [answer(number, {"a": 0, "b": number}, "similar") for number in (1, 2)]
    reply = site.say(*events)
    assert [one["key"] for one in reply["done"]] == [one["key"] for one in events]
    assert stored(campaign) == [(0, 1, "similar"), (0, 2, "similar")]
    if reply["state"] is None:
        assert "answers are saved" in reply["problem"]
        assert reply["questions"] == []


def test_an_answer_is_confirmed_when_the_next_question_cannot_be_chosen(
    site: Site, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Campaign, known: object) -> list[tuple[int, int]]:
        raise CampaignError("A file of round 3 is torn: run anneal check.")

    monkeypatch.setattr(Campaign, "open_heldout", broken)
    reply = site.say(answer(1, {"a": 0, "b": 1}, "similar"))
    assert reply["done"] == [{"key": KEY.format(1), "a": 0, "b": 1, "verdict": "similar"}]
    assert "A file of round 3 is torn: run anneal check." in reply["problem"]
    assert stored(campaign) == [(0, 1, "similar")]
    asked = site("GET", "/api/questions?holder=h")
    assert (asked.status, asked.json["detail"]) == (503, "A file of round 3 is torn: run anneal check.")

    def wrong(self: Campaign, known: object) -> list[tuple[int, int]]:
        raise KeyError("a bug")

    monkeypatch.setattr(Campaign, "open_heldout", wrong)
    reply = site.say(answer(2, {"a": 0, "b": 2}, "similar"))
    assert len(reply["done"]) == 1
    assert "a bug" not in reply["problem"]
    asked = site("GET", "/api/questions?holder=h")
    assert asked.status == 500
    assert "which has printed what" in asked.json["detail"]
    assert "default-src 'none'" in asked.headers["content-security-policy"]
