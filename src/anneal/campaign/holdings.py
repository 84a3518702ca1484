"""The images that a campaign has: how many, where they are, and which of them count."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive, reopen, with_paths
from anneal.archive.pixels import GrowingArray
from anneal.archive.reading import Reading
from anneal.campaign import trust
from anneal.campaign.inventory import Inventory
from anneal.campaign.rounds import Rounds
from anneal.campaign.store import Store
from anneal.errors import CampaignError
from anneal.pairs import Ids
from anneal.settings import from_json


class Holdings:
    """What is read of the images is read again when another process has changed it (``Rounds.grown``)."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store
        self.inventory = Inventory(store)
        saved = store.settings()
        try:
            self.settings = from_json(saved["settings"])
            stored = Path(saved["archive"]["folder"])
            beside = folder / "cache" / stored.name  # the campaign's folder may have been moved
            self.archive_folder = beside if beside.exists() else stored  # of pixels and features
            self.reading = Reading.load(self.archive_folder)  # how a file becomes pixels
            row = (self.settings.px, self.settings.px, self.reading.channels)
            pixels = GrowingArray(self.archive_folder / "pixels", "uint8", row)
            # In a simulation, the images that it asks about.
            self._chosen = trust.images(store, saved["size"], saved["images"], pixels)
        except KeyError:
            raise CampaignError(f"{folder} holds a campaign that was not finished: run init again.") from None
        except (TypeError, ValueError):
            raise CampaignError(f"{folder} does not say where its images are: run anneal check.") from None
        self._archive: tuple[int, Archive] | None = None  # to read it takes long
        self._forget()

    def _forget(self) -> None:
        """Nothing is read yet."""
        self.rounds = Rounds(self.folder, self.store)
        self._live: tuple[int, Ids] | None = None
        self._retired: tuple[int, Ids] | None = None
        self._reasons: tuple[int, dict[str, int]] | None = None

    @property
    def size(self) -> int:
        """The number of images, retired ones too: ids go from 0 to this."""
        return self.rounds.size

    def retired(self) -> Ids:
        """Images that are not asked about, not found and not counted: their files are gone, or they are
        duplicates. What was said about them still counts."""
        grown = self.rounds.grown
        if self._retired is None or self._retired[0] != grown:
            self._retired = grown, np.array(list(self.inventory.retired()), dtype=np.int64)
        return self._retired[1]

    def reasons(self) -> dict[str, int]:
        """How many images are retired for each reason."""
        grown = self.rounds.grown
        if self._reasons is None or self._reasons[0] != grown:
            self._reasons = grown, self.inventory.counts()
        return self._reasons[1]

    @property
    def live(self) -> Ids:
        """All others."""
        grown = self.rounds.grown
        if self._live is None or self._live[0] != grown:
            self._live = grown, np.setdiff1d(np.arange(self.size), self.retired(), assume_unique=True)
        return self._live[1]

    @property
    def is_simulation(self) -> bool:
        """Whether only some images are asked about, and the archive stays as it is."""
        return self._chosen is not None

    @property
    def images(self) -> Ids:
        """Those that may be asked about: the live ones or, in a simulation, a part of them."""
        if self._chosen is None:
            return self.live
        retired = self.retired()
        return self._chosen[~np.isin(self._chosen, retired)] if len(retired) else self._chosen

    @property
    def root(self) -> Path:
        """The archive's folder: where it was, or where it is beside the campaign if both were moved."""
        where = self.store.setting("archive", {})
        root = Path(where["root"])
        beside = (self.folder / where["beside"]).resolve() if "beside" in where else root
        return beside if beside.exists() and not root.exists() else root

    def archive(self) -> Archive:
        """The archive, from the stored pixels: the files need not be there."""
        grown = self.rounds.grown
        if self._archive is None or self._archive[0] != grown:
            archive = reopen(self.root, self.archive_folder, self.settings.px, self.size)
            added = (*self.store.setting("sources", []), *self.store.setting("folders", []))
            folders = tuple(str(folder) for folder in added)
            moved = with_paths(archive, self.inventory.moved())
            self._archive = grown, replace(moved, folders=folders)
        return self._archive[1]
