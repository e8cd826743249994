"""launch.json, end.json and comm.json of an attempt, checked once, so that nothing later meets another type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hpcddp.analysis.records.impossible import check_comm_times
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.util.regular_files import is_there, read_object
from hpcddp.core.attempt_records import AttemptEnd, TrainingEnd
from hpcddp.core.comm_record import CommRecord
from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import MissingKeyError, SchemaError, decode_record

End = TypeVar("End", bound=AttemptEnd)
T = TypeVar("T")

OF_ATTEMPT = ("launch.json", "end.json")


def decode_record_file(cls: type[T], plain: object, name: str) -> T:
    """`plain`, the content of the file of that name, as a `cls`; Rejected with the place and the value where it is none."""
    try:
        return decode_record(cls, plain)
    except SchemaError as error:
        raise Rejected(schema_sentence(name, error)) from error


def schema_sentence(name: str, error: SchemaError) -> str:
    """What is wrong in the file of that name: `end.json: ranks[0].rows is None, not a whole number`."""
    where = f"{name}: {_place(error.path)}" if error.path else name
    if isinstance(error, MissingKeyError):
        of_attempt = name in OF_ATTEMPT and (not error.path or (error.path[0] == "ranks" and len(error.path) == 2))
        return f"{' or '.join(OF_ATTEMPT) if of_attempt else where} lacks '{error.key}'"
    return f"{where} {error.of_record}" if error.of_record else f"{where}: {error.message}"


def _place(path: tuple[Any, ...]) -> str:
    """`('ranks', 0, 'rows')` as `ranks[0].rows`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


@dataclass(frozen=True)
class EndFile:
    """The content of an attempt's end.json, which is checked only when it is decoded."""

    plain: Mapping[str, object]

    @property
    def state(self) -> object:
        """`done`, `interrupted` or `failed`."""
        return self.plain.get("state")

    @property
    def reason(self) -> object:
        """A sentence, of an attempt that is not done."""
        return self.plain.get("reason")

    def decoded(self, cls: type[End]) -> End:
        """As a record of that class; Rejected where the file does not fit it."""
        return decode_record_file(cls, self.plain, "end.json")


def read_launch(attempt: Path, point: Point | None) -> LaunchRecord:
    """launch.json; Rejected where it is damaged, newer than this reader or of another point than the folder's."""
    label = attempt.parent.parent.name
    if point is None or point.label != label:
        raise Rejected(f"point.json of {label} is missing or of another point")
    launch = decode_record_file(LaunchRecord, _read(attempt / "launch.json"), "launch.json")
    try:
        launch.profile_facts()
    except SchemaError as error:
        raise Rejected(schema_sentence("launch.json", error)) from error
    if launch.schema != SCHEMA:
        raise Rejected(f"records of schema {launch.schema}; this hpcddp reads {SCHEMA}")
    if launch.point != point.id:
        raise Rejected(f"launch.json is of another point, {launch.point}")
    if launch.ranks != point.ranks:
        raise Rejected(f"launch.json tells of {launch.ranks} ranks, the point has {point.ranks}")
    return launch


def read_end_file(attempt: Path, warnings: list[str]) -> EndFile | None:
    """end.json; None where there is none or (with a warning) it cannot be read."""
    file = attempt / "end.json"
    if not is_there(file):
        return None
    try:
        return EndFile(read_object(file))
    except (HpcddpError, FileNotFoundError):
        warnings.append(f"{'/'.join(file.parts[-4:])} is damaged; the attempt counts as not ended")
        return None


def read_training_end(attempt: Path) -> TrainingEnd:
    """end.json of an attempt that trained and is done or was interrupted; Rejected where it is damaged or missing."""
    return EndFile(_read(attempt / "end.json")).decoded(TrainingEnd)


def read_comm(attempt: Path) -> CommRecord:
    """comm.json; Rejected where it is damaged or newer than this reader."""
    comm = decode_record_file(CommRecord, _read(attempt / "comm.json"), "comm.json")
    if comm.schema != SCHEMA:
        raise Rejected(f"comm.json of schema {comm.schema}; this hpcddp reads {SCHEMA}")
    check_comm_times(comm)
    return comm


def _read(file: Path) -> Mapping[str, object]:
    try:
        return read_object(file)
    except (HpcddpError, FileNotFoundError) as error:
        raise Rejected(f"{file.name} is damaged or missing") from error
