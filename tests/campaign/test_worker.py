"""The machine's process behind the page: real processes, really killed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.pairs import Verdict
from anneal.web.app import AHEAD
from served import Label, Site, label, wait_for

pytestmark = pytest.mark.xdist_group("processes")  # each starts several: one after another


@pytest.fixture(scope="session")
def made(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine") / "campaign"
    words = f"init {drawn} --campaign {folder} --px 64 --views 1 --strategy mgue --per-round 24"
    subprocess.run([sys.executable, "-m", "anneal", *words.split()], check=True, capture_output=True)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "campaign"))


def kinds(drawn: Path, site: Site) -> list[str]:
    return [name.split("/")[0] for name in site.get("/api/names?limit=1000")["names"]]


def answer(site: Site, n: int, truth: list[str], name: str = "me") -> list[str]:
    """Answer n questions as the folders say; the keys sent."""
    keys: list[str] = []
    questions = site.get(f"/api/questions?holder={name}&annotator={name}&n=1")["questions"]
    for _ in range(n):
        a, b = questions[0]["a"], questions[0]["b"]
        keys.append(f"{name}-{a}-{b}-{len(keys)}-{os.urandom(4).hex()}")
        word = "similar" if truth[a] == truth[b] else "dissimilar"
        event = {"key": keys[-1], "a": a, "b": b, "verdict": word, "looked": 1000}
        questions = site.say(event, annotator=name, holder=name, n=1)["questions"]
    return keys


def rounds(site: Site) -> int:
    return int(site.get("/api/state")["standing"]["rounds"])


def machines(folder: Path) -> list[int]:
    """Processes that work for this campaign."""
    found = subprocess.run(
        ["pgrep", "-f", f"anneal worker --campaign {folder}"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in found.stdout.split()]


def test_the_machine_learns_while_the_person_goes_on(folder: Path, drawn: Path) -> None:
    with label(folder) as site:
        truth = kinds(drawn, site)
        assert site.get("/api/state")["machine"]["needed"] == 8
        answer(site, 12, truth)  # a third of a batch, and then on without a wait
        wait_for(lambda: rounds(site) == 1)
        assert site.get("/api/state")["standing"]["answers"] == 12
        told = site.get("/api/progress")
        assert [model["round"] for model in told["models"]] == [-1, 0]
        fresh = site.get("/api/questions?holder=me&n=20")["questions"]
        assert len(fresh) == 20
        found = site.get("/api/search?image=0&k=5")
        assert found["round"] == 0
        assert found["threshold"] is not None

        # An image from outside is encoded beside the turns.
        file = io.BytesIO()
        with Image.open(next((drawn / "beach").iterdir())) as image:
            image.transpose(Image.Transpose.ROTATE_90).save(file, "PNG")
        name = site("POST", "/api/queries", file.getvalue()).json["id"]
        wait_for(lambda: site.get(f"/api/queries/{name}")["state"] == "ready")
        hits = site.get(f"/api/search?query={name}&k=3")["results"]
        assert hits[0]["name"].startswith("beach/")
        process = site.process
    assert process.returncode == 0  # ctrl-c ends both, in order
    wait_for(lambda: not machines(folder))


def test_questions_made_one_by_one_go_on_in_the_new_round(drawn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "placing"
    words = f"init {drawn} --campaign {folder} --px 64 --views 1 --per-round 24 --strategy place"
    command = [sys.executable, "-m", "anneal", *words.split()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "questions are made one by one" in done.stdout
    with label(folder) as site:
        truth = kinds(drawn, site)
        answer(site, 14, truth)
        wait_for(lambda: rounds(site) >= 1)
        assert site.get("/api/state")["aim"] is None
        answer(site, 5, truth)
        assert (
            len(site.get("/api/questions?holder=me&n=6")["questions"]) == AHEAD
        )  # the rest depends on these
    with closing(Campaign.open(folder)) as campaign:
        said, given = campaign.store.standing(), campaign.store.given()
    assert {row.strategy for row in said} == {"place", "audit"}
    assert {row.round for row in said} >= {0, 1}
    assert given == 19  # what was asked again counts as often


def test_a_machine_that_is_killed_is_started_again_and_nothing_is_lost(folder: Path, drawn: Path) -> None:
    with label(folder) as site:
        truth = kinds(drawn, site)
        wait_for(lambda: bool(machines(folder)))
        for pid in machines(folder):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: site.get("/api/state")["machine"]["state"] in ("restarting", "idle", "learning"))
        answer(site, 9, truth)
        wait_for(lambda: rounds(site) == 1)
        assert site.get("/api/state")["standing"]["answers"] == 9


def test_a_server_that_is_killed_loses_nothing_and_takes_its_machine_along(folder: Path, drawn: Path) -> None:
    with label(folder) as site:
        keys = answer(site, 10, kinds(drawn, site))
        site.process.kill()
        site.process.wait()
    wait_for(lambda: not machines(folder), 20)
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db:
        assert [key for (key,) in db.execute("SELECT key FROM answers ORDER BY id")] == keys
    with label(folder) as again:
        state = again.get("/api/state")
        assert state["standing"]["answers"] == 10
        wait_for(lambda: rounds(again) == 1)


def test_a_turn_that_fails_is_told_and_tried_again(folder: Path, drawn: Path) -> None:
    hidden = {path: path.read_bytes() for path in (folder / "cache").rglob("pixels.json")}
    with label(folder) as site:
        truth = kinds(drawn, site)
        for path in hidden:
            path.unlink()
        answer(site, 9, truth)
        wait_for(lambda: site.get("/api/state")["machine"]["state"] == "failed")
        assert "gone or incomplete" in site.get("/api/state")["machine"]["text"]
        for path, data in hidden.items():
            path.write_bytes(data)
        wait_for(lambda: rounds(site) == 1)


def test_class_folders_are_learnt_from_on_request(tmp_path: Path, drawn: Path) -> None:
    folder = tmp_path / "c"
    words = f"init {drawn} --campaign {folder} --px 64 --views 1 --per-round 24 --use-classes"
    subprocess.run([sys.executable, "-m", "anneal", *words.split()], check=True, capture_output=True)
    campaign = Campaign.open(folder)
    assert progress.standing(campaign).labels == 120
    assert campaign.evidence().given(Verdict.SIMILAR).a.size > 0
    campaign.close()
    with label(folder) as site:
        wait_for(lambda: rounds(site) == 1)  # without a single answer
        hits = site.get("/api/search?image=3&k=5")["results"]
        assert np.mean([hit["name"].startswith("beach/") for hit in hits]) >= 0.8


def test_a_second_page_on_the_same_port_says_so(folder: Path) -> None:
    with label(folder) as site:
        port = site.address.rstrip("/").rsplit(":", 1)[1]
        command = [sys.executable, "-m", "anneal", "label", "--campaign", str(folder), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "is anneal label running already?" in " ".join(done.stderr.split())


def told(folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "anneal", "status", "--campaign", str(folder), "--json"]
    return dict(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))


def test_two_people_s_agreement_stands_in_status(folder: Path, drawn: Path) -> None:
    with label(folder, "--overlap", "1") as site:
        assert isinstance(site, Label)
        truth = kinds(drawn, site)
        answer(site, 6, truth, "ann")
        answer(site, 6, truth, "bob")
        third = site.get("/api/questions?holder=carl&annotator=carl&n=20")["questions"]
    status = told(folder)
    (found,) = status["agreement"]
    assert (found["one"], found["other"], found["pairs"], found["agreement"]) == ("ann", "bob", 6, 1.0)
    campaign = Campaign.open(folder)
    judged = {(row.a, row.b) for row in campaign.store.standing()}
    campaign.close()
    assert not judged & {(q["a"], q["b"]) for q in third}
