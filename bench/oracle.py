"""A whole campaign through the page's HTTP interface, from a cold start, by an oracle that knows the classes.

    python bench/oracle.py UCMerced/ --answers 1845

It plays `anneal simulate` with the same budget beside it, and prints both scores (validation images as
queries, retrieved from test images, as simulate does), the share of similar answers in each round, and
P@5 of every model as the held-back answers estimate it against P@5 by the classes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anneal.archive.catalog import open_archive
from anneal.campaign import judging, progress, turn
from anneal.campaign.campaign import Campaign
from anneal.experiments import play
from anneal.network import backbones
from anneal.pairs import Floats, Ids
from anneal.settings import Plan


def call(address: str, path: str, sent: dict[str, Any] | None = None) -> Any:
    body = None if sent is None else json.dumps(sent).encode()
    request = urllib.request.Request(address + path, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def answer_all(address: str, classes: Ids, answers: int) -> None:
    """Answer one question after another; when the machine's turn is due, wait for it as one who looks at
    images for a second or two would hardly notice."""
    who = {"annotator": "oracle", "holder": "oracle", "n": 1}
    questions = call(address, "/api/questions?holder=oracle&annotator=oracle&n=1")["questions"]
    for number in range(answers):
        (pair,) = questions
        word = "similar" if classes[pair["a"]] == classes[pair["b"]] else "dissimilar"
        event = {"key": f"oracle-{number:06d}", **pair, "verdict": word, "looked": 1500}
        told = call(address, "/api/answers", {**who, "events": [event]})
        questions, state = told["questions"], told["state"]
        if state["machine"]["fresh"] >= state["machine"]["needed"] or number == answers - 1:
            rounds = state["standing"]["rounds"]
            while (
                state["standing"]["rounds"] == rounds
                and state["machine"]["fresh"] >= state["machine"]["needed"]
            ):
                time.sleep(0.2)
                state = call(address, "/api/state")
            questions = call(address, "/api/questions?holder=oracle&annotator=oracle&n=1")["questions"]


def true_p5(vectors: Floats, top: Ids, classes: Ids) -> float:
    """P@5 by the classes, on the queries whose nearest were kept."""
    return float((classes[top[:, 1:]] == classes[top[:, :1]]).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--answers", type=int, default=1845)
    parser.add_argument("--strategy", default="place")
    parser.add_argument("--per-round", type=int, default=369)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--audit", type=float, default=0.1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "anneal")
    given = parser.parse_args()
    plan = Plan(strategy=given.strategy, per_round=given.per_round, seed=given.seed, audit=given.audit)
    archive = open_archive(given.data, plan.px, given.cache)
    backbone = backbones.load(plan.backbone)
    stage = play.Stage.of(archive, backbone, plan)
    split = play.split_of(archive, plan.seed)

    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "campaign"
        turn.begin(folder, archive, plan, images=split.train).close()
        command = [
            sys.executable,
            "-m",
            "anneal",
            "label",
            "--campaign",
            str(folder),
            "--port",
            "0",
            "--no-browser",
        ]
        env = {**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as served:
            assert served.stdout is not None
            address = next(
                word for word in served.stdout.readline().split() if word.startswith("http")
            ).rstrip("/")
            started = time.monotonic()
            answer_all(address, stage.truth.classes, given.answers)
            seconds = time.monotonic() - started
            told = call(address, "/api/progress")
            served.terminate()
        campaign = Campaign.open(folder)
        if progress.due(campaign)[0]:  # the last answers were too few for a turn of their own
            turn.turn(campaign, backbone)
        live = play.score(campaign.vectors(), split, stage.truth.classes)
        print("model  answers  P@5 by held-back answers   P@5 by classes  covered")
        covered = []
        for model in judging.models(campaign):
            top = np.load(campaign.round_folder(model.round) / "top.npy")
            truth = true_p5(campaign.vectors_of(model.round), top, stage.truth.classes)
            covered.append(model.p5.low <= truth <= model.p5.high)
            spread, yes = f"{model.p5.value:.3f} ({model.p5.low:.3f}–{model.p5.high:.3f})", covered[-1]
            print(
                f"{model.round:5d}  {model.answers:7d}  {spread:24}   {truth:14.3f}  {'yes' if yes else 'no'}"
            )
        shares = ", ".join(f"{share['similar']:.2f}" for share in told["shares"])
        print(f"covered {sum(covered)} of {len(covered)}; advice: {told['advice']['text']}")
        print(f"share of similar answers by round: {shares}")
        rounds = given.answers // given.per_round - 1
        beside = play.campaign_at(Path(scratch) / "beside", archive, plan, split.train)
        played = play.Simulation(plan, (plan.strategy,), rounds)
        rows = [row for row, _ in play.play(stage, beside, split, played, 0)]
        turns = f"{given.answers} answers, {len(covered) - 1} turns, {seconds:.0f} s"
        print(f"through the page, {turns}: mAP@5 {live['map5_min']:.4f}")
        last = rows[-1]
        print(f"anneal simulate, {last['answers']} answers, {len(rows)} turns: mAP@5 {last['map5_min']:.4f}")
        campaign.close()


if __name__ == "__main__":
    main()
