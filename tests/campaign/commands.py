"""The command line in this process, for tests of campaigns."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from anneal import cli


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that was printed, in one line."""
        return " ".join((self.out + self.err).split())

    def is_plain(self) -> bool:
        """Whether it ended well or with a sentence that says what is wrong."""
        told = re.search(r"anneal: \S.*[.)]", " ".join(self.err.split())) is not None
        return "Traceback" not in self.err and "Aborted" not in self.text and (self.code == 0 or told)


@dataclass(frozen=True)
class Commands:
    """``run(folder, "status")`` is ``anneal status --campaign folder``."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, folder: Path, *words: str | Path) -> Run:
        self.monkeypatch.setattr(sys, "argv", ["anneal", *map(str, words), "--campaign", str(folder)])
        self.monkeypatch.setenv("COLUMNS", "200")
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = self.capsys.readouterr()
        code = ended.value.code
        return Run(code if isinstance(code, int) else 0, printed.out, printed.err)
