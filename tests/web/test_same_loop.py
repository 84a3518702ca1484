"""The page and ``experiments.play`` ask the very same questions: there is one loop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anneal.archive.catalog import open_archive
from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.experiments.oracle import Oracle, split_of
from anneal.experiments.play import Player, play
from anneal.network import backbones
from anneal.settings import Settings
from served import label

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from oracle import answer_all  # the oracle that answers over HTTP

pytestmark = [
    pytest.mark.xdist_group("processes"),  # each test starts several: one after another
    pytest.mark.timeout(900),
]

PER_ROUND = 12


def asked(campaign: Campaign) -> list[tuple[int, int, int, int, str, str]]:
    """Every row in order: pair, verdict, round, purpose, strategy."""
    return [(*row.pair, row.verdict, row.round, row.purpose, row.strategy) for row in campaign.log().rows]


@pytest.mark.parametrize(("strategy", "rounds"), [("place", 3), ("mgue", 2)])
def test_the_page_and_a_simulation_ask_the_same_pairs_in_the_same_order(
    strategy: str, rounds: int, drawn: Path, cache: Path, tmp_path: Path
) -> None:
    settings = Settings(
        backbone="random:resnet-18",
        px=32,
        views=1,
        strategy=strategy,
        per_round=PER_ROUND,
        heldout=0.2,
        seed=7,
    )
    archive = open_archive(drawn, settings.px, cache)
    split = split_of(archive, settings.seed)
    oracle = Oracle.of(archive)

    player = Player(settings, rounds - 1)
    backbone = backbones.load(settings.backbone)
    played = player.open(tmp_path / "played", archive, split, backbone)
    for _ in play(played, player, oracle, split, backbone):
        pass

    turn.begin(tmp_path / "served", archive, settings, images=split.train).close()
    with label(tmp_path / "served") as site:
        answer_all(site, oracle, rounds * PER_ROUND)
    served = Campaign.open(tmp_path / "served")

    assert asked(served) == asked(played)
    assert served.rounds.current == played.rounds.current == rounds
    assert len(asked(played)) >= rounds * PER_ROUND
    purposes = {row.purpose for row in played.log().rows}
    assert {"chosen", "held-out"} <= purposes
    assert [record.cutoff for record in served.rounds.records()] == [
        record.cutoff for record in played.rounds.records()
    ]
    served.close()
    played.close()
