"""What fine-tuning brings: a small run of ``reproduce finetune``."""

import csv
import json
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

from anneal.archive.catalog import Archive
from anneal.campaign import finetune, tuning
from anneal.campaign.campaign import Campaign
from anneal.experiments import paper, tuned
from anneal.experiments.paper import PRESETS
from anneal.network.tune import Tune


def test_campaigns_are_fine_tuned_at_half_and_at_the_end_and_not_again(
    small_archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tune, "__init__", partialmethod(Tune.__init__, steps=2))
    monkeypatch.setattr(tuning, "LEAST", 4)
    monkeypatch.setattr(finetune, "RESERVED", 0.5)
    changed = {"backbone": "random:resnet-18", "px": 32, "per_round": 40}
    settings, training = paper.settings_of("ours", PRESETS["demo"], cold=True, **changed)

    def play() -> list[dict[str, str]]:
        paper.reproduce(
            "finetune",
            small_archive,
            PRESETS["demo"],
            settings,
            training,
            tmp_path,
            rounds=3,
            trials=1,
            jobs=1,
            report=tmp_path / "reported.jsonl",
        )
        with (tmp_path / "finetune.csv").open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))

    half, end = play()
    assert tuple(half) == tuned.COLUMNS
    assert int(half["bits"]) == 80
    assert int(end["bits"]) >= 80  # there may be nothing left to ask
    for row in (half, end):
        numbers = {name: float(row[name]) for name in tuned.COLUMNS}
        assert 0 < numbers["before"] <= 1
        assert 0 < numbers["tuned"] <= 1
        assert numbers["gain"] == pytest.approx(
            numbers["reserved_after"] - numbers["reserved_before"], abs=1e-5
        )
        assert (numbers["served"] == numbers["before"]) or numbers["adopted"]
    campaign = Campaign.open(tmp_path / "trials" / "place-0")
    assert not any(record.tuned for record in campaign.rounds.records())  # copies were tuned
    campaign.close()

    def fails(*_: object, **__: object) -> None:
        raise AssertionError("it is tuned already")

    monkeypatch.setattr(finetune, "train", fails)
    assert play() == [half, end]
    noted = (tmp_path / "reported.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["experiment"] for line in noted] == ["finetune"] * 4  # each half, twice
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert f"| 0 | {half['bits']} | {float(half['before']):.3f} |" in report
    assert np.count_nonzero([line.startswith("|") for line in report.splitlines()]) == 4
