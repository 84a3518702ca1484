"""Answers from and to a file: CSV, or JSON lines, with the columns a, b, verdict[, annotator].

An image is named by its path in the archive, or by its id; a verdict is similar, dissimilar or unsure.
"""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Event, Purpose
from anneal.errors import UsageError
from anneal.files import write_text
from anneal.pairs import Verdict

COLUMNS = ("a", "b", "verdict", "annotator")
VERDICTS = {verdict.name.lower(): int(verdict) for verdict in Verdict}


def read_answers(campaign: Campaign, file: Path) -> int:
    """Add every line as an answer, all of them or none; returns how many are new. An answer that stands
    already is not added again. If a person answers a pair more than once, the last line counts."""
    ids = {path: i for i, path in enumerate(campaign.archive().paths)}
    number = campaign.rounds.current
    events: dict[tuple[int, int, str], Event] = {}
    for line, row in _rows(file):
        a = _image(row.get("a"), ids, line)
        b = _image(row.get("b"), ids, line)
        verdict = str(row.get("verdict") or "").strip().casefold()
        if verdict not in VERDICTS:
            known = ", ".join(VERDICTS)
            raise UsageError(f"{line}: {verdict!r} is not a verdict; use {known}. Nothing was imported.")
        if a == b:
            raise UsageError(f"{line} pairs an image with itself. Nothing was imported.")
        who = str(row.get("annotator") or "import")
        pair = (min(a, b), max(a, b))
        events[*pair, who] = Event(*pair, VERDICTS[verdict], who, "", number, Purpose.IMPORTED)
    with campaign.transaction() as log:
        standing = {(row.a, row.b, row.verdict, row.annotator) for row in log.standing()}
        new = [one for one in events.values() if (one.a, one.b, one.verdict, one.annotator) not in standing]
        campaign.store.add(new)
    return len(new)


def write_answers(campaign: Campaign, file: Path) -> int:
    """Write the answers that stand; returns how many."""
    paths = campaign.archive().paths
    names = {number: word for word, number in VERDICTS.items()}
    rows = [
        {"a": paths[row.a], "b": paths[row.b], "verdict": names[row.verdict], "annotator": row.annotator}
        for row in campaign.log().standing()
    ]
    text = io.StringIO()
    if _is_json(file):
        text.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        writer = csv.DictWriter(text, COLUMNS)  # \r\n, as RFC 4180 wants: so both are quoted
        writer.writeheader()
        writer.writerows(rows)
    write_text(file, text.getvalue())
    return len(rows)


def _is_json(file: Path) -> bool:
    if file.suffix.lower() not in (".csv", ".jsonl"):
        raise UsageError(f"{file}: name it .csv or .jsonl.")
    return file.suffix.lower() == ".jsonl"


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(the file and the line, as a message names them; the line's columns)"""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist: give a CSV or JSON lines file of answers.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): give a file of answers.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8.") from None
    if _is_json(file):
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError:  # bad JSON, or a number with more than 4300 digits
                    row = None
                if not isinstance(row, dict):
                    raise UsageError(f"{file}, line {number} is not a JSON object. Nothing was imported.")
                yield f"{file}, line {number}", row
        return
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = ", ".join(sorted({"a", "b", "verdict"} - set(reader.fieldnames or [])))
    if missing:
        raise UsageError(f"{file} has no column {missing}: its header is a,b,verdict,annotator.")
    try:
        for row in reader:
            yield f"{file}, line {reader.line_num}", row
    except csv.Error as error:  # after a quote that is never closed, say
        raise UsageError(f"{file}, line {reader.line_num}: {error}. Nothing was imported.") from None


def _image(value: Any, ids: dict[str, int], line: str) -> int:
    given = "" if value is None else str(value)
    name = given.strip()
    for one in (given, name):
        if one in ids:
            return ids[one]
    if name.isascii() and name.isdigit() and len(name) < 19 and int(name) < len(ids):
        return int(name)
    raise UsageError(f"{line}: {name!r} is not an image of this archive. Nothing was imported.")
