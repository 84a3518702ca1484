"""Which bands of a file are red, green and blue: by name, by number or by the sensor."""

import re
from collections.abc import Sequence

_LANDSAT: dict[int, tuple[int, ...]] = {6: (3, 2, 1), **dict.fromkeys((7, 8, 9, 10, 11), (4, 3, 2))}
PRESETS: dict[str, tuple[tuple[str, ...], dict[int, tuple[int, ...]]]] = {
    "rgb": ((), {}),
    "sentinel2": (("b4", "b3", "b2"), {4: (3, 2, 1), 10: (3, 2, 1), 12: (4, 3, 2), 13: (4, 3, 2)}),
    "landsat8": (("b4", "b3", "b2"), _LANDSAT),
    "naip": ((), {3: (1, 2, 3), 4: (1, 2, 3)}),
}
"""Red, green and blue of a sensor: codes that a file may name its bands by, and the usual places, by the
number of bands, in a file that does not name them."""
COLOURS = ("red", "green", "blue")
ALPHA = "alpha"
WAVELENGTHS = ("coastal", *COLOURS[::-1], "rededge", "nir", "swir", "swir1", "swir2", "tir")
"""Names of bands, the shortest waves first."""
EVERY = ("all", "pca")  # choices that take every band


class NoBandError(ValueError):
    """A file does not have the bands that were asked for; the text lists those that it has."""


def plain(text: str) -> str:
    """A band's name in one spelling: "B04", "Band 4" and "b4" are b4; "Near Infrared" is nir."""
    text = re.sub(r"[\s_-]+", " ", text.lower()).strip()
    text = text.replace("near infrared", "nir").replace("red edge", "rededge")
    text = re.sub(r"\bband (\d+a?)\b", r"b\1", text)
    return re.sub(r"\bb0+(\d)", r"b\1", text)


def named(descriptions: Sequence[str | None], colours: Sequence[str]) -> tuple[str, ...]:
    """A name for each band: its description, else its colour interpretation, else its number."""
    names: list[str] = []
    for number, (description, colour) in enumerate(zip(descriptions, colours, strict=True), start=1):
        name = plain(description or "")
        if not name and colour not in ("undefined", "gray", "palette"):
            name = colour
        names.append(name if name and name not in names else str(number))
    return tuple(names)


def listed(names: Sequence[str]) -> str:
    """The bands for a person: "1 blue, 2 green, 3"."""
    shown = [str(i) if name == str(i) else f"{i} {name}" for i, name in enumerate(names, start=1)]
    return ", ".join(shown)


def find(word: str, names: Sequence[str]) -> int | None:
    """The place of a band with this name, or else with this word in its name, or of this number."""
    if word.isdecimal():
        return int(word) - 1 if 1 <= int(word) <= len(names) else None
    wanted = plain(word)
    if wanted in names:
        return names.index(wanted)
    return next((i for i, name in enumerate(names) if wanted in name.split()), None)


def _all_of(words: Sequence[str], names: Sequence[str]) -> tuple[int, ...] | None:
    places = [find(word, names) for word in words]
    found = tuple(place for place in places if place is not None)
    return found if words and len(found) == len(words) else None


def data(names: Sequence[str]) -> tuple[int, ...]:
    """The places of the bands that hold data, not transparency."""
    return tuple(i for i, name in enumerate(names) if name != ALPHA)


def colours(names: Sequence[str]) -> tuple[int, ...]:
    """Red, green and blue, as the file says. A file of 12 or 13 bands without names is taken for Sentinel-2;
    of any other the first three are shown, or the first."""
    every = data(names)
    said = _all_of(COLOURS, names) or _all_of(("b4", "b3", "b2"), names)
    if said:
        return said
    unnamed = all(name == str(i) for i, name in enumerate(names, start=1))
    if unnamed and len(every) in (12, 13):
        return 3, 2, 1
    return every[:3] if len(every) > 2 else every[:1]


def chosen(wanted: str, names: Sequence[str]) -> tuple[int, ...]:
    """The places of the bands that ``--bands`` asks for. A NoBandError lists those there are."""
    if wanted == "auto":
        return colours(names)
    if wanted in EVERY:
        return data(names)
    if wanted in PRESETS:
        codes, places = PRESETS[wanted]
        usual = tuple(place - 1 for place in places.get(len(names), ()))
        found = _all_of(codes, names) or _all_of(COLOURS, names) or usual
        if not found and wanted == "rgb":
            found = colours(names)
        if not found:
            raise NoBandError(f"it does not look like {wanted}: its bands are {listed(names)}")
        return found
    found = _all_of(wanted.split(","), names) or ()
    if not found:
        missing = [word for word in wanted.split(",") if find(word, names) is None]
        raise NoBandError(f"it has no band {', '.join(missing)}: its bands are {listed(names)}")
    return found


def choices(names: Sequence[str]) -> list[dict[str, str]]:
    """What a person may choose for display, as ``--bands`` spells it, and in words. Empty for ordinary
    images."""
    every = data(names)
    if len(every) <= 3:
        return []
    made = [{"bands": "auto", "text": "natural colour"}]
    infrared = find("nir", names)
    if infrared is None and [names[i] for i in colours(names)] == ["4", "3", "2"]:
        infrared = 7  # taken for Sentinel-2
    if infrared is not None:
        false = (infrared, *colours(names)[:2])
        made.append({"bands": ",".join(str(i + 1) for i in false), "text": "infrared, red, green"})
    first = (every[i : i + 3] for i in range(0, len(every) - 2, 3))
    made += [{"bands": ",".join(str(i + 1) for i in some), "text": _words(some, names)} for some in first]
    return made + [{"bands": str(i + 1), "text": _words((i,), names)} for i in every]


def _words(places: Sequence[int], names: Sequence[str]) -> str:
    words = [names[i] for i in places]
    return ("bands " if len(words) > 1 else "band ") + ", ".join(words)


def kernels(names: Sequence[str]) -> tuple[int, ...]:
    """For each band, the colour (0 red, 1 green, 2 blue) whose kernel it takes in a network for colours. In
    the order of their wavelengths the first third takes blue, the middle green and the last red, as in a
    false-colour picture: neighbours are alike, so little is lost where they share a kernel. Bands with
    unknown names are taken to be in that order."""
    if set(names) == set(COLOURS):
        return tuple(COLOURS.index(name) for name in names)
    order = list(range(len(names)))
    if set(names) <= set(WAVELENGTHS):
        order.sort(key=lambda i: WAVELENGTHS.index(names[i]))
    taken = [0] * len(names)
    for place, i in enumerate(order):
        taken[i] = 2 - 3 * place // len(names)
    return tuple(taken)
