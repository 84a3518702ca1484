"""Who gets in, and what the browser is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anneal.web
from anneal.campaign.campaign import Campaign
from served import Site, answer, page_of


def test_only_requests_to_this_machine_s_own_names_get_in(site: Site) -> None:
    assert site("GET", "/api/state", headers={"host": "evil.example"}).status == 421
    assert site("GET", "/api/state", headers={"host": "localhost:1"}).status == 200
    assert site("GET", "/api/state", headers={"host": "127.0.0.1.evil.example"}).status == 421


def test_another_site_s_page_can_send_nothing(site: Site, campaign: Campaign) -> None:
    sent = {"holder": "h", "events": [answer(1, {"a": 0, "b": 1}, "similar")]}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        reply = site("POST", "/api/answers", sent, headers={"origin": origin})
        assert reply.status == 403, origin
    assert site("GET", "/api/questions?holder=x", headers={"sec-fetch-site": "cross-site"}).status == 403
    assert campaign.log().rows == []
    assert campaign.store.leases() == []
    own = site.address.rstrip("/")
    assert site("POST", "/api/answers", sent, headers={"origin": own}).status == 200


def test_every_reply_forbids_the_browser_to_load_anything_else(site: Site) -> None:
    for path in ("/", "/docs", "/static/app.js", "/api/state", "/api/images/0", "/nowhere"):
        headers = site("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert site("GET", "/api/state", headers={"host": "evil.example"}).headers["content-security-policy"]


def test_the_pages_load_nothing_from_elsewhere() -> None:
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


def test_with_a_token_only_requests_that_have_it_get_in(campaign: Campaign) -> None:
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


def test_other_machines_are_let_in_only_with_a_token(campaign: Campaign) -> None:
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
    assert {"get", "post"} <= set(described["paths"]["/api/answers"])
    assert site("GET", "/docs").status == 200
