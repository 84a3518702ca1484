"""Who gets in, and what the browser is told."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

import anneal.web
from anneal import cli
from anneal.campaign.campaign import Campaign
from anneal.errors import UsageError
from anneal.web import serve
from anneal.web.guesses import FORGET, FREE, LONGEST, Guesses
from served import Reply, Site, answer, label, page_of


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
        assert "SameSite=lax" in cookie
        assert "Secure" not in cookie
        name = cookie.split(";")[0]
        assert site("GET", "/api/state", headers={"cookie": name}).status == 200
        assert site("GET", "/api/state", headers={"authorization": "Bearer open sesame"}).status == 200
        known = {"authorization": "Bearer open sesame", "host": "archive.example:8000"}
        assert site("GET", "/api/state", headers=known).status == 200


def test_each_new_wrong_token_makes_the_next_one_wait_longer() -> None:
    now = [1000.0]
    guesses = Guesses(clock=lambda: now[0])
    waits = []
    for number in range(FREE + 12):
        guesses.add("192.0.2.1", f"guess {number}")
        waits.append(guesses.wait("192.0.2.1"))
        now[0] += waits[-1]
    assert waits[:FREE] == [0.0] * FREE
    assert waits[FREE : FREE + 9] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]
    assert waits[-1] == LONGEST
    guesses.add("192.0.2.1", "guess 3")  # an old one again is no guess
    assert guesses.wait("192.0.2.1") == 0.0
    assert guesses.wait("192.0.2.2") == 0.0
    now[0] += FORGET + 1
    guesses.add("192.0.2.1", "one more")
    assert guesses.wait("192.0.2.1") == 0.0


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    guesses = Guesses()
    for number in range(FREE + 1):
        guesses.add(f"2001:db8::{number:x}", f"guess {number}")
    assert guesses.wait("2001:db8::ffff") > 0
    assert guesses.wait("2001:db8:1::1") == 0.0


def test_tokens_cannot_be_guessed_quickly(campaign: Campaign) -> None:
    def state(site: Site, token: str) -> Reply:
        return site("GET", "/api/state", headers={"authorization": f"Bearer {token}"})

    with page_of(campaign, "open sesame") as site:
        for _ in range(3 * FREE):
            assert state(site, "of yesterday").status == 401  # a page that was left open
        assert state(site, "open sesame").status == 200
        statuses = [state(site, f"guess {number}").status for number in range(3 * FREE)]
        assert statuses[: FREE - 1] == [401] * (FREE - 1)
        assert statuses.count(401) <= FREE + 1
        refused = state(site, "one more")
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "try again in" in refused.json["detail"]


def test_other_machines_need_the_token_that_is_printed(campaign: Campaign) -> None:
    with label(campaign.folder, "--host", "0.0.0.0") as site:
        address = urlsplit(site.address)
        (token,) = parse_qs(address.query)["token"]
        assert len(token) >= 22
        here = Site(f"http://127.0.0.1:{address.port}/")
        assert here("GET", "/api/state").status == 401
        assert here("GET", "/api/state", headers={"authorization": f"Bearer {token}"}).status == 200


def test_a_token_in_a_file_is_not_in_the_list_of_processes(campaign: Campaign, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" open sesame \n", encoding="utf-8")
    with label(campaign.folder, "--token-file", str(file)) as site:
        assert site.address.endswith("?token=open%20sesame")
        seen = Path(f"/proc/{site.process.pid}/cmdline").read_text(encoding="utf-8")
        assert "sesame" not in seen


def test_a_browser_is_not_started_with_the_token(tmp_path: Path) -> None:
    assert serve.without_token("http://127.0.0.1:1/", tmp_path) == "http://127.0.0.1:1/"
    opened = serve.without_token("http://host:1/?token=a%22b", tmp_path)
    assert "token" not in opened
    assert "http://host:1/?token=a%22b" in Path(urlsplit(opened).path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--token-file", "nowhere"), "cannot be read as a token"),
        (("--token-file", "/dev/null"), "is empty"),
        (("--certfile", "nowhere.pem"), "The certificate cannot be used"),
        (("--certfile", "/dev/null"), "The certificate cannot be used"),
        (("--keyfile", "key.pem"), "give --certfile too"),
    ],
)
def test_a_wrong_token_file_or_certificate_is_named(
    campaign: Campaign, options: tuple[str, ...], why: str
) -> None:
    folder = ("--campaign", str(campaign.folder))
    done = CliRunner().invoke(cli.app, ["label", "--no-browser", *folder, *options])
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> serve.Certificate:
    """A certificate of 127.0.0.1, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of this test")
    folder = tmp_path_factory.mktemp("tls")
    made = serve.Certificate(folder / "cert.pem", folder / "key.pem")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=anneal"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(made.key), "-out", str(made.file)]
    subprocess.run([openssl, *words.split(), *names], check=True, capture_output=True)
    return made


def test_the_page_is_served_over_tls(campaign: Campaign, certificate: serve.Certificate) -> None:
    trusting = ssl.create_default_context(cafile=certificate.file)
    with page_of(campaign, "open sesame", certificate) as site:
        assert site.address.startswith("https://")
        with pytest.raises(OSError, match="certificate verify failed"):
            site("GET", "/docs")
        address = urlsplit(site.address)
        assert address.hostname is not None
        line = http.client.HTTPSConnection(address.hostname, address.port, context=trusting, timeout=60)
        line.request("GET", "/?token=open%20sesame")
        welcome = line.getresponse()
        assert welcome.status == 303
        assert "Secure" in (welcome.getheader("set-cookie") or "")
        line.close()
        slow = socket.create_connection((address.hostname, address.port or 0))
        slow.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
        assert b"HTTP" not in slow.recv(100)
        slow.close()


def test_the_interface_describes_itself(site: Site) -> None:
    described = json.loads(site("GET", "/openapi.json").body)
    assert {"/api/questions", "/api/answers", "/api/search", "/api/progress"} <= set(described["paths"])
    assert {"get", "post"} <= set(described["paths"]["/api/answers"])
    assert site("GET", "/docs").status == 200
