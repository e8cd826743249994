"""Two network namespaces joined by a wire of a known rate: a slow network between two ranks of this machine.

`tc tbf` counts Ethernet frames, so TCP gets 1448/1514 of the rate. Frames handed over in one piece (GSO) count as what they
will be on the wire (qdisc_pkt_len_init of Linux), so offloads may stay on. After a pause up to BURST_S of the rate, but at
least BURST_BYTES, passes at once: whoever measures the rate sends that much first.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from tests.worker import forked

INTERFACE = "wire"
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PAYLOAD_SHARE = 1448 / 1514
"""Of a full Ethernet frame: 14 bytes of Ethernet, 20 of IP, 32 of TCP with time stamps are not payload."""

BURST_BYTES = 128 * 1024
"""More than the largest piece the stack hands over at once, 64 KiB."""

BURST_S = 0.002
"""How late the kernel may be without the rate suffering."""

QUEUE_BYTES = 16 * 2**20
"""More than TCP has under way: nothing is dropped, so the rate is the link's and not congestion control's."""

CLONE_NEWNET = 0x40000000
"""setns(2); os.setns came with Python 3.12."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Link:
    """The wire; each end has its namespace, where it is called INTERFACE and has the end's entry of ADDRESSES."""

    namespaces: tuple[str, str]

    def set_rate(self, mbit: float | None) -> None:
        """Both directions, from now on; None: as fast as the machine. May change while ranks run."""
        for name in self.namespaces:
            if mbit is None:
                subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", INTERFACE, "root"], capture_output=True, check=False)
                continue
            burst = max(BURST_BYTES, round(mbit * 1e6 / 8 * BURST_S))
            rate = ("rate", f"{round(mbit * 1e6)}bit", "burst", str(burst), "limit", str(QUEUE_BYTES))
            _run("tc", "-n", name, "qdisc", "replace", "dev", INTERFACE, "root", "tbf", *rate)

    def enter(self, end: int) -> None:
        """Moves the calling thread, and what it starts from now on, to an end of the wire."""
        with Path("/run/netns", self.namespaces[end]).open() as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {self.namespaces[end]}: {os.strerror(ctypes.get_errno())}")

    def ranks(self, folder: Path, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[forked.Outcome]:
        """forked.ranks (and its options) with two ranks, one at each end."""
        return forked.ranks(folder, 2, self._at_its_end, function, *arguments, **options)

    def values(self, folder: Path, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        return forked.values(folder, 2, self._at_its_end, function, *arguments, **options)

    def _at_its_end(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.enter(int(os.environ["SUBMITIT_LOCAL_GLOBALID"]))
        os.environ.update(GLOO_SOCKET_IFNAME=INTERFACE, MASTER_ADDR=ADDRESSES[0])
        return function(*arguments)


@contextlib.contextmanager
def throttled_link(mbit: float | None) -> Iterator[Link]:
    """A wire of `mbit` Mbit/s in each direction, gone afterwards; whoever is in its namespaces must have ended by then.

    HpcddpError says why a machine cannot have one.
    """
    reason = missing()
    if reason:
        raise HpcddpError(reason)
    _remove_orphans()
    number = next(_numbers)
    link = Link((f"hpcddp-{os.getpid()}-{number}-a", f"hpcddp-{os.getpid()}-{number}-b"))
    try:
        _connect(link)
        link.set_rate(mbit)
        yield link
    finally:
        _delete(*link.namespaces)


def missing() -> str | None:
    """Why no link can be made here, or None; a container may still forbid it."""
    if os.geteuid() != 0:
        return "a link between network namespaces needs root"
    absent = [program for program in ("ip", "tc") if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)} (apt-get install iproute2)" if absent else None


def _remove_orphans() -> None:
    """Namespaces of processes that were killed before they could clear up."""
    for file in Path("/run/netns").glob("hpcddp-*"):
        if not Path("/proc", file.name.split("-")[1]).exists():
            _delete(file.name)


def _delete(*namespaces: str) -> None:
    for name in namespaces:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _connect(link: Link) -> None:
    first, second = link.namespaces
    for name in link.namespaces:
        _run("ip", "netns", "add", name)
    _run("ip", "link", "add", INTERFACE, "netns", first, "type", "veth", "peer", "name", INTERFACE, "netns", second)
    for name, address in zip(link.namespaces, ADDRESSES, strict=True):
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", INTERFACE)
        for interface in ("lo", INTERFACE):
            _run("ip", "-n", name, "link", "set", interface, "up")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HpcddpError(f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}")
