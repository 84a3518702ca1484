"""A whole campaign over HTTP, from a cold start, by an oracle that knows the classes.

    python bench/oracle.py UCMerced/ --answers 1845

It starts ``anneal label`` with its machine and asks for the questions that ``anneal simulate`` asks in one
process. It prints P@5 of every model as the held-out answers estimate it, beside P@5 by the classes; the
share of similar answers in each round; and the score of the last model, as simulate --report counts it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from anneal.archive.catalog import open_archive
from anneal.campaign import heldout, turn
from anneal.campaign.campaign import Campaign
from anneal.experiments.oracle import NAME, Oracle, score, split_of
from anneal.settings import Settings
from served import Site, answer, label  # the page as the tests start it


def answer_all(site: Site, oracle: Oracle, answers: int) -> None:
    """Answer one question after another. When a round is over, wait for the machine's turn: the next question
    then depends on the new model, as in ``experiments.play``."""
    for number in range(answers):
        question, *_ = site.get(f"/api/questions?holder={NAME}&annotator={NAME}&n=1")["questions"]
        verdict = oracle.verdict((question["a"], question["b"]), number).name.lower()
        tile = {name: question.get(name) for name in ("sheet", "guess")}
        event = answer(number, question, verdict, looked=1500, **tile)
        state = site.say(event, annotator=NAME, holder=NAME, n=0)["state"]
        while state["machine"]["fresh"] >= state["machine"]["needed"]:
            time.sleep(0.1)
            state = site.get("/api/state")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--answers", type=int, default=1845)
    parser.add_argument("--strategy", default="place")
    parser.add_argument("--per-round", type=int, default=369)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heldout", type=float, default=0.1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "anneal")
    given = parser.parse_args()
    settings = Settings(
        strategy=given.strategy, per_round=given.per_round, seed=given.seed, heldout=given.heldout
    )
    archive = open_archive(given.data, settings.px, given.cache)
    oracle = Oracle.of(archive)
    split = split_of(archive, settings.seed)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "campaign"
        turn.begin(folder, archive, settings, images=split.train).close()
        started = time.monotonic()
        with label(folder) as site:
            answer_all(site, oracle, given.answers)
            seconds = time.monotonic() - started
            told = site.get("/api/progress")
        campaign = Campaign.open(folder)
        report_models(campaign, oracle)
        last = score(campaign.rounds.vectors(), split, oracle.classes)
        turns = campaign.rounds.current
        campaign.close()
    print("share of similar answers by round:", *(f"{share['similar']:.2f}" for share in told["shares"]))
    print(f"advice: {told['advice'] and told['advice']['text']}")
    print(f"{given.answers} answers, {turns} turns, {seconds:.0f} s: mAP@5 {last['map5_min']:.4f}")


def report_models(campaign: Campaign, oracle: Oracle) -> None:
    """P@5 of every model: the estimate with its interval, the truth, and whether the interval covers it."""
    print("model  answers  P@5 by held-out answers    P@5 by classes  covered")
    for model in heldout.models(campaign):
        nearest = campaign.rounds.files(model.round).nearest()
        if nearest is None:  # the files of old rounds are removed
            continue
        truth = float((oracle.classes[nearest[:, 1:]] == oracle.classes[nearest[:, :1]]).mean())
        estimate = f"{model.p5.value:.3f} ({model.p5.low:.3f}–{model.p5.high:.3f})"
        covered = "yes" if model.p5.low <= truth <= model.p5.high else "no"
        print(f"{model.round:5d}  {model.answers:7d}  {estimate:24}   {truth:14.3f}  {covered}")


if __name__ == "__main__":
    main()
