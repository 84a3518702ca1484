"""Run every benchmark, one after the other, and write their rows to ``docs/benchmarks.md``.

python bench/run.py [name ...]     # some of them, by the name of the script; their rows are replaced
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
ROWS = HERE.parent / "results" / "benchmarks.json"  # what the page is made of
SCRIPTS = ("encoding", "mining", "training", "search", "questions", "growth", "cluster")
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}  # as the command line sets it
HEAD = """# Benchmarks

Each row comes from one run of a script in `bench/`, in which our code and the reference take turns on the
same machine. A ratio is the reference's time divided by ours: above 1, ours is faster. It is the median of
several turns, with their range in brackets. `make bench` runs all scripts and writes this page. Speeds depend
on the machine; ratios less so.

"""


def main(names: list[str]) -> None:
    every = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
    for name in names or SCRIPTS:
        print(f"bench/{name}.py", flush=True)
        rows = []
        with subprocess.Popen(
            [sys.executable, str(HERE / f"{name}.py")], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print("  " + line, end="", flush=True)
                if line.startswith("| "):
                    rows.append(line.rstrip("\n"))
        if process.returncode:
            sys.exit(f"bench/{name}.py failed")
        every[name] = {"date": date.today().isoformat(), "machine": machine(), "rows": rows}
        ROWS.write_text(json.dumps(every, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        PAGE.write_text(page(every), encoding="utf-8")


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def page(every: dict[str, dict[str, object]]) -> str:
    parts = [HEAD]
    for name in SCRIPTS:
        if name in every:
            about = every[name]
            rows = about["rows"]
            assert isinstance(rows, list)
            parts.append(
                f"## {name.capitalize()}\n`python bench/{name}.py`, {about['date']}, {about['machine']}\n\n"
            )
            parts.append("| work | reference | ratio | wanted |\n|---|---|---|---|\n")
            parts.append("\n".join(rows) + "\n\n")
            if name == "growth":
                parts.append("![The same from a thousand images to a million](figures/growth.png)\n\n")
    return "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
