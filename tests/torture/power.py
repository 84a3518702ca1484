"""Power loss, modelled: the order in which a campaign's files reach the disk is recorded (strace), and what a
disk would hold is built for every prefix of it. What was not synced is taken to be lost.

``python tests/torture/power.py 3`` does it for three runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "campaign")]

from tiny import SETTINGS, answer_truly, pattern_archive  # noqa: E402

from anneal.archive.catalog import open_archive  # noqa: E402
from anneal.campaign.campaign import Campaign  # noqa: E402
from anneal.campaign.check import lost  # noqa: E402
from anneal.campaign.turn import begin  # noqa: E402
from anneal.network import backbones  # noqa: E402

# A person answers, the machine takes its turn, and they answer again. Each acknowledgement is a write to the
# standard output. The process ends without closing the file, as in a loss of power.
WORK = """
import os, sys
sys.path[:0] = sys.argv[2:]
from tiny import truth, verdict_of
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import take
from anneal.campaign.turn import turn
from anneal.network.train import Fit
Fit.length = lambda settings, known: 5
campaign = Campaign.open(sys.argv[1])
kinds = truth(campaign)
def answer(n):
    for _ in range(n):
        question, *_ = take(campaign, "me", "me", 1)
        number = campaign.answer(*question.pair, verdict_of(kinds, question.pair))
        os.write(1, b"answer %d\\n" % number)
answer(5)
turn(campaign)
os.write(1, b"round %d\\n" % campaign.rounds.current)
answer(3)
os._exit(0)
"""
CALLS = "pwrite64,write,fsync,fdatasync,rename,renameat,renameat2"
LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += +(-?\d+)")
FILE = re.compile(r"<([^<>]*)>")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass
class Disk:
    """What is certainly on the disk after some calls."""

    synced: set[str] = field(default_factory=set)  # files whose bytes are there, by the name they had then
    renamed: dict[str, str] = field(default_factory=dict)  # new name → old name, not yet synced
    named: set[str] = field(default_factory=set)  # files that are there whole and under their name
    log: int = 0  # bytes of the write-ahead log that were written …
    log_synced: int = 0  # … and that are there
    answers: int = 0  # acknowledged: the number of the last one
    rounds: int = 0

    def call(self, name: str, arguments: str, result: int) -> None:
        """Take in one system call."""
        paths = FILE.findall(arguments)
        path = paths[0] if paths else ""
        if name in ("fsync", "fdatasync"):
            self.synced.add(path)
            whole = [new for new, old in self.renamed.items() if str(Path(new).parent) == path]
            self.named |= {new for new in whole if self.renamed[new] in self.synced}
            for new in whole:
                del self.renamed[new]
            if path.endswith("-wal"):
                self.log_synced = self.log
        elif name.startswith("rename"):
            old, new = QUOTED.findall(arguments)[:2]
            self.named.discard(new)
            self.renamed[new] = old
        elif name == "pwrite64" and path.endswith("-wal"):
            self.log = max(self.log, int(arguments.rsplit(",", 1)[1]) + result)
        elif name == "write" and arguments.startswith(("1<", "1,")):
            kind, number = QUOTED.findall(arguments)[0].replace("\\n", "").split()
            setattr(self, "answers" if kind == "answer" else "rounds", int(number))


def is_possible() -> bool:
    """Whether system calls can be recorded here."""
    if shutil.which("strace") is None:
        return False
    return (
        subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-e", "trace=fsync", "-o", "/dev/null", "true"],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )


def make(folder: Path, seed: int = 0) -> Path:
    """A campaign of 30 images with some answers."""
    archive = open_archive(pattern_archive(folder, kinds=6, each=5).root, 32, folder / "c" / "cache")
    backbone = backbones.load(SETTINGS.backbone)
    with closing(begin(folder / "c", archive, replace(SETTINGS, seed=seed), backbone=backbone)) as campaign:
        answer_truly(campaign, 8)
    return folder / "c"


def recorded(folder: Path, trace: Path) -> list[tuple[str, str, int]]:
    """The calls of the work on a campaign, in order. It stays as the work left it."""
    here = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "campaign")]
    work = [sys.executable, "-c", WORK, str(folder), *here]
    command = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-y",
        "-s",
        "64",
        "-e",
        f"trace={CALLS}",
        "-o",
        str(trace),
        *work,
    ]
    subprocess.run(command, check=True, capture_output=True)
    lines = trace.read_text(errors="replace").splitlines()
    found = [LINE.match(line) for line in lines if str(folder) in line or re.search(r"write\(1[<,]", line)]
    calls = [(call[1], call[2], int(call[3])) for call in found if call is not None]
    return [call for call in calls if call[2] >= 0]


def opened_prefixes(before: Path, after: Path, calls: list[tuple[str, str, int]], scratch: Path) -> int:
    """Build the disk after every prefix of the calls that changes it, open it, and check that nothing that
    was acknowledged is gone and that no finished round lacks a file. Returns how many were opened."""
    disk = Disk()
    seen: set[tuple[int, int, int, int]] = set()
    for call in calls:
        disk.call(*call)
        state = (disk.log_synced, len(disk.named), disk.answers, disk.rounds)
        if state in seen:
            continue
        seen.add(state)
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(before, scratch)
        for name in disk.named:
            copy = scratch / Path(name).relative_to(after)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, copy)
        if disk.log_synced:
            log = (after / "campaign.sqlite-wal").read_bytes()
            (scratch / "campaign.sqlite-wal").write_bytes(log[: disk.log_synced])
        with closing(Campaign.open(scratch)) as campaign:
            assert campaign.log().newest >= disk.answers, (call, disk)
            assert campaign.rounds.current >= disk.rounds, (call, disk)
            assert lost(campaign.rounds) == [], (call, lost(campaign.rounds))
            if campaign.rounds.current:
                assert campaign.rounds.files(campaign.rounds.current - 1).has_model, (call, disk)
    return len(seen)


def run(count: int) -> str:
    """Record this many runs; returns what was counted."""
    prefixes = 0
    calls = 0
    for seed in range(count):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            before = shutil.copytree(make(folder, seed), folder / "before")
            made = recorded(folder / "c", folder / "trace")
            calls += len(made)
            prefixes += opened_prefixes(before, folder / "c", made, folder / "scratch")
    return f"power: {count} runs, {calls} writes, syncs and renames, {prefixes} disks opened, 0 answers lost"


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
