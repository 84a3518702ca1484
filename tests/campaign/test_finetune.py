"""Fine-tuning: what an adopted network changes, what a refused one leaves, and what a killed one leaves."""

import hashlib
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import PLAIN_CONVOLUTIONS as NETWORK
from tiny import SETTINGS, answer_truly, pattern_archive, say, truth, verdict_of
from typer.testing import CliRunner

from anneal import cli
from anneal.archive.catalog import Archive
from anneal.campaign import finetune, heldout, tuning, turn, worker
from anneal.campaign.campaign import Campaign
from anneal.campaign.intact import network_file
from anneal.campaign.networks import network_of, origin_of
from anneal.campaign.questions import next_question
from anneal.campaign.rounds import FROZEN
from anneal.campaign.update import update
from anneal.errors import UsageError
from anneal.export.model import write_model
from anneal.method.paired import Comparison
from anneal.network import backbones, model, tune
from anneal.network.train import Fit
from anneal.network.tune import Tune
from anneal.settings import Stream
from served import page_of, wait_for

pytestmark = pytest.mark.xdist_group("processes")
PLACE = replace(SETTINGS, backbone="convolutions", strategy="place", per_round=60)
FEW_STEPS = Tune(steps=12, batch=32, lr=1e-3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fit, "length", lambda settings, known: 20)
    monkeypatch.setattr(tuning, "LEAST", 40)


@pytest.fixture
def adopted_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the reserved images say."""
    monkeypatch.setattr(Comparison, "is_better", property(lambda compared: True))
    monkeypatch.setattr(heldout, "_is_worse", lambda *_: False)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return pattern_archive(tmp_path_factory.mktemp("patterns"))


def teach(campaign: Campaign) -> None:
    """Some held-out answers, and answers that give the kind of two thirds of the images."""
    answer_truly(campaign, 12)
    kinds = truth(campaign)
    firsts = [kinds.index(kind) for kind in sorted(set(kinds))]
    pairs = [(kinds.index(kind), i) for i, kind in enumerate(kinds) if i % 3 and i not in firsts]
    pairs += itertools.combinations(firsts, 2)
    say(campaign, pairs, [verdict_of(kinds, pair) for pair in pairs])


@pytest.fixture(scope="module")
def made(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with two rounds. Copy it."""
    folder = tmp_path_factory.mktemp("finetune") / "campaign"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "length", lambda settings, known: 20)
        with closing(turn.begin(folder, archive, PLACE, backbone=NETWORK)) as campaign:
            for _ in range(2):
                teach(campaign)
                turn.turn(campaign, NETWORK)
    return folder


@pytest.fixture
def campaign(made: Path, tmp_path: Path) -> Iterator[Campaign]:
    with closing(Campaign.open(Path(shutil.copytree(made, tmp_path / "copy")))) as opened:
        yield opened


def state(folder: Path) -> dict[str, str]:
    """A hash of every file of the rounds, and what the store says of the rounds."""
    files = {
        str(file.relative_to(folder)): hashlib.blake2b(file.read_bytes()).hexdigest()
        for file in sorted((folder / "rounds").rglob("*"))
        if file.is_file()
    }
    with closing(Campaign.open(folder)) as campaign:
        files["records"] = json.dumps([str(record) for record in campaign.rounds.records()])
        files["serving"] = str(campaign.rounds.serving)
        files["heldout"] = str(campaign.rounds.heldout_draws())
        files["ranks"] = str(len(campaign.rounds.ranks()))
    return files


@pytest.mark.parametrize("part", ["last", "full"])
def test_an_adopted_network_serves_everything(
    campaign: Campaign, archive: Archive, part: Any, adopted_anyway: None
) -> None:
    before = np.array(campaign.rounds.vectors())
    outcome = finetune.finetune(campaign, part, NETWORK, settings=FEW_STEPS)
    assert outcome.adopted
    assert outcome.round == campaign.rounds.serving == 2
    assert campaign.rounds.records()[-1].tuned == part
    after = np.array(campaign.rounds.vectors())
    assert np.abs(after - before).max() > 0.01

    network = network_of(campaign, NETWORK, 2)
    assert not torch.equal(network.upper[0].weight, NETWORK.upper[0].weight)  # type: ignore[index]
    assert network.lower is not None
    assert NETWORK.lower is not None
    same = torch.equal(network.lower[0].weight, NETWORK.lower[0].weight)  # type: ignore[index]
    assert same == (part == "last")
    again = turn.encode_images(campaign, archive.pixels[:9], 2, NETWORK)  # as an image from outside
    np.testing.assert_allclose(again, after[:9], atol=1e-4)
    earlier = turn.encode_images(campaign, archive.pixels[:9], 1, NETWORK)  # a model has its own network
    np.testing.assert_allclose(earlier, before[:9], atol=1e-4)
    assert len(campaign.rounds.agenda().images)


def test_later_rounds_build_on_it(campaign: Campaign, archive: Archive, adopted_anyway: None) -> None:
    finetune.finetune(campaign, "last", NETWORK, settings=FEW_STEPS)
    tuned = network_file(campaign.rounds.files(2).folder)
    assert tuned is not None
    assert tuned.exists()
    assert next_question(campaign) is not None
    answer_truly(campaign, 8)
    turn.turn(campaign, NETWORK)
    assert campaign.rounds.serving == 3
    assert network_file(campaign.rounds.files(3).folder) == tuned
    assert campaign.rounds.records()[3].tuned == ""
    again = turn.encode_images(campaign, archive.pixels[:9], 3, NETWORK)
    np.testing.assert_allclose(again, campaign.rounds.vectors()[:9], atol=1e-4)

    second = finetune.finetune(campaign, "last", NETWORK, settings=FEW_STEPS)  # from the tuned one
    assert second.round == 4
    other = network_file(campaign.rounds.files(4).folder)
    assert other != tuned
    again = turn.encode_images(campaign, archive.pixels[:9], 4, NETWORK)
    np.testing.assert_allclose(again, campaign.rounds.vectors()[:9], atol=1e-4)


def test_new_images_are_encoded_by_the_network_of_each_model(tmp_path: Path, adopted_anyway: None) -> None:
    archive = pattern_archive(tmp_path / "own")
    with closing(turn.begin(tmp_path / "c", archive, PLACE, backbone=NETWORK)) as campaign:
        teach(campaign)
        turn.turn(campaign, NETWORK)
        finetune.finetune(campaign, "last", NETWORK, settings=FEW_STEPS)
        pixels = np.random.default_rng(7).integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(archive.root / "kind00" / "new.png")
        update(campaign, backbone=NETWORK)
        assert campaign.size == 121
        for number in (FROZEN, 0, 1):
            row = campaign.rounds.files(number).vectors()[120]
            encoded = turn.encode_images(campaign, pixels[None], number, NETWORK)[0]
            np.testing.assert_allclose(row, encoded, atol=1e-4)


def test_the_exported_model_is_the_fine_tuned_one(
    campaign: Campaign, tmp_path: Path, adopted_anyway: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    finetune.finetune(campaign, "last", NETWORK, settings=FEW_STEPS)
    monkeypatch.setattr("anneal.network.backbones.load", lambda *_: NETWORK)
    monkeypatch.setattr("anneal.network.backbones.save_transformers", lambda *_: False)
    written = write_model(campaign, tmp_path / "out")  # compares the ONNX model with the vectors
    assert "network.safetensors" in written
    about = json.loads((tmp_path / "out" / "model.json").read_text())
    encoder = model.load(tmp_path / "out", NETWORK)
    saved = tune.load(tmp_path / "out" / "network.safetensors", NETWORK)
    assert about["network"] == saved.digest
    assert encoder.dim == 64


def test_a_worse_network_is_refused_and_nothing_changes(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(campaign.folder)
    outcome = finetune.finetune(campaign, "last", NETWORK, settings=Tune(steps=30, batch=32, lr=10.0))
    assert not outcome.adopted
    assert outcome.compared.gain.value < 0
    assert "nothing has changed" in str(outcome)
    assert state(campaign.folder) == before


def test_what_the_held_out_answers_speak_against_is_refused_too(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Comparison, "is_better", property(lambda compared: True))
    monkeypatch.setattr(heldout, "_is_worse", lambda campaign, new, *_: new == 2)
    before = state(campaign.folder)
    outcome = finetune.finetune(campaign, "last", NETWORK, settings=FEW_STEPS)
    assert not outcome.adopted
    assert "held-out answers" in outcome.why
    assert state(campaign.folder) == before


def test_no_fine_tuned_network_learns_from_the_reserved_images(campaign: Campaign) -> None:
    known = campaign.evidence().closure.relations
    reserved = finetune.reserved_images(campaign, known)
    assert 0.1 < len(reserved) / len(known.members) < 0.3
    taught = finetune._taught(campaign, known, reserved)
    drawn = campaign.settings.rng(Stream.RESERVED).random(campaign.size) < finetune.RESERVED
    assert not np.isin(taught.members, np.flatnonzero(drawn)).any()
    np.testing.assert_array_equal(finetune.reserved_images(campaign, known), reserved)


def test_it_says_what_to_do_if_it_cannot_start(
    campaign: Campaign, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tuning.refusal(campaign) == ""
    monkeypatch.setattr(tuning, "LEAST", 500)
    with pytest.raises(UsageError, match=r"needs 500 images .* answer more questions"):
        finetune.finetune(campaign, "last", NETWORK)
    with closing(turn.begin(tmp_path / "new", archive, PLACE, backbone=NETWORK)) as new:
        assert "No model serves yet" in tuning.refusal(new)
    deep = replace(PLACE, depth="last", views=2)
    with closing(turn.begin(tmp_path / "deep", archive, deep, backbone=NETWORK)) as new:
        assert "--depth last" in tuning.refusal(new)


def test_a_lost_network_is_noticed_and_learning_starts_anew(campaign: Campaign, adopted_anyway: None) -> None:
    finetune.finetune(campaign, "last", NETWORK, settings=FEW_STEPS)
    file = network_file(campaign.rounds.files(2).folder)
    assert file is not None
    assert campaign.rounds.is_whole(2)
    file.write_bytes(file.read_bytes()[:500])
    assert not campaign.rounds.is_whole(2)
    assert origin_of(campaign, NETWORK).name == ""
    turn.turn(campaign, NETWORK)
    assert campaign.rounds.is_whole(campaign.rounds.serving)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tiny import PLAIN_CONVOLUTIONS
from anneal.campaign import finetune, heldout, tuning
from anneal.campaign.campaign import Campaign
from anneal.method.paired import Comparison
from anneal.network.train import Fit
from anneal.network.tune import Tune
_, _, folder, when = sys.argv
Fit.length = lambda settings, known: 20
tuning.LEAST = 40
Comparison.is_better = property(lambda compared: True)
heldout._is_worse = lambda *_: False

def watch(step):
    def update(done, total):
        if step == when and 2 * done >= total:
            os.kill(os.getpid(), signal.SIGKILL)
    return update

settings = Tune(steps=12, batch=32, lr=1e-3)
finetune.finetune(Campaign.open(Path(folder)), "last", PLAIN_CONVOLUTIONS, watch, settings)
"""


@pytest.mark.parametrize("when", ["tuning", "embedding", "choosing"])
def test_killed_it_leaves_the_campaign_as_it_was(campaign: Campaign, when: str) -> None:
    """In the middle of fine-tuning; while images are embedded; when all files are written."""
    folder = campaign.folder
    before = state(folder)
    words = [str(Path(__file__).parent), str(folder), when]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    after = state(folder)
    assert {name: after[name] for name in before} == before
    leftovers = {Path(name).parts[1] for name in after.keys() - before.keys()}
    assert leftovers <= {"0002", "networks"}  # which nobody reads
    assert not list(campaign.archive_folder.glob("tmp*"))  # the maps are gone
    answer_truly(campaign, 8)
    turn.turn(campaign, NETWORK)
    assert campaign.rounds.current == 3
    assert network_file(campaign.rounds.files(2).folder) is None


# -- asked for on the page, done by the machine's process ------------------------------------------


@contextmanager
def machine_beside(campaign: Campaign) -> Iterator[None]:
    """The machine's turns, in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=worker._take_turns, args=(campaign.folder, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "load", lambda name: NETWORK)


def test_the_page_asks_and_the_machine_fine_tunes(
    campaign: Campaign, here: None, adopted_anyway: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tune, "__init__", partialmethod(Tune.__init__, **asdict(FEW_STEPS)))
    with page_of(campaign) as site:
        told = site.get("/api/finetune")
        assert (told["state"], told["refusal"], told["text"]) == ("idle", "", "")
        assert site("POST", "/api/finetune").json["state"] == "wanted"
        with machine_beside(campaign):
            wait_for(lambda: site.get("/api/finetune")["state"] == "idle")
        told = site.get("/api/finetune")
        assert told["adopted"]
        assert "The fine-tuned network serves from now on." in told["text"]
        assert campaign.rounds.serving == 2


def test_the_page_stops_it_and_nothing_changes(campaign: Campaign, here: None) -> None:
    before = state(campaign.folder)
    with page_of(campaign) as site:
        site("POST", "/api/finetune")
        assert site("DELETE", "/api/finetune").json["state"] == "idle"  # before it has begun
        site("POST", "/api/finetune")
        long = replace(FEW_STEPS, steps=100_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tune, "__init__", partialmethod(Tune.__init__, **asdict(long)))
            with machine_beside(campaign):
                wait_for(lambda: campaign.mailbox.machine()[1].get("step") == "tuning")
                assert site("DELETE", "/api/finetune").json["state"] == "stopping"
                wait_for(lambda: site.get("/api/finetune")["state"] == "idle")
        assert site.get("/api/finetune")["text"] == tuning.STOPPED
    assert state(campaign.folder) == before


def test_a_process_that_was_killed_says_so_and_does_not_begin_again(campaign: Campaign, here: None) -> None:
    campaign.store.set(finetune={"state": "running"})
    with machine_beside(campaign):
        wait_for(lambda: tuning.state(campaign)["state"] == "idle")
    assert "interrupted" in tuning.state(campaign)["text"]
    assert campaign.rounds.current == 2


def test_what_cannot_begin_is_refused_on_the_page(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LEAST", 500)
    with page_of(campaign) as site:
        refused = site("POST", "/api/finetune")
        assert refused.status == 409
        assert "answer more questions" in refused.json["detail"]
        assert site.get("/api/finetune")["refusal"] == refused.json["detail"]


# -- the command -----------------------------------------------------------------------------------


def test_the_command_prints_before_after_and_what_came_of_it(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, adopted_anyway: None
) -> None:
    monkeypatch.setattr(Tune, "__init__", partialmethod(Tune.__init__, **asdict(FEW_STEPS)))
    monkeypatch.setattr(backbones, "load", lambda *_: NETWORK)
    words = ["finetune", "--campaign", str(campaign.folder)]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0, done.output
    assert re.search(
        r"mAP@5 of \d+ reserved images: \S+ \(\S+ to \S+\) before, \S+ \(\S+ to \S+\) after; "
        r"[+-]\S+ points \(\S+ to \S+, 80 %\)\. The fine-tuned network serves from now on\.",
        done.output,
    )
    assert tuning.state(campaign)["text"] in done.output
    refused = CliRunner().invoke(cli.app, [*words, "--depth", "head"])
    assert isinstance(refused.exception, UsageError)
