"""Tables as files: CSV, JSON lines or Parquet, by the name of the file. They are written block by block."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from anneal.errors import UsageError
from anneal.files import replacing

Schema = Mapping[str, str]  # column → its type, as Arrow calls it
Block = Mapping[str, Sequence[Any]]  # some rows, column by column

ROWS = 65536  # of a block
SUFFIXES = (".csv", ".jsonl", ".parquet")


def write(file: Path, schema: Schema, blocks: Iterable[Block]) -> int:
    """Write a table in one step; returns the number of rows."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{file}: name it {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
    if suffix == ".parquet":
        return write_parquet(file, schema, blocks)
    count = 0
    with replacing(file) as out:
        if suffix == ".csv":
            out.write(csv_lines([schema]))
        for block in blocks:
            rows = list(rows_of(schema, block))
            count += len(rows)
            out.write(csv_lines(rows) if suffix == ".csv" else json_lines(schema, rows))
    return count


def csv_lines(rows: Iterable[Iterable[Any]]) -> bytes:
    """Rows of CSV in UTF-8; None is an empty cell. Lines end as RFC 4180 wants, so a line break inside a name
    is quoted."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8")


def json_lines(names: Iterable[str], rows: Iterable[Sequence[Any]]) -> bytes:
    keys = list(names)
    lines = (json.dumps(dict(zip(keys, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    return "".join(lines).encode("utf-8")


def rows_of(names: Iterable[str], block: Block) -> Iterator[tuple[Any, ...]]:
    yield from zip(*(block[name] for name in names), strict=True)


def write_parquet(
    file: Path, schema: Schema, blocks: Iterable[Block], metadata: Mapping[str, str] | None = None
) -> int:
    """A Parquet file, with a note for its readers if there is one. Returns the number of rows."""
    arrow = needed("pyarrow")
    parquet = needed("pyarrow.parquet")
    columns = [arrow.field(name, arrow_type(arrow, kind)) for name, kind in schema.items()]
    typed = arrow.schema(columns, metadata=dict(metadata) if metadata else None)
    count = 0
    with replacing(file) as out, parquet.ParquetWriter(out, typed) as writer:
        for block in blocks:
            table = arrow.Table.from_pydict({name: block[name] for name in schema}, typed)
            writer.write_table(table)
            count += len(table)
    return count


def arrow_type(arrow: ModuleType, kind: str) -> Any:
    """The type with this name; ``float[256]`` is a list of 256 numbers."""
    inner, bracket, length = kind.partition("[")
    if not bracket:
        return arrow.type_for_alias(kind)
    return arrow.list_(arrow.type_for_alias(inner), int(length.rstrip("]")))


def needed(name: str, extra: str = "geo") -> ModuleType:
    """A library that only some exports need."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UsageError(f"This needs {package}: pip install 'anneal[{extra}]'.") from None
