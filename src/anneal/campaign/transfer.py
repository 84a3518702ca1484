"""Answers from and to a file: CSV, or JSON lines.

``write_answers`` writes every event, so that nothing is lost: what was withdrawn or undone, who answered when
and in which round, what an answer was for. ``read_answers`` takes that, and shorter lists as well: a, b,
verdict[, annotator], or path_a, path_b, similar. An image is named by its path in the archive, or by its id.
What export wrote names it by its content too, so it fits an archive in which files were moved.
"""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Event, Purpose, Row
from anneal.errors import UsageError
from anneal.files import write_text
from anneal.names import printable
from anneal.pairs import UNKNOWN, Verdict

VERDICTS = {verdict.name.lower(): int(verdict) for verdict in Verdict}
WITHDRAWN = "none"
YES_OR_NO = {
    **dict.fromkeys(("1", "1.0", "true", "yes"), int(Verdict.SIMILAR)),
    **dict.fromkeys(("0", "0.0", "false", "no"), int(Verdict.DISSIMILAR)),
}
COLUMNS = (
    "id", "a", "b", "verdict", "annotator", "stands", "purpose", "round", "strategy", "answered", "asked",
    "looked", "entered", "undoes", "key", "why", "sheet", "guess", "digest_a", "digest_b",
)  # fmt: skip
HEADER = "its header is a,b,verdict,annotator, or path_a,path_b,similar, or what export wrote"

Line = dict[str, Any]


# -- out -----------------------------------------------------------------------------------------------


def write_answers(campaign: Campaign, file: Path) -> int:
    """Write every event; returns how many answers stand."""
    archive = campaign.archive()
    log = campaign.log()
    lines = [_line(archive, row, log.is_standing(row)) for row in log.rows]
    text = io.StringIO()
    if _is_json(file):
        text.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    else:
        writer = csv.DictWriter(text, COLUMNS)  # \r\n, as RFC 4180 wants: so both are quoted
        writer.writeheader()
        writer.writerows(lines)
    write_text(file, text.getvalue())
    return len(log.standing())


def _line(archive: Archive, row: Row, stands: bool) -> Line:
    words = {number: word for word, number in VERDICTS.items()}
    images = {"a": printable(archive.paths[row.a]), "b": printable(archive.paths[row.b])}
    digests = {"digest_a": archive.digests[row.a], "digest_b": archive.digests[row.b]}
    derived = ("a", "b", "verdict", "stands", "purpose", "digest_a", "digest_b")
    values = {name: getattr(row, name) for name in COLUMNS if name not in derived}
    values |= {"verdict": words.get(row.verdict, WITHDRAWN), "purpose": str(row.purpose)}
    values |= {"guess": words.get(row.guess or UNKNOWN)}
    values |= {"stands": "yes" if stands else "no", **images, **digests}
    return {name: values[name] for name in COLUMNS}


# -- in ------------------------------------------------------------------------------------------------


def read_answers(campaign: Campaign, file: Path) -> int:
    """Add every line, all of them or none; returns how many are new. What is there already is not added
    again."""
    lines = list(_lines(file))
    if any(line.get("source") in ("implied", "held-out") for _, line in lines):
        raise UsageError(f"{file} lists pairs, implied ones too: import what export answers wrote instead.")
    images = _Images(campaign.archive())
    if lines and "undoes" in lines[0][1]:
        return _add_events(campaign, [_event(where, line, images) for where, line in lines])
    number = campaign.rounds.current
    events: dict[tuple[int, int, str], Event] = {}
    for where, line in lines:
        a, b = _pair(where, line, images)
        who = str(line.get("annotator") or "import")
        events[a, b, who] = Event(a, b, _verdict(where, line), who, "", number, Purpose.IMPORTED)
    return _add_answers(campaign, events.values())


def _add_answers(campaign: Campaign, events: Iterable[Event]) -> int:
    """Add answers of today. If a person answered a pair more than once, the last line counts."""
    with campaign.transaction() as log:
        standing = {(row.a, row.b, row.verdict, row.annotator) for row in log.standing()}
        new = [one for one in events if (one.a, one.b, one.verdict, one.annotator) not in standing]
        campaign.store.add(new)
    return len(new)


def _add_events(campaign: Campaign, rows: list[tuple[str, Row]]) -> int:
    """Add events as they were. An undo follows what it takes back to its new number."""
    added = 0
    with campaign.transaction() as log:
        numbers: dict[int, int] = {}
        there = {_identity(row): row.id for row in log.rows}
        for where, row in rows:
            undoes = None
            if row.undoes is not None:
                undoes = numbers.get(row.undoes)
                if undoes is None:
                    raise UsageError(f"{where} undoes {row.undoes}, which is no line before it. {NOTHING}")
            known = there.get(_identity(row))
            if known is None:
                known = campaign.store.add([replace(row, undoes=undoes)])[0]
                added += known > log.newest
            numbers[row.id] = known
    return added


def _identity(row: Row) -> tuple[Any, ...]:
    """What tells two events apart, whatever their numbers are."""
    undo = row.undoes is not None
    return row.a, row.b, row.verdict, row.annotator, row.purpose, row.round, row.answered, row.entered, undo


NOTHING = "Nothing was imported."


def _event(where: str, line: Line, images: "_Images") -> tuple[str, Row]:
    """One line that export wrote."""
    a, b = _pair(where, line, images)
    word = _text(line, "verdict").casefold()
    purpose = _text(line, "purpose")
    if purpose not in list(Purpose):
        raise UsageError(f"{where}: {purpose!r} is not a purpose; use {', '.join(Purpose)}. {NOTHING}")
    number = _number(where, line, "id")
    answered = _number(where, line, "answered")
    round_ = _number(where, line, "round")
    undoes = _number(where, line, "undoes")
    looked = _number(where, line, "looked")
    if number is None or answered is None or round_ is None:
        raise UsageError(f"{where} lacks its id, its round or its time (answered). {NOTHING}")
    event = Row(
        a,
        b,
        UNKNOWN if word == WITHDRAWN else _verdict(where, line),
        str(line.get("annotator") or "import"),
        str(line.get("strategy") or ""),
        int(round_),
        purpose,
        _number(where, line, "asked"),
        None if looked is None else int(looked),
        str(line["key"]) if line.get("key") else None,
        None if undoes is None else int(undoes),
        str(line["entered"]) if line.get("entered") else None,
        str(line["why"]) if line.get("why") else None,
        str(line["sheet"]) if line.get("sheet") else None,
        VERDICTS.get(_text(line, "guess").casefold()),
        answered=answered,
        id=int(number),
    )
    return where, event


class _Images:
    """Images by path, by content, or by id."""

    def __init__(self, archive: Archive) -> None:
        self.digests = archive.digests
        self.by_path = {printable(path): i for i, path in enumerate(archive.paths)}
        self.by_digest: dict[str, int] = {}
        for i, digest in enumerate(archive.digests):
            self.by_digest.setdefault(digest, i)

    def find(self, where: str, given: Any, digest: str) -> int:
        text = "" if given is None else str(given)
        name = text.strip()
        image = next((self.by_path[one] for one in (text, name) if one in self.by_path), None)
        if digest and (image is None or self.digests[image] != digest):
            moved = self.by_digest.get(digest)
            if moved is not None:
                return moved
            if image is not None:
                raise UsageError(f"{where}: {name!r} is another image here than the one judged. {NOTHING}")
        if image is not None:
            return image
        if name.isascii() and name.isdigit() and len(name) < 19 and int(name) < len(self.digests):
            return int(name)
        raise UsageError(f"{where}: {name!r} is not an image of this archive. {NOTHING}")


def _pair(where: str, line: Line, images: _Images) -> tuple[int, int]:
    a = images.find(where, line.get("path_a", line.get("a")), _text(line, "digest_a"))
    b = images.find(where, line.get("path_b", line.get("b")), _text(line, "digest_b"))
    if a == b:
        raise UsageError(f"{where} pairs an image with itself. {NOTHING}")
    return min(a, b), max(a, b)


def _verdict(where: str, line: Line) -> int:
    if "verdict" not in line and "similar" in line:
        word = _text(line, "similar").casefold()
        if word in YES_OR_NO:
            return YES_OR_NO[word]
        raise UsageError(f"{where}: {word!r} does not say whether they are similar; use 1 or 0. {NOTHING}")
    word = _text(line, "verdict").casefold()
    if word not in VERDICTS:
        raise UsageError(f"{where}: {word!r} is not a verdict; use {', '.join(VERDICTS)}. {NOTHING}")
    return VERDICTS[word]


def _text(line: Line, name: str) -> str:
    value = line.get(name)
    return "" if value is None else str(value).strip()


def _number(where: str, line: Line, name: str) -> float | None:
    """The number in a column; None if it is empty."""
    text = _text(line, name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}: {name} is {text!r}, which is not a number. {NOTHING}")
    return number


# -- files ---------------------------------------------------------------------------------------------


def _is_json(file: Path) -> bool:
    if file.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"{file}: name it .csv or .jsonl.")
    return file.suffix.lower() == ".jsonl"


def _lines(file: Path) -> Iterator[tuple[str, Line]]:
    """(the file and the line, as a message names them; the line's columns)"""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist: give a CSV or JSON lines file of answers.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): give a file of answers.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8.") from None
    yield from _json_lines(file, text) if _is_json(file) else _csv_lines(file, text)


def _json_lines(file: Path, text: str) -> Iterator[tuple[str, Line]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:  # bad JSON, or a number with more than 4300 digits
                row = None
            if not isinstance(row, dict):
                raise UsageError(f"{file}, line {number} is not a JSON object. {NOTHING}")
            yield f"{file}, line {number}", row


def _csv_lines(file: Path, text: str) -> Iterator[tuple[str, Line]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    names = set(reader.fieldnames or [])
    missing = ", ".join(sorted({"a", "b", "verdict"} - names))
    by_path = {"path_a", "path_b"} <= names and names & {"verdict", "similar"}
    if missing and not by_path:
        raise UsageError(f"{file} has no column {missing}: {HEADER}.")
    try:
        for row in reader:
            yield f"{file}, line {reader.line_num}", row
    except csv.Error as error:  # after a quote that is never closed, say
        raise UsageError(f"{file}, line {reader.line_num}: {error}. {NOTHING}") from None
