"""Files of an attempt or a study as records: what they hold is checked once, so that nothing later meets another type."""

from __future__ import annotations

from typing import Any, TypeVar

from hpcddp.analysis.records.rows import Rejected
from hpcddp.core.schema import MissingKeyError, SchemaError, decode_record

T = TypeVar("T")

OF_ATTEMPT = ("launch.json", "end.json")


def decode_file(cls: type[T], plain: object, name: str) -> T:
    """`plain`, the content of the file of that name, as a `cls`; Rejected with the place and the value where it is none."""
    try:
        return decode_record(cls, plain)
    except SchemaError as error:
        raise Rejected(sentence(name, error)) from error


def sentence(name: str, error: SchemaError) -> str:
    """What is wrong in the file of that name: `end.json: ranks[0].rows is None, not a whole number`."""
    where = f"{name}: {_place(error.path)}" if error.path else name
    if isinstance(error, MissingKeyError):
        of_attempt = name in OF_ATTEMPT and (not error.path or (error.path[0] == "ranks" and len(error.path) == 2))
        return f"{' or '.join(OF_ATTEMPT) if of_attempt else where} lacks '{error.key}'"
    return f"{where} {error.of_record}" if error.of_record else f"{where}: {error.message}"


def _place(path: tuple[Any, ...]) -> str:
    """`('ranks', 0, 'rows')` as `ranks[0].rows`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
