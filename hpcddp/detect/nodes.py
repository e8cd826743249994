"""Nodes as `scontrol --oneliner show nodes` lists them: the same fields from Slurm 22.05 on; and their names as a list:
gn01, gn02, gn03 and gn07 are `gn[01-03,07]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcddp.detect.fields import gpus, integer, names, pairs, word

UNUSABLE = {
    "DOWN": "down",
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "drained",
    "FAIL": "failing",
    "FAILING": "failing",
}
"""Slurm's flag -> the word for a node that starts no jobs."""

ABSENT = {"FUTURE"}
"""Nodes that are only planned."""

BEHIND_REASON = r"(?:\[\S+@\S+\]|Comment=|Extra=|InstanceId=|InstanceType=|ReservationName=)"
"""Who gave the reason when, and what else may come at the end of a line."""


@dataclass(frozen=True, kw_only=True)
class LiveNode:
    """One node; None: Slurm does not say."""

    name: str
    states: tuple[str, ...] | None = None
    """The state and its flags, in Slurm's words."""
    reason: str | None = None
    """Why it is drained or down."""
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    cpus: int | None = None
    effective_cpus: int | None = None
    """Those that jobs may have."""
    system_cores: int | None = None
    """Reserved for the system."""
    memory_mb: int | None = None
    system_memory_mb: int | None = None
    """Of it, reserved for the system."""
    gpus: tuple[tuple[str | None, int], ...] | None = None
    """Type and count; None as the type: untyped."""
    features: tuple[str, ...] | None = None
    partitions: tuple[str, ...] | None = None

    @cached_property
    def smt(self) -> int | None:
        """CPUs that Slurm counts per core: 1 where it was configured to count cores, whatever the hardware threads."""
        cores = self._all_cores
        if cores is None or self.cpus is None:
            return self.threads_per_core
        return max(1, self.cpus // cores)

    @cached_property
    def physical_cores(self) -> int | None:
        """Those that jobs may have."""
        if self.effective_cpus is not None and self.smt is not None:
            return self.effective_cpus // self.smt
        return None if self._all_cores is None else self._all_cores - (self.system_cores or 0)

    @cached_property
    def job_memory_mb(self) -> int | None:
        """What jobs may have."""
        return None if self.memory_mb is None else self.memory_mb - (self.system_memory_mb or 0)

    @property
    def trouble(self) -> str | None:
        """Why it starts no jobs: `drained`, `down`; None where it does."""
        return next((UNUSABLE[state] for state in self.states or () if state in UNUSABLE), None)

    @property
    def _all_cores(self) -> int | None:
        if not self.sockets or not self.cores_per_socket:
            return None
        return self.sockets * self.cores_per_socket


def nodes_of_text(text: str) -> tuple[LiveNode, ...]:
    """From `scontrol --oneliner show nodes`."""
    nodes = (_of_line(line) for line in text.splitlines() if line.startswith("NodeName="))
    return tuple(node for node in nodes if not ABSENT & set(node.states or ()))


def _of_line(line: str) -> LiveNode:
    found = pairs(line)
    reason = re.search(rf"\sReason=(.*?)(?:\s+{BEHIND_REASON}.*)?$", line)
    state = re.sub(r"[*$@^!%#~-]+$", "", found["State"]) if "State" in found else None
    return LiveNode(
        name=found["NodeName"],
        states=tuple(re.split(r"[+*$@^!%#~]+", state)) if state else None,
        reason=word(reason[1]) if reason else None,
        sockets=integer(found.get("Sockets")),
        cores_per_socket=integer(found.get("CoresPerSocket")),
        threads_per_core=integer(found.get("ThreadsPerCore")),
        cpus=integer(found.get("CPUTot")),
        effective_cpus=integer(found.get("CPUEfctv")),
        system_cores=integer(found.get("CoreSpecCount")),
        memory_mb=integer(found.get("RealMemory")),
        system_memory_mb=integer(found.get("MemSpecLimit")),
        gpus=gpus(found.get("Gres")),
        features=names(found.get("AvailableFeatures")),
        partitions=names(found.get("Partitions", "")),
    )


def node_list(names: Iterable[str]) -> str:
    """The shortest list that differs in the last number of a name only; the reverse of core.written_lists.expand_node_list."""
    plain: list[str] = []
    numbered: dict[tuple[str, str], list[str]] = {}
    for name in sorted(set(names)):
        found = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if found is None:
            plain.append(name)
        else:
            numbered.setdefault((found[1], found[3]), []).append(found[2])
    return ",".join([*plain, *(part for (before, after), digits in numbered.items() for part in _lists(before, digits, after))])


def _lists(before: str, digits: Sequence[str], after: str) -> list[str]:
    """A list of the numbers without zeros in front, and one for each width of those with them."""
    padded = {len(each) for each in digits if each.startswith("0") and len(each) > 1}
    groups: dict[int, list[int]] = {}
    for each in digits:
        groups.setdefault(len(each) if len(each) in padded else 1, []).append(int(each))
    return [_group((before, width, after), numbers) for width, numbers in sorted(groups.items())]


def _group(key: tuple[str, int, str], numbers: Sequence[int]) -> str:
    before, width, after = key
    inside = ",".join(_range(first, last, width) for first, last in _runs(sorted(numbers)))
    return f"{before}[{inside}]{after}" if len(numbers) > 1 else f"{before}{inside}{after}"


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run without a gap."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _range(first: int, last: int, width: int) -> str:
    return f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
