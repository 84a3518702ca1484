"""Search by an image of the archive, by an uploaded one, and with more examples."""

from __future__ import annotations

import io
import json
import struct
import zlib
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException

import numpy as np
import pytest
from PIL import Image

from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.method.neighbours import build_index
from served import Site, finish_round


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (10, 120, 200)).save(file, "PNG")
    return file.getvalue()


def test_search_gives_the_nearest_images_and_is_refined_by_examples(site: Site, campaign: Campaign) -> None:
    vectors = np.array(campaign.rounds.vectors())
    order = np.argsort(-(vectors[5] @ vectors.T), kind="stable")
    reply = site.get("/api/search?image=5&k=4")
    assert [result["id"] for result in reply["results"]] == order[1:5].tolist()
    assert reply["results"][0]["score"] == pytest.approx(float(vectors[5] @ vectors[order[1]]), abs=1e-3)
    assert (reply["round"], reply["threshold"]) == (None, None)
    plus = int(order[30])
    minus = int(order[1])
    wanted = (vectors[5] + vectors[plus]) / 2 - vectors[minus] / 2
    refined = site.get(f"/api/search?image=5&plus={plus}&minus={minus}&k=3")
    best = [i for i in np.argsort(-(wanted @ vectors.T), kind="stable").tolist() if i not in (5, plus, minus)]
    assert [result["id"] for result in refined["results"]] == best[:3]
    for wrong in ("", "image=500", "image=5&plus=a,b", "image=5&k=0", "query=unknown", "image=5&minus=-3"):
        assert site("GET", f"/api/search?{wrong}").status in (404, 422), wrong


def test_an_uploaded_image_waits_for_the_machine(site: Site, campaign: Campaign) -> None:
    reply = site("POST", "/api/queries", picture())
    assert reply.status == 202
    name = reply.json["id"]
    waiting = site.get(f"/api/queries/{name}")
    assert waiting["state"] == "waiting"
    assert "not running" in waiting["text"]
    assert site("GET", f"/api/search?query={name}").status == 409
    with Image.open(io.BytesIO(site("GET", f"/api/queries/{name}/image").body)) as image:
        assert image.size == (32, 32)
    vector = np.asarray(campaign.rounds.vectors()[33], dtype=np.float32)
    campaign.mailbox.encoded(name, FROZEN, vector.tobytes(), None)  # the machine's part
    assert site.get(f"/api/queries/{name}")["state"] == "ready"
    assert site.get(f"/api/search?query={name}&k=1")["results"][0]["id"] == 33
    assert site("GET", "/api/queries/unknown").status == 404


def test_an_image_that_an_earlier_model_encoded_is_searched_in_its_space_with_its_cutoff(
    site: Site, campaign: Campaign
) -> None:
    """A new model may start to serve after an uploaded image was encoded."""
    first = np.array(campaign.rounds.vectors())
    finish_round(campaign, cutoff=0.25)
    name = site("POST", "/api/queries", picture()).json["id"]
    campaign.mailbox.encoded(name, 0, first[33].astype(np.float32).tobytes(), None)
    finish_round(campaign, cutoff=0.75, vectors=first[::-1])
    by_upload = site.get(f"/api/search?query={name}&k=1")
    assert (by_upload["round"], by_upload["threshold"]) == (0, 0.25)
    assert by_upload["results"][0]["id"] == 33
    by_image = site.get("/api/search?image=33&k=1")
    assert (by_image["round"], by_image["threshold"]) == (1, 0.75)


def test_an_image_whose_model_has_lost_its_vectors_is_searched_later(site: Site, campaign: Campaign) -> None:
    """The machine encodes it again for the serving model."""
    finish_round(campaign, cutoff=0.25)
    name = site("POST", "/api/queries", picture()).json["id"]
    campaign.mailbox.encoded(name, 0, campaign.rounds.vectors()[33].tobytes(), None)
    finish_round(campaign, cutoff=0.75)
    campaign.rounds.files(0).remove()
    reply = site("GET", f"/api/search?query={name}")
    assert reply.status == 409
    assert reply.json["detail"] == "That image is being encoded for the newest model: try again."
    campaign.mailbox.encoded(name, 1, campaign.rounds.vectors()[33].tobytes(), None)
    assert site.get(f"/api/search?query={name}&k=1")["results"][0]["id"] == 33


def test_a_page_searches_by_an_index_where_there_is_one(site: Site, campaign: Campaign) -> None:
    by_all = site.get("/api/search?image=5&plus=9&minus=2&k=4")
    name = site("POST", "/api/queries", picture()).json["id"]
    campaign.mailbox.encoded(name, FROZEN, campaign.rounds.vectors()[33].tobytes(), None)
    finish_round(campaign, cutoff=0.5)
    files = campaign.rounds.files(0)
    files.save_index(build_index(files.vectors()))
    by_index = site.get("/api/search?image=5&plus=9&minus=2&k=4")
    assert (by_index["round"], by_index["results"]) == (0, by_all["results"])
    assert site.get(f"/api/search?query={name}&k=1")["results"][0]["id"] == 33, "in the frozen space"


def test_a_model_that_does_not_serve_is_not_searched(site: Site, campaign: Campaign) -> None:
    before = site.get("/api/search?image=0&k=5")
    finish_round(campaign, cutoff=0.5, vectors=campaign.rounds.vectors()[::-1], serving=FROZEN)
    assert site.get("/api/search?image=0&k=5") == before


def png(width: int, height: int) -> bytes:
    """A small file that claims to be this large an image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"not an image at all", "cannot be read"),
        (b"", "cannot be read"),
        (png(12_000, 12_000), "more than 100 million"),
    ],
)
def test_a_file_that_is_no_image_or_too_large_an_image_is_refused(site: Site, data: bytes, why: str) -> None:
    reply = site("POST", "/api/queries", data)
    assert reply.status == 422
    assert why in reply.json["detail"]


@pytest.mark.parametrize(
    ("path", "length", "most"), [("/api/queries", 33 * 2**20, "32 MB"), ("/api/answers", 2 * 2**20, "1 MB")]
)
def test_a_request_that_is_too_long_is_refused(site: Site, path: str, length: int, most: str) -> None:
    with closing(HTTPConnection(site.address.split("/")[2])) as line:
        line.putrequest("POST", path)
        line.putheader("content-length", str(length))
        line.endheaders()  # refused before anything is sent
        reply = line.getresponse()
        assert reply.status == 413
        assert most in json.loads(reply.read())["detail"]
    with closing(HTTPConnection(site.address.split("/")[2])) as line:
        line.putrequest("POST", path)
        line.putheader("transfer-encoding", "chunked")  # its length is not known beforehand
        line.endheaders()
        with suppress(OSError):  # the server may close the connection
            for _ in range(length // 2**16 + 1):
                line.send(b"10000\r\n" + bytes(2**16) + b"\r\n")
            line.send(b"0\r\n\r\n")
        with suppress(OSError, HTTPException):
            assert line.getresponse().status in (400, 413)
