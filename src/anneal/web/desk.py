"""The open campaign that all requests share."""

import asyncio
import math
import threading
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request

from anneal.campaign import guidance, heldout
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import Classes, to_classify
from anneal.campaign.heldout import Model
from anneal.watch import silent

Json = dict[str, Any]


class Desk:
    """An open campaign. One thread at a time uses it: the one that holds ``lock``."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.lock = threading.RLock()
        self.decoding = asyncio.Semaphore(1)  # query images, one at a time: a large one takes memory
        self.archive = campaign.archive()  # as it was at the last look: no picture waits for the lock
        self._models: tuple[Any, list[Model]] | None = None
        self._classes: tuple[Any, Classes] | None = None

    def check(self, image: int) -> None:
        """Refuse the id of an image that is not there."""
        if image >= len(self.archive):
            self.look()
        if not 0 <= image < len(self.archive):
            raise HTTPException(404, f"There is no image {image}: ids go from 0 to {len(self.archive) - 1}.")

    def look(self) -> None:
        """Take over what has become of the archive; it costs nothing as long as that is nothing."""
        with self.lock:
            self.archive = self.campaign.archive()

    def cutoff(self, model: int) -> float | None:
        """The similarity from which this model calls a pair similar; None for the frozen features."""
        cutoff = self.campaign.rounds.cutoff(model)
        return None if math.isnan(cutoff) else round(cutoff, 4)

    def models(self) -> list[Model]:
        """How good each model is, estimated again only after a new model or a change of held-out answers."""
        version = self.campaign.rounds.version, self.campaign.tally().heldout_changes
        if self._models is None or self._models[0] != version:
            self._models = version, heldout.models(self.campaign)
        return self._models[1]

    def classes(self) -> Classes:
        """The class of every image, found again only after something new was said or learnt."""
        with self.lock:
            names = self.campaign.store.names()
            said = self.campaign.log().newest, self.campaign.store.newest_label(), len(names)
            version = self.campaign.rounds.version, said
            if self._classes is not None and self._classes[0] == version:
                return self._classes[1]
            work = to_classify(self.campaign)
        found = work(silent)  # may take a while: others may use the campaign meanwhile
        self._classes = version, found
        return found

    def advice(self) -> Json | None:
        """How far the campaign is and whether to stop; None without held-out questions. The estimates may
        take a while."""
        if not self.campaign.settings.heldout:
            return None
        models = self.models()
        with self.campaign.transaction():  # inside it nothing is read twice
            return asdict(guidance.guide(self.campaign, models))


async def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


SharedDesk = Annotated[Desk, Depends(_desk)]
