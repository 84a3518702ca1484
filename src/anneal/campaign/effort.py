"""The key presses that answers took, kept up row by row."""

from anneal.campaign.store import Row
from anneal.pairs import Verdict


class Effort:
    """An answer by itself takes one key press. A sheet takes one, and one for each tile whose verdict is not
    the one that was marked before: similar, if there was no guess."""

    def __init__(self) -> None:
        self.presses = 0
        self._sheets: dict[str, list[Row]] = {}  # what was given on each

    def count(self, row: Row, sign: int) -> None:
        """A verdict was given (1), or taken back (−1)."""
        if row.sheet is None:
            self.presses += sign
            return
        others = self._sheets.setdefault(row.sheet, [])
        if sign < 0:
            others.remove(row)
        self.presses += sign * ((not others) + (row.verdict != (row.guess or Verdict.SIMILAR)))
        if sign > 0:
            others.append(row)

    def on_sheet(self, sheet: str | None) -> list[Row]:
        """What was given on a sheet, in order."""
        return [] if sheet is None else list(self._sheets.get(sheet, ()))
