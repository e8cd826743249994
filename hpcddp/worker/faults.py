"""What went wrong, as one sentence that names rank and host, and the log's line that says so. Imports without torch."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path

from hpcddp.core.attempt_records import Fault
from hpcddp.core.causes import AWAITED, cause_of
from hpcddp.core.errors import HpcddpError
from hpcddp.core.point import Point
from hpcddp.worker.memory_fit import NO_CONVOLUTION, out_of_memory
from hpcddp.worker.ranks import Rank

CONTACT = re.compile(
    r"gloo|\bnccl|\brccl|connection (was )?(closed|reset|refused)|broken pipe|socket|(?<!re)store|process ?group|timed? ?out"
    r"|failed to recv",
    re.IGNORECASE,
)
"""Of a RuntimeError: torch's words when a collective or the store failed. Another rank is the cause more often than not."""

_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)

_FROM_CPP = re.compile(r"^\[\S+:\d+\] ")
"""Where in gloo's source an error was made."""

_LAST_ERROR = re.compile(r"Last error:\s*(?!Exception raised|frame #)(\S.*)")

_LOADER_DIED = re.compile(r"DataLoader worker \(pid.*?\) (?:is killed by signal: (\w[\w ]*)|exited unexpectedly)")

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_DISK = (*_NO_SPACE, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE)
"""Of an OSError: the file system is to blame. A file that is missing, or another's, is not its fault."""


class DivergedError(HpcddpError):
    """A loss that is infinite or not a number; `rank` on `host` had it first, whoever raises this."""

    def __init__(self, rank: int, host: str, words: str) -> None:
        super().__init__(f"rank {rank} on {host}: {words}")
        self.rank, self.host = rank, host


def fault_of(error: BaseException, rank: Rank, point: Point | None = None) -> Fault:
    """The error of this rank; with its point, memory that ran out comes with the batch that would fit."""
    if isinstance(error, DivergedError):
        return Fault(kind="diverged", rank=error.rank, host=error.host, sentence=str(error))
    kind, words = _kind_and_words(error, rank, point)
    line = _last_line(error)
    who = f"rank {rank.rank} on {rank.host}"
    sentence = words if words.startswith(f"{who} ") else f"{who}: {words}"
    if point and point.workload.script:  # a key of hpcddp's own loaders
        sentence = sentence.replace("workload.loader_workers_per_rank", "num_workers of the script's DataLoader")
    return Fault(kind=kind, rank=rank.rank, host=rank.host, sentence=sentence, line=line)


def own_words(error: BaseException) -> str:
    """The message alone: of an error in a loader's process, torch puts the whole traceback before it."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    before, _, words = str(error).rpartition(f"\n{name}: ")
    return words.strip() if before.startswith("Caught ") else str(error)


def _kind_and_words(error: BaseException, rank: Rank, point: Point | None) -> tuple[str, str]:
    if isinstance(error, HpcddpError):
        cause = error.__cause__
        return "disk" if isinstance(cause, OSError) and cause.errno in _DISK else "user", own_words(error)
    if found := _first(_CERTAIN, error):
        return found
    if memory := out_of_memory(error, point, rank.gpu):
        return "out_of_memory", memory
    return _first(_RULES, error) or ("error", _at(error, _telling_line(error)))


def _first(rules: tuple[Rule, ...], error: BaseException) -> tuple[str, str] | None:
    return next((found for rule in rules if (found := rule(error))), None)


def _disk(error: BaseException) -> tuple[str, str] | None:
    if not isinstance(error, OSError) or error.errno not in _DISK or str(error.filename).startswith("/dev/shm/"):
        return None
    what = f"`{error.filename}`" if error.filename else "a file"
    cause = os.strerror(error.errno)
    if error.errno in _NO_SPACE:
        return (
            "disk",
            f"{what} cannot be written: {cause}. Earlier records are intact. Free space there, then submit the run again.",
        )
    if error.errno == errno.EROFS:
        return "disk", f"{what} cannot be written: {cause}. Move the runs with --runs"
    return "disk", _at(error, f"{what}: {cause}")


def _known(error: BaseException) -> tuple[str, str] | None:
    found = cause_of([*own_words(error).splitlines(), _last_line(error)])
    if found is None:
        return None
    words = _at(error, found.sentence) if isinstance(error, ImportError) else found.sentence
    return "time_out" if found.next_step == AWAITED else "error", words


def _file(error: BaseException) -> tuple[str, str] | None:
    if not isinstance(error, OSError) or error.errno is None or isinstance(error, ConnectionError | TimeoutError):
        return None
    what = f"`{error.filename}`" if error.filename else "a file"
    return "error", _at(error, f"{what}: {os.strerror(error.errno)}")


def _loader(error: BaseException) -> tuple[str, str] | None:
    found = _LOADER_DIED.search(str(error))
    if not found:
        return None
    how = f"was killed by signal {found[1].strip()}" if found[1] else "ended unexpectedly"
    full = "the node's /dev/shm is full" if "shared memory" in str(error) or found[1] == "Bus error" else "memory ran out"
    return "loader", f"a data loader process {how}, usually because {full}. Lower workload.loader_workers_per_rank."


def _contact(error: BaseException) -> tuple[str, str] | None:
    if not isinstance(error, RuntimeError | ConnectionError | TimeoutError) or not CONTACT.search(str(error)):
        return None
    words = _FROM_CPP.sub("", _telling_line(error))
    if _TIMED_OUT.search(str(error)):
        return "time_out", f"waited for the other ranks until the timeout ({words})"
    return "contact", f"lost contact with another rank ({words})"


def _convolution(error: BaseException) -> tuple[str, str] | None:
    if not NO_CONVOLUTION.search(str(error)):
        return None
    needs = "below compute capability 8.0 (A100), set workload.precision to fp16 or fp32 instead of bf16"
    return "user", f"cuDNN cannot compute a convolution of this model on this GPU: {needs} ({_telling_line(error)})"


def _interrupted(error: BaseException) -> tuple[str, str] | None:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "was interrupted"
    return ("interrupted", f"called exit({error.code})") if isinstance(error, SystemExit) else None


def _key(error: BaseException) -> tuple[str, str] | None:
    return ("error", _at(error, f"key {own_words(error)} does not exist")) if isinstance(error, KeyError) else None


Rule = Callable[[BaseException], "tuple[str, str] | None"]

_CERTAIN: tuple[Rule, ...] = (_loader, _disk, _known)
"""Whatever else the words of an error may say, such as that memory could not be allocated."""

_RULES: tuple[Rule, ...] = (_convolution, _contact, _file, _interrupted, _key)


def _telling_line(error: BaseException) -> str:
    """What NCCL says last, else the first line: torch's messages go on with advice and C++ frames."""
    words = own_words(error).strip()
    if found := _LAST_ERROR.search(words):
        return found[1].strip()
    return words.splitlines()[0].strip() if words else "an error without a message"


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()


def _at(error: BaseException, words: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{words} (in {frames[-1].name}, {Path(frames[-1].filename).name} line {frames[-1].lineno})" if frames else words
