"""The machine's process: in threads of this process, alone, and beside the page; killed in earnest."""

import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image
from tiny import SETTINGS, SHRUNK, answer_truly, pattern_archive, say, truth, verdict_of

from anneal.archive.catalog import Archive
from anneal.campaign import progress, turn, worker
from anneal.campaign.campaign import WORKER_LOCK, Campaign
from anneal.campaign.questions import take
from anneal.campaign.relocate import relocate
from anneal.campaign.rounds import FROZEN, Rounds
from anneal.campaign.store import Mailbox
from anneal.errors import UsageError
from anneal.method.neighbours import nearest
from anneal.network import backbones
from anneal.network.train import Fit
from anneal.pairs import Verdict
from served import Site, label, wait_for

pytestmark = pytest.mark.xdist_group("processes")  # each test starts several: one after another

SIMILAR, DISSIMILAR, UNSURE = Verdict
EIGHT = replace(SETTINGS, strategy="mgue", per_round=8)
REAL = replace(EIGHT, backbone=backbones.DEFAULT)  # its weights are installed, and it loads quickly


def copied(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


# -- in threads of this process --------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with a quick backbone, before the first answer. Copy it."""
    folder = tmp_path_factory.mktemp("quick") / "campaign"
    turn.begin(folder, archive, EIGHT, backbone=SHRUNK).close()
    return folder


@pytest.fixture
def campaign(quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Campaign]:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 5)
    monkeypatch.setattr(backbones, "load", lambda name: SHRUNK)
    with closing(Campaign.open(copied(quick, tmp_path / "c"))) as opened:
        yield opened


@contextmanager
def running(part: Callable[[Path, threading.Event], None], folder: Path) -> Iterator[None]:
    """A part of the worker in a thread, until the end of the block."""
    stop = threading.Event()
    thread = threading.Thread(target=part, args=(folder, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def state(campaign: Campaign) -> dict[str, Any]:
    return campaign.mailbox.machine()[1]


def test_a_turn_is_due_when_a_round_is_over_or_labels_wait_for_the_first_one(campaign: Campaign) -> None:
    assert not worker.is_due(campaign)
    answer_truly(campaign, 7)
    assert not worker.is_due(campaign)
    answer_truly(campaign, 1)
    assert worker.is_due(campaign)
    turn.turn(campaign, SHRUNK)
    assert not worker.is_due(campaign)
    campaign.label([(0, "x"), (1, "x")])
    assert not worker.is_due(campaign)  # labels alone start only the first turn
    say(campaign, [(i, i + 1) for i in range(20, 28)], [UNSURE] * 8)
    assert worker.is_due(campaign)


def test_a_turn_is_due_when_somebody_wants_it_and_there_is_something_new(campaign: Campaign) -> None:
    campaign.store.set(learn_wanted=True)
    assert not worker.is_due(campaign)
    answer_truly(campaign, 1)
    assert worker.is_due(campaign)
    with running(worker._take_turns, campaign.folder):
        wait_for(lambda: campaign.rounds.current == 1)
        wait_for(lambda: not campaign.store.setting("learn_wanted", False))
    assert not worker.is_due(campaign)


def test_a_turn_is_due_when_no_question_is_left(campaign: Campaign) -> None:
    n = len(campaign.images)
    kinds = truth(campaign)
    pairs = [(i, i + 1) for i in range(n - 1)] + [
        (a, b) for a in range(0, n, 10) for b in range(a + 10, n, 10)
    ]
    campaign.store.set(settings={**asdict(campaign.settings), "per_round": 1000})
    with closing(Campaign.open(campaign.folder)) as own:
        say(own, pairs, [verdict_of(kinds, pair) for pair in pairs])
        assert not worker.is_due(own)  # nobody has asked yet
        assert take(own, "me", "me", 1) == []
        assert worker.is_due(own)
        assert progress.refusal_to_learn(own) == ""
        turn.turn(own, SHRUNK)
        assert take(own, "me", "me", 1) == []
        assert not worker.is_due(own)  # all of it is learnt
        assert progress.refusal_to_learn(own) == "There is no new answer to learn from."


def test_labels_alone_start_the_first_turn(campaign: Campaign) -> None:
    campaign.label([(0, "x"), (1, "x"), (50, "y")])
    assert worker.is_due(campaign)
    with running(worker._take_turns, campaign.folder):
        wait_for(lambda: campaign.rounds.current == 1)
        wait_for(lambda: state(campaign)["state"] == "idle")
    assert campaign.rounds.current == 1  # once
    assert campaign.log().given == 0


def test_a_turn_that_fails_is_reported_and_tried_again(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_truly(campaign, 8)
    monkeypatch.setattr(worker, "FIRST_RETRY", 0.05)
    failures = [UsageError("The archive is gone."), RuntimeError("out of memory")]
    states: list[dict[str, Any]] = []
    tell = Mailbox.set_machine

    def noted(mailbox: Mailbox, **about: Any) -> None:
        states.append(about)
        tell(mailbox, **about)

    def fails_twice(*args: Any) -> Any:
        if failures:
            raise failures.pop(0)
        return turn.turn(*args)

    monkeypatch.setattr(Mailbox, "set_machine", noted)
    monkeypatch.setattr(worker, "turn", fails_twice)
    with running(worker._take_turns, campaign.folder):
        wait_for(lambda: campaign.rounds.current == 1)
        wait_for(lambda: states[-1]["state"] == "idle")
    errors = [about["error"] for about in states if about["state"] == "failed"]
    assert errors == ["The archive is gone.", "RuntimeError: out of memory"]
    assert [about["state"] for about in states][:2] == ["idle", "learning"]
    assert campaign.log().given == 8


def pixels_of(campaign: Campaign, image: int) -> Any:
    return np.rot90(campaign.archive().pixels[image]).copy()


def test_the_serving_model_is_read_once_for_each_query(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model changes whenever it is read. Each vector must be of the model it is stored under."""
    answer_truly(campaign, 8)
    turn.turn(campaign, SHRUNK)
    pixels = pixels_of(campaign, 5)
    expected = {
        number: turn.encode_images(campaign, pixels[None], number, SHRUNK)[0] for number in (FROZEN, 0)
    }
    assert expected[FROZEN].shape != expected[0].shape or not np.allclose(expected[FROZEN], expected[0])
    encoded: list[tuple[int, bytes | None]] = []
    store = Mailbox.encoded

    def noted(mailbox: Mailbox, name: str, number: int, vector: bytes | None, error: str | None) -> None:
        encoded.append((number, vector))
        store(mailbox, name, number, vector, error)

    models = cycle([FROZEN, 0])
    monkeypatch.setattr(Mailbox, "encoded", noted)
    monkeypatch.setattr(Rounds, "serving", property(lambda rounds: next(models)))
    campaign.mailbox.add_query("query", pixels.tobytes())
    with running(worker._encode_queries, campaign.folder):
        wait_for(lambda: len(encoded) >= 4)
    assert {number for number, _ in encoded} == {FROZEN, 0}
    for number, vector in encoded:
        assert vector is not None
        np.testing.assert_allclose(np.frombuffer(vector, dtype=np.float32), expected[number], atol=1e-5)


def test_a_query_is_encoded_again_by_a_new_model(campaign: Campaign) -> None:
    campaign.mailbox.add_query("query", pixels_of(campaign, 5).tobytes())

    def model_of_query() -> int | None:
        query = campaign.mailbox.query("query")
        assert query is not None
        return query.round if query.vector is not None else None

    with running(worker._encode_queries, campaign.folder):
        wait_for(lambda: model_of_query() == FROZEN)
        answer_truly(campaign, 8)
        turn.turn(campaign, SHRUNK)
        wait_for(lambda: model_of_query() == campaign.rounds.serving)
    assert campaign.rounds.serving == 0


def test_a_query_that_cannot_be_encoded_gets_its_error_and_the_next_one_its_vector(
    campaign: Campaign, capfd: pytest.CaptureFixture[str]
) -> None:
    campaign.mailbox.add_query("short", b"abc")
    campaign.mailbox.add_query("whole", pixels_of(campaign, 5).tobytes())
    with running(worker._encode_queries, campaign.folder):
        wait_for(lambda: (query := campaign.mailbox.query("whole")) is not None and query.vector)
    short = campaign.mailbox.query("short")
    assert short is not None
    assert short.vector is None
    assert short.error is not None
    assert "ValueError" in short.error
    assert capfd.readouterr().err.count("Traceback") == 1  # it was tried once


def test_a_full_disk_does_not_end_the_encoding_of_queries(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [sqlite3.OperationalError("database or disk is full")]
    beat = Mailbox.beat

    def fails_once(mailbox: Mailbox) -> None:
        if failures:
            raise failures.pop()
        beat(mailbox)

    monkeypatch.setattr(Mailbox, "beat", fails_once)
    campaign.mailbox.set_machine(state="idle")
    before, _ = campaign.mailbox.machine()
    with running(worker._encode_queries, campaign.folder):
        wait_for(lambda: campaign.mailbox.machine()[0] > before)  # a sign of life after all
    assert not failures


def test_a_second_worker_waits_until_the_first_one_ends(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = threading.Event()
    started = threading.Event()
    waits = 0
    acquire = FileLock.acquire

    def counted(lock: FileLock, *args: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        return acquire(lock, *args, **options)

    def parent_ends(stop: threading.Event) -> None:
        end.wait()
        stop.set()

    def take_turns(folder: Path, stop: threading.Event, strategy: str | None) -> None:
        started.set()
        stop.wait()

    monkeypatch.setattr(worker, "_watch_parent", parent_ends)
    monkeypatch.setattr(worker, "_take_turns", take_turns)
    monkeypatch.setattr(worker, "_encode_queries", lambda folder, stop: None)
    first = FileLock(campaign.folder / WORKER_LOCK)
    first.acquire()
    monkeypatch.setattr(FileLock, "acquire", counted)
    second = threading.Thread(target=worker.run, args=(campaign.folder,))
    second.start()
    wait_for(lambda: waits >= 2)  # it tried, waited, and tried again
    assert not started.is_set()
    first.release()
    wait_for(started.is_set)
    end.set()
    second.join()
    acquire(first, timeout=0)  # the lock is free again
    first.release()


# -- a process of its own --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign that a worker process can work for, before the first answer. Copy it."""
    folder = tmp_path_factory.mktemp("worker") / "campaign"
    turn.begin(folder, archive, REAL).close()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return copied(made, tmp_path / "campaign")


@contextmanager
def process_for(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``anneal worker``, ended as the page ends it: by closing its standard input."""
    command = [sys.executable, "-m", "anneal", "worker", "--campaign", str(folder)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait()


def test_a_worker_that_is_killed_while_it_learns_loses_nothing_and_the_next_one_goes_on(folder: Path) -> None:
    with closing(Campaign.open(folder)) as campaign:
        pixels = pixels_of(campaign, 5)
        campaign.mailbox.add_query("query", pixels.tobytes())
        with process_for(folder) as process:
            answer_truly(campaign, 8)
            wait_for(lambda: state(campaign).get("state") == "learning")
            process.kill()
        assert process.returncode == -signal.SIGKILL
        with process_for(folder) as process:
            answer_truly(campaign, 4)  # people go on while it learns
            wait_for(lambda: campaign.rounds.current == 1)
            wait_for(lambda: (query := campaign.mailbox.query("query")) is not None and query.round == 0)
        assert process.returncode == 0
        assert campaign.log().given == 12
        query = campaign.mailbox.query("query")
        assert query is not None
        assert query.vector is not None
        vector = np.frombuffer(query.vector, dtype=np.float32)
        expected = turn.encode_images(campaign, pixels[None], 0)[0]
        np.testing.assert_allclose(vector, expected, atol=1e-4)
        FileLock(folder / WORKER_LOCK).acquire(timeout=0).lock.release()  # nobody holds it


def test_class_folders_are_learnt_from_on_request(tmp_path: Path, drawn: Path) -> None:
    folder = tmp_path / "c"
    words = f"init {drawn} --campaign {folder} --px 32 --views 1 --per-round 8 --use-classes"
    subprocess.run([sys.executable, "-m", "anneal", *words.split()], check=True, capture_output=True)
    with closing(Campaign.open(folder)) as campaign:
        assert progress.standing(campaign).labels == campaign.size
        assert len(campaign.evidence().answers.given(SIMILAR)) > 0
        with process_for(folder):
            wait_for(lambda: campaign.rounds.current == 1)  # without a single answer
        kinds = np.array(truth(campaign))

        def precision(model: int) -> float:
            vectors = campaign.rounds.vectors(model)
            near = nearest(vectors, campaign.images, np.asarray(vectors), 6).ids[:, 1:]
            return float((kinds[near] == kinds[:, None]).mean())

        assert precision(0) > precision(FROZEN) + 0.1


BESIDE = """
import sys
from pathlib import Path
from anneal.campaign.store import Store
store = Store(Path(sys.argv[1]))
store.set(**{sys.argv[2]: True})
print(*store.settings())
store.close()
"""


def test_a_campaign_that_is_opened_twice_in_a_process_shares_what_it_writes(folder: Path) -> None:
    """The worker's two threads open it twice, and so does the page when it starts a machine again. A command
    that runs beside them must not take itself for the last user and remove the write-ahead log."""
    with closing(Campaign.open(folder)) as campaign:
        Campaign.open(folder).close()
        command = [sys.executable, "-c", BESIDE, str(campaign.store.path)]
        subprocess.run([*command, "first"], check=True, capture_output=True)
        campaign.store.set(mine=True)
        seen = subprocess.run([*command, "second"], check=True, capture_output=True, text=True).stdout
        assert {"first", "mine", "second"} <= set(seen.split())


# -- beside the page -------------------------------------------------------------------------------


def answer(site: Site, n: int, kinds: list[str], name: str = "me") -> list[str]:
    """Answer n questions as the folders say; returns the keys that were sent."""
    keys: list[str] = []
    questions = site.get(f"/api/questions?holder={name}&annotator={name}&n=1")["questions"]
    for number in range(n):
        pair = (questions[0]["a"], questions[0]["b"])
        keys.append(f"{name}-{pair[0]}-{pair[1]}-{number}-{os.urandom(4).hex()}")
        word = verdict_of(kinds, pair).name.lower()
        event = {"key": keys[-1], "a": pair[0], "b": pair[1], "verdict": word, "looked": 1000}
        questions = site.say(event, annotator=name, holder=name, n=1)["questions"]
    return keys


def kinds_of(folder: Path) -> list[str]:
    with closing(Campaign.open(folder)) as campaign:
        return truth(campaign)


def rounds(site: Site) -> int:
    return int(site.get("/api/state")["standing"]["rounds"])


def machines(folder: Path) -> list[int]:
    """Processes that work for this campaign."""
    listed = subprocess.run(
        ["pgrep", "-f", f"anneal worker --campaign {folder}"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in listed.stdout.split()]


def test_a_machine_that_is_killed_is_started_again_and_learns(folder: Path, archive: Archive) -> None:
    kinds = kinds_of(folder)
    with label(folder) as site:
        wait_for(lambda: bool(machines(folder)))
        for pid in machines(folder):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: site.get("/api/state")["machine"]["state"] in ("restarting", "idle", "learning"))
        assert site.get("/api/state")["machine"]["needed"] == 8
        answer(site, 9, kinds)
        wait_for(lambda: rounds(site) == 1)
        assert site.get("/api/state")["standing"]["answers"] == 9
        assert [model["round"] for model in site.get("/api/progress")["models"]] == [FROZEN, 0]
        assert site.get("/api/search?image=0&k=5")["round"] == 0

        file = io.BytesIO()  # an image from outside is encoded beside the turns
        with Image.open(archive.root / archive.paths[0]) as image:
            image.transpose(Image.Transpose.ROTATE_90).save(file, "PNG")
        name = site("POST", "/api/queries", file.getvalue()).json["id"]
        wait_for(lambda: site.get(f"/api/queries/{name}")["state"] == "ready")
        assert len(site.get(f"/api/search?query={name}&k=3")["results"]) == 3
        process = site.process
    assert process.returncode == 0  # ctrl-c ends both, in order
    wait_for(lambda: not machines(folder))


def test_a_server_that_is_killed_loses_nothing_and_takes_its_machine_along(folder: Path) -> None:
    kinds = kinds_of(folder)
    with label(folder) as site:
        keys = answer(site, 10, kinds)
        site.process.kill()
        site.process.wait()
    wait_for(lambda: not machines(folder))
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as db:
        assert [key for (key,) in db.execute("SELECT key FROM answers ORDER BY id")] == keys
    with label(folder) as again:
        assert again.get("/api/state")["standing"]["answers"] == 10
        wait_for(lambda: rounds(again) == 1)


def test_a_second_page_on_the_same_port_is_refused_and_two_people_s_agreement_is_in_the_status(
    folder: Path,
) -> None:
    kinds = kinds_of(folder)
    command = [sys.executable, "-m", "anneal"]
    with label(folder, "--overlap", "1") as site:
        port = site.address.rstrip("/").rsplit(":", 1)[1]
        second = [*command, "label", "--campaign", str(folder), "--port", port]
        done = subprocess.run(second, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "is anneal label running already?" in " ".join(done.stderr.split())
        for name in ("ann", "bob"):
            answer(site, 6, kinds, name)
        third = site.get("/api/questions?holder=carl&annotator=carl&n=20")["questions"]
    asked = [*command, "status", "--campaign", str(folder), "--json"]
    status = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    (both,) = status["agreement"]
    assert (both["one"], both["other"], both["pairs"], both["agreement"]) == ("ann", "bob", 6, 1.0)
    with closing(Campaign.open(folder)) as campaign:
        answered = {row.pair for row in campaign.log().standing()}
    assert not answered & {(question["a"], question["b"]) for question in third}


def test_the_machine_looks_at_the_archive_when_it_is_asked_to(campaign: Campaign, tmp_path: Path) -> None:
    photos = Path(shutil.copytree(campaign.root, tmp_path / "photos"))
    relocate(campaign, photos)
    (photos / campaign.archive().paths[4]).unlink()
    campaign.store.set(update_wanted=True)
    with running(worker._take_turns, campaign.folder):
        wait_for(lambda: not campaign.store.setting("update_wanted", True))
        wait_for(lambda: state(campaign)["state"] == "idle")
        assert campaign.retired().tolist() == [4]
        photos.rename(tmp_path / "gone")
        campaign.store.set(update_wanted=True)
        wait_for(lambda: not campaign.store.setting("update_wanted", True))
    assert "anneal relocate" in campaign.store.setting("updated", {})["error"]
    assert campaign.retired().tolist() == [4]
