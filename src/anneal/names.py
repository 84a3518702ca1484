"""File names as text. On disk a name is any bytes: perhaps not UTF-8, perhaps what a terminal obeys."""


def printable(name: str) -> str:
    """A file name as text in UTF-8. Bytes that are not UTF-8 become ``\\xe9``, as Python writes them."""
    try:
        data = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a character, from JSON
        data = name.encode("utf-8", "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


SPACES = "\u00a0\u202f"  # in numbers with units


def visible(text: str) -> str:
    """Text that a terminal shows and does not obey: control characters, line breaks and characters that
    change the direction of others are escaped as Python writes them."""
    return "".join(one if one.isprintable() or one in SPACES else _escaped(one) for one in printable(text))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
