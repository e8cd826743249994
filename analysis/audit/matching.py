"""An index of rows, so that not every pair of rows is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpcddp.analysis.audit.row import Row

Key = tuple[object, ...]


class RowIndex:
    """Rows by a key; in a query None stands for anything."""

    def __init__(self, rows: Sequence[Row], key: Callable[[Row], Key]) -> None:
        self._keys = [(key(row), row) for row in rows]
        self._by_places: dict[tuple[int, ...], dict[Key, list[Row]]] = {}

    def find(self, query: Key) -> list[Row]:
        """The rows that agree with the query in all that it says, in the table's order."""
        places = tuple(i for i, part in enumerate(query) if part is not None)
        if places not in self._by_places:
            found = self._by_places[places] = {}
            for key, row in self._keys:
                found.setdefault(tuple(key[i] for i in places), []).append(row)
        return self._by_places[places].get(tuple(query[i] for i in places), [])
