"""How files become pixels: what a person chooses, and what a sample of the files then decides."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from anneal.errors import ArchiveError
from anneal.files import write_text
from anneal.settings import Settings

FILE = "reading.json"
SPLITS = ("train", "val", "test")
SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".jp2"}

Window = tuple[int, int, int, int]
"""x, y, width, height in a file."""
Footprint = tuple[tuple[float, float], ...]
"""Corners as (longitude, latitude) in WGS 84."""


class Entry(NamedTuple):
    """A file, or a window of one, to read as an image."""

    path: str  # relative to the root, with forward slashes; of a window, ``<file>@<x>,<y>``
    label: str = ""  # its class; empty if it has none
    split: str = ""  # train, val or test; empty if it has none
    window: Window | None = None  # None: the whole file
    footprint: Footprint = ()  # from a STAC item; the file's own comes first

    @property
    def file(self) -> str:
        return file_of(self.path, self.window)


class About(NamedTuple):
    """What is known of an image beside its pixels."""

    window: Window | None = None  # None: the whole file
    footprint: Footprint = ()
    size: tuple[int, int] | None = None  # width and height of the image, if it is not square


NOTHING = About()


def file_of(path: str, window: Window | None) -> str:
    """The file that an image is in."""
    return path if window is None else path.rpartition("@")[0]


@dataclass(frozen=True)
class Reading:
    """How every file of an archive becomes pixels. ``Settings`` explains the choices. The fields from
    ``channels`` on are decided by a sample of the files and kept beside the pixels, so that an image that
    comes later is read in the same way."""

    bands: str = "auto"
    stretch: str = "auto"
    stretch_by: str = "band"
    fit: str = "crop"
    tile: int = 0
    overlap: int = 0
    channels: int = 3  # of the stored pixels
    shown: tuple[int, ...] = (0, 1, 2)  # which of the channels a person sees as red, green and blue
    kernels: tuple[int, ...] = (0, 1, 2)  # which colour's kernel each channel takes in a network
    limits: tuple[tuple[str, float, float], ...] = ()  # band, and the values that become 0 and 255
    components: tuple[tuple[float, ...], ...] = ()  # three projections of the bands, with --bands pca

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            settings.bands,
            settings.stretch,
            settings.stretch_by,
            settings.fit,
            settings.tile,
            settings.tile_overlap,
        )

    @property
    def chosen(self) -> dict[str, Any]:
        """What a person chose, without what the files decided."""
        return {name: getattr(self, name) for name in CHOSEN}

    @property
    def displayed(self) -> str:
        """The bands that a person sees as red, green and blue, as ``--bands`` spells them."""
        if self.channels == 3:
            return self.bands
        return "auto" if self.bands == "all" else ",".join(self.bands.split(",")[:3])

    @property
    def told(self) -> str:
        """How files are read, in words; empty if there was nothing to choose."""
        words = []
        if self.bands != "auto" or self.limits:
            words.append(f"bands {self.bands}" + (f" ({self.channels})" if self.channels != 3 else ""))
        if self.limits and self.stretch in ("auto", "archive"):
            shown = [one for one in self.limits if not one[0].startswith("component")][:4]
            values = ", ".join(f"{name} {low:g} to {high:g}" for name, low, high in shown)
            more = " …" if len(self.limits) > len(shown) else ""
            words.append(f"one stretch for all ({values}{more})")
        elif self.stretch != "auto":
            words.append(f"stretch {self.stretch}")
        if self.tile:
            words.append(
                f"tiles of {self.tile} px" + (f" that overlap by {self.overlap}" if self.overlap else "")
            )
        return ", ".join(words)

    def for_a_person(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(…, channels) of stored pixels → (…, 3)."""
        return pixels if self.channels == 3 else np.asarray(pixels)[..., list(self.shown)]

    def save(self, folder: Path) -> None:
        write_text(folder / FILE, json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """How the pixels in a folder were read. Earlier versions did not say: they squeezed every image to a
        square and stretched a deep one by itself."""
        file = folder / FILE
        if not file.exists():
            return cls(fit="squash")
        known = {one.name for one in fields(cls)}
        try:
            saved = json.loads(file.read_bytes())
            return cls(**{name: _tuples(value) for name, value in saved.items() if name in known})
        except (ValueError, AttributeError, TypeError) as error:
            raise ArchiveError(
                f"{file} is damaged ({error}): restore it from a backup that was made with --all."
            ) from error


CHOSEN = ("bands", "stretch", "stretch_by", "fit", "tile", "overlap")


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
