"""Pictures and names of images."""

from __future__ import annotations

import io
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from anneal.archive import safely
from anneal.campaign.campaign import Campaign
from anneal.campaign.inventory import Reason, Retired
from served import Site, page_of


def test_images_are_served_by_id_and_nothing_else_is(site: Site, campaign: Campaign) -> None:
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


def test_names_come_in_the_order_of_the_ids(site: Site, campaign: Campaign) -> None:
    names = site.get("/api/names?offset=118&limit=10")
    assert (names["total"], names["names"]) == (120, list(campaign.archive().paths[118:]))


def test_an_image_whose_file_is_gone_is_shown_from_its_stored_pixels(tmp_path: Path, made: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "c"))
    campaign = Campaign.open(folder)
    where = campaign.store.settings()["archive"]
    campaign.store.set(archive={**where, "root": str(tmp_path / "gone"), "beside": "gone"})
    campaign.close()
    moved = Campaign.open(folder)
    with page_of(moved) as site:
        reply = site("GET", "/api/images/7")
        with Image.open(io.BytesIO(reply.body)) as image:
            assert image.size == (32, 32)
        assert reply.headers["cache-control"] == "no-store"
    moved.close()
    assert not list((folder / "cache").rglob("*.jpg"))  # it is not kept in place of the image


def test_pipes_and_bombs_in_place_of_images_do_not_stop_the_server(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """45 people ask for each at once; they get the stored pixels. The bomb is sent as an upload too."""
    monkeypatch.setattr(safely, "MEMORY", 1 << 28)
    folder = Path(shutil.copytree(made, tmp_path / "c"))
    with closing(Campaign.open(folder)) as before:
        where = before.store.settings()["archive"]
        before.store.set(archive={**where, "root": str(tmp_path / "other"), "beside": "other"})
    with closing(Campaign.open(folder)) as campaign:
        pipe, bomb = (campaign.archive().file(image) for image in (0, 1))
        pipe.parent.mkdir(parents=True)
        os.mkfifo(pipe)
        Image.new("1", (9000, 9000)).save(bomb, "PNG")
        size = bomb.stat().st_size
        with page_of(campaign) as site, ThreadPoolExecutor(90) as people:
            replies = list(people.map(lambda i: site("GET", f"/api/images/{i % 2}"), range(90)))
            assert {(reply.status, reply.headers["cache-control"]) for reply in replies} == {
                (200, "no-store")
            }
            sent = site("POST", "/api/queries", bomb.read_bytes())
            assert (sent.status, size < 20_000) == (422, True)
            assert "it needs more than 0.25 GB to decode" in sent.json["detail"]
            assert site("GET", "/api/state").status == 200


def test_retired_images_are_told_and_not_found_and_an_update_can_be_asked_for(
    site: Site, campaign: Campaign
) -> None:
    before = site.get("/api/state")
    assert (before["images"], before["archive"]["lines"], site.get("/api/retired")) == (120, [], [])
    campaign.inventory.retire({3: Retired(Reason.REMOVED), 5: Retired(Reason.NEAR, 4)})
    campaign.inventory.note_growth()
    state = site.get("/api/state")
    assert state["images"] == 118
    assert state["archive"]["version"] != before["archive"]["version"]
    assert state["archive"]["lines"] == [
        "Retired because the file is gone: 1",
        "Left out because another image shows the same picture: 1",
    ]
    assert site.get("/api/retired") == [3, 5]
    results = site.get("/api/search?image=3&k=200")["results"]
    assert {result["id"] for result in results} == set(range(120)) - {3, 5}
    assert site("POST", "/api/update").status == 202
    assert site.get("/api/state")["archive"]["wanted"] is True
    assert site("GET", "/api/images/120").status == 404
