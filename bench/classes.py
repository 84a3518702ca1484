"""How sure a predicted group is, and how often it is right, on images whose classes are known.

    anneal simulate UCMerced/ --strategy place --per-round 60 --rounds 3 --seed 5 --trials 2 --out runs/ucm
    python bench/classes.py runs/ucm/trials/place-0 runs/ucm/trials/place-1

A group counts as the commonest class of its settled images. The last column of a row is the number of images.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import classify
from anneal.method.predict import NO_CLASS

BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.01)


def main(folder: Path) -> None:
    campaign = Campaign.open(folder)
    truth = campaign.archive().classes
    classes = classify(campaign)
    commonest = np.array([np.bincount(truth[one.images]).argmax() for one in classes.every])
    images = campaign.images[~classes.settled[campaign.images]]
    images = images[classes.column[images] != NO_CLASS]
    right = commonest[classes.column[images]] == truth[images]
    score = classes.score[images]
    answers = campaign.log().given
    print(f"{folder}: {answers} answers, {len(classes.every)} groups, {int(classes.settled.sum())} settled")
    print(f"  all: score {score.mean():.3f}, right {right.mean():.3f}, {len(images)}")
    gap = 0.0
    for low, high in pairwise(BINS):
        inside = (score >= low) & (score < high)
        if inside.any():
            gap += inside.mean() * abs(score[inside].mean() - right[inside].mean())
            shares = f"score {score[inside].mean():.3f}, right {right[inside].mean():.3f}"
            print(f"  {low:.2f} to {min(high, 1):.2f}: {shares}, {int(inside.sum())}")
    print(f"  expected calibration error {gap:.3f}")
    campaign.close()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(Path(name))
