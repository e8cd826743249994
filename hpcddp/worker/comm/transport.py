"""Learns which network the ranks' library chose, once, before training: transport.json.

NCCL says it in its log only, when it makes a communicator and connects it. So the log is written during the first collective of
the training's own group (of a script, up to its measurement), on the node's own disk: of the subsystems INIT, NET and ENV, which
have nothing to say in later collectives, so that timed steps cost what they cost without. NCCL reads its variables once, so they
are gone from the environment afterwards, and so is the file. Who has set NCCL_DEBUG wants the log elsewhere: nothing is known.

Of gloo it is the network interface, as torch chooses it: the one named, or that of the host's own name, or the loopback.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist

from hpcddp.core.records import SCHEMA, write_json
from hpcddp.core.schema import encode
from hpcddp.core.transport_record import RankTransport, TransportRecord, merged, transport_words
from hpcddp.worker.comm.nccl_log import parse_log
from hpcddp.worker.launch_record import nccl_version
from hpcddp.worker.rendezvous import ProcessGroup

VARIABLE = "GLOO_SOCKET_IFNAME"

_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of netdevice(7)."""


def gloo_interface(env: Mapping[str, str]) -> tuple[str, ...]:
    """By name; empty where no interface has the address that the host's name stands for."""
    named = env.get(VARIABLE)
    if named:
        return tuple(named.split(","))
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return tuple(name for _, name in socket.if_nameindex() if _address(name) == address)
    return ("lo",)


def _address(interface: str) -> str | None:
    """None where it has no IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, contextlib.suppress(OSError):
        answer = fcntl.ioctl(any_socket.fileno(), _GET_ADDRESS, struct.pack("256s", interface.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return None


PREFIX = "NCCL_DEBUG"
"""Of the variables that say what is logged, and where."""

LOGGED = "INIT,NET,ENV"

CONFIGURATIONS = ("/etc/nccl.conf", "~/.nccl.conf")
"""Files that NCCL takes variables from, too."""

MOST_BYTES = 16 * 2**20
"""Of a log; eight GPUs of a node with 32 channels write less than 1 MB each."""

WARNING = "NCCL WARN"
WARNINGS_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class _OfRank:
    host: str
    transport: RankTransport
    logged_by: str | None = None
    """What says already where NCCL's log goes."""


def record_transport(group: ProcessGroup, attempt: Path) -> None:
    """All ranks call it, once they have met: the first collective, and transport.json by rank 0. Nothing of a single rank."""
    if group.rank.world == 1 or not dist.is_initialized():
        return
    backend = group.backend if group.backend in ("nccl", "gloo") else "nccl" if group.device.type == "cuda" else "gloo"
    ranks = group.gather_records("transport", _of_rank(group, backend))
    if ranks:
        record = _of_all(ranks, backend)
        write_json(attempt / "transport.json", encode(record))
        print(f"hpcddp: {transport_words(record)}", flush=True)


def _of_rank(group: ProcessGroup, backend: str) -> _OfRank:
    host = group.rank.host
    if backend != "nccl":
        return _OfRank(host=host, transport=RankTransport(library=backend, used=gloo_interface(os.environ)))
    logged_by = None if _log_of_script else where_logged()
    return _OfRank(host=host, transport=RankTransport() if logged_by else first_collective(group.device), logged_by=logged_by)


def _of_all(ranks: Sequence[_OfRank], backend: str) -> TransportRecord:
    record = merged(SCHEMA, [(rank.host, rank.transport) for rank in ranks])
    if backend != "nccl":
        return record
    logged_by = next((rank.logged_by for rank in ranks if rank.logged_by), None)
    record = replace(record, library="RCCL" if torch.version.hip else "NCCL", version=record.version or nccl_version())
    if logged_by:
        return replace(record, unknown=f"{logged_by} sends its log elsewhere")
    says_anything = record.networks or record.in_node or record.network_connections
    return record if says_anything else replace(record, unknown="its log does not contain it")


def where_logged(env: Mapping[str, str] = os.environ, files: Sequence[str] = CONFIGURATIONS) -> str | None:
    """The variable or the file in which user or site say what NCCL logs, and where to; None where they do not."""
    named = next((name for name in env if name.startswith(PREFIX)), None)
    own = [env["NCCL_CONF_FILE"]] if "NCCL_CONF_FILE" in env else []
    return named or next((file for file in (*own, *files) if _names_log(file)), None)


def _names_log(file: str) -> bool:
    path = Path(os.path.expanduser(file))
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    except OSError:
        return False
    return any(line.startswith(PREFIX) for line in lines)


def first_collective(device: torch.device) -> RankTransport:
    """Makes it, and reads what NCCL wrote of it; the warnings of one that fails go into the rank's own log."""
    with contextlib.nullcontext(_log_of_script) if _log_of_script else _logging() as file:
        try:
            value = torch.zeros(1, device=device)
            dist.all_reduce(value)
            value.item()  # waits for it
        except RuntimeError:
            warnings = [line for line in _read(file).splitlines() if WARNING in line]
            print(*warnings[-WARNINGS_SHOWN:], sep="\n", file=sys.stderr, flush=True)
            raise
        finally:
            _leave_environment(file)
        return parse_log(_read(file))


_log_of_script: Path | None = None
"""Where NCCL of a script writes its log until its first measurement."""


@contextlib.contextmanager
def logging_script(device: str) -> Iterator[None]:
    """Around a script that makes its process group itself: NCCL's log is there to be read when the script measures."""
    global _log_of_script  # noqa: PLW0603 - a process is one rank of one run
    if device != "cuda" or where_logged():
        yield
        return
    with _logging() as _log_of_script:
        yield
    _log_of_script = None


@contextlib.contextmanager
def _logging() -> Iterator[Path]:
    """NCCL logs into a file in a folder of this process alone, on the node's own disk, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hpcddp-nccl-"))
    file = folder / "nccl.log"
    os.environ.update(log_variables(file))
    try:
        yield file
    finally:
        _leave_environment(file)
        shutil.rmtree(folder, ignore_errors=True)


def log_variables(file: Path) -> dict[str, str]:
    """What makes NCCL write its log there."""
    return {PREFIX: "INFO", f"{PREFIX}_SUBSYS": LOGGED, f"{PREFIX}_FILE": str(file)}


def _leave_environment(file: Path) -> None:
    """Without what the script itself has set meanwhile."""
    for name, value in log_variables(file).items():
        if os.environ.get(name) == value:
            del os.environ[name]


def _read(file: Path) -> str:
    try:
        with file.open("rb") as log:
            return log.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
