"""The row limit: the most rows that a model takes in a call, as far as calls have shown. No I/O, no clock.

Rules (test_row_limit.py)
1. A search (refused_call.py) is made for calls of more rows than any that the model accepted. It settles that for ever:
   as many rows are accepted, or a maximum is known. It does not if the row that it repeats is refused by itself.
2. A model that refuses two equal rows is never searched again: equal rows cannot show its maximum.
3. After a search that showed nothing, twice as many refusals pass as before, at most `MOST_PASSED`. So n
   bad requests cause n / `MOST_PASSED` + 6 calls of one row, and 2 + log2(rows) calls for each batch size at most.

The functions of a signature share one. Only the event loop writes it; device threads read it.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Refusals that pass at most before the next search. Chosen: a call of one row for 3 % of the refused requests.
MOST_PASSED = 32


@dataclass(slots=True, eq=False)
class RowLimit:
    """The row limit of one signature.

    Attributes:
        accepted_rows: the most rows of a call that the model is known to take, padding included.
        suspected_rows: calls of so many rows were rejected although the model accepts each of them; 0 if none were.
        most_rows: the most rows of a call, as a search found them; 0 if none did.
    """

    accepted_rows: int = 0
    suspected_rows: int = 0
    most_rows: int = 0
    _is_settled: bool = False
    _passed: int = 0  # refusals since the last search that showed nothing
    _to_pass: int = 0  # before the next one

    def is_sought(self, rows: int) -> bool:
        """Whether a search is due, now that the model rejected a call of `rows` rows."""
        return self._may_be_to_blame(rows) and self._passed >= self._to_pass

    def _may_be_to_blame(self, rows: int) -> bool:
        return rows > max(1, self.accepted_rows) and not (self.most_rows or self._is_settled)

    def suspect(self, rows: int) -> None:
        """Notes a rejected call of `rows` rows, all of whose requests were answered in smaller calls."""
        if rows > self.accepted_rows:
            self.suspected_rows = min(rows, self.suspected_rows or rows)

    def record(self, refused_rows: int, found: int | None) -> int:
        """Notes a rejected call. Returns the maximum, if it was found by that; else 0.

        Args:
            found: the number of equal rows that the model takes, at most `refused_rows`; None if no search was made.
        """
        if found is None:
            self._passed += self._may_be_to_blame(refused_rows)
        elif not found:
            self._passed, self._to_pass = 0, min(2 * self._to_pass or 1, MOST_PASSED)
        elif found == 1:
            self._is_settled = True
        else:
            self.accepted_rows = max(self.accepted_rows, found)
            if found < refused_rows:
                self.most_rows = found
                return found
        return 0
