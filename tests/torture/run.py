"""Attacks that take minutes to an hour, with their counts. ``make test`` has short versions of them.

    python tests/torture/run.py [name[=count] …]

An attack is a function of a count that returns a line of counts, or fails. To add one, add it to ``ATTACKS``.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)  # the folder of the tests, not this one

ATTACKS = {
    "kills": ("torture.kills", 1000),  # of the server
    "copies": ("torture.copies", 50),  # of the folder
    "requests": ("torture.schema", 20_000),
    "people": ("torture.people", 600),  # seconds
    "worker": ("torture.worker", 200),  # kills of the machine's process
    "disk": ("torture.disk", 100),  # cycles of a full disk
    "power": ("torture.power", 10),  # runs whose every prefix is opened
    "images": ("torture.images", 10_000),  # files with changed bytes
}  # name → the module whose ``run(count)`` it is, and the count


def main(wanted: list[str]) -> int:
    """Run these attacks, or all; returns how many failed."""
    rows = []
    for one in wanted or list(ATTACKS):
        name, _, number = one.partition("=")
        if name not in ATTACKS:
            print(f"There is no attack {name}: {', '.join(ATTACKS)}.")
            return 2
        module, count = ATTACKS[name]
        print(f"{name} …", flush=True)
        start = time.monotonic()
        try:
            said = importlib.import_module(module).run(int(number or count))
            rows.append((name, "ok", said))
        except Exception as error:
            print(traceback.format_exc()[-4000:])  # a request that failed may be long
            rows.append((name, "FAILED", f"{type(error).__name__}: {str(error)[:300]}"))
        print(f"{name}: {rows[-1][1]} in {time.monotonic() - start:.0f} s. {rows[-1][2]}", flush=True)
    print("\n| attack | | counts |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return sum(row[1] != "ok" for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
