"""The progress view: how good each model is, what it cost, and who gave the answers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from anneal.campaign import heldout, progress
from anneal.campaign.heldout import Model
from anneal.method.estimate import Estimate
from anneal.web.desk import SharedDesk

VAGUE = 0.8  # an interval as wide as this says nothing and is not shown

router = APIRouter()


@router.get("/api/progress")
def how_good(desk: SharedDesk) -> dict[str, Any]:
    """How good each model is by the held-out answers, what the answers cost, and who gave them."""
    campaign = desk.campaign
    with desk.lock:
        answered = progress.standing(campaign).heldout
        return {
            "models": [_model(model, answered > 0) for model in desk.models()],
            "heldout": answered,
            "advice": desk.advice(),
            "serving": campaign.rounds.serving,
            "refusal": heldout.refusal(campaign),
            "shares": progress.shares(campaign),
            "aim": progress.aim(campaign),
            "people": progress.people(campaign),
            "agreement": progress.agreement(campaign),
        }


def _model(model: Model, measured: bool) -> dict[str, Any]:
    cost = {name: getattr(model, name) for name in ("round", "answers", "bits", "minutes")}
    p5 = _interval(("p5", "low", "high"), model.p5 if measured else None)
    names = ("precision", "precision_low", "precision_high")
    return {**cost, **p5, **_interval(names, model.precision if measured else None)}


def _interval(names: tuple[str, str, str], estimate: Estimate | None) -> dict[str, float | None]:
    """Value, low and high under these names; None where there is no estimate or it is too vague."""
    if estimate is None or estimate.high - estimate.low > VAGUE:
        return dict.fromkeys(names)
    values = (estimate.value, estimate.low, estimate.high)
    return {name: round(value, 4) for name, value in zip(names, values, strict=True)}
