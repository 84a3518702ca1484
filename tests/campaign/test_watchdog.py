"""A machine that is silent is replaced, and one that fails ends with a sentence, not with an abort."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import SETTINGS, campaign_in, pattern_archive, random_space

from anneal.archive.catalog import open_archive
from anneal.campaign import progress
from anneal.campaign.campaign import Campaign
from anneal.web import machine
from served import wait_for

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    archive = open_archive(pattern_archive(tmp_path, kinds=6, each=5).root, 32, tmp_path / "c" / "cache")
    campaign_in(tmp_path / "c", archive, replace(SETTINGS, heldout=0.0), vectors=random_space(n=30)).close()
    return tmp_path / "c"


def processes(folder: Path) -> list[int]:
    pattern = f"anneal worker --campaign {folder}"
    listed = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def test_a_machine_that_is_stopped_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "HUNG", 5.0)
    ending = threading.Event()
    keeper = threading.Thread(target=machine.keep_running, args=(folder, ending))
    with closing(Campaign.open(folder)) as campaign:
        keeper.start()
        try:
            wait_for(lambda: campaign.mailbox.machine()[1].get("state") == "idle")
            (first,) = processes(folder)
            os.kill(first, signal.SIGSTOP)
            wait_for(lambda: campaign.mailbox.machine()[1].get("silent"))
            assert "gave no sign of life and is being started again" in progress.machine(campaign)["text"]
            wait_for(lambda: campaign.mailbox.machine()[1].get("state") == "idle")
            assert first not in processes(folder)
        finally:
            ending.set()
            keeper.join()
    assert processes(folder) == []


def test_a_machine_that_cannot_work_ends_with_a_sentence(folder: Path) -> None:
    with closing(Campaign.open(folder)) as campaign:
        campaign.store.set(settings={"px": "large"})
    command = [sys.executable, "-P", "-m", "anneal", "worker", "--campaign", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 2  # not -6
    assert "The campaign's setting px is 'large'" in told
    assert "Fatal" not in told
    shutil.rmtree(folder)
