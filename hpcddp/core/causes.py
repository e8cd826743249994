"""Why a run did not finish, by the words of an error or of a log: one table for ranks and `status`, with what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

AGAIN = "submit it again"
EXCLUDE_NODE = f"{AGAIN}; to exclude {{node}}: --set slurm.exclude={{node}}"
EXCLUDE_WITHOUT_GPU = (
    f"{AGAIN}; if {{node}} fails every time, tell its administrators and exclude it: --set slurm.exclude={{node}}"
)

MORE_MEMORY = (
    f"request more with slurm.mem_mb in the sweep, or lower workload.loader_workers_per_rank or batch_per_gpu; then {AGAIN}"
)

MAKE_ROOM = f"free space there (`df -h`, `quota -s`), or move runs with --runs and caches with XDG_CACHE_HOME; then {AGAIN}"
WRITABLE_RUNS = f"choose with --runs a folder that the compute nodes can write to; then {AGAIN}"
FIX_COMPUTE = f"fix `compute` of the cluster's profile (see `hpcddp clusters show`); then {AGAIN}"
PROVIDE_DATA = f"put the data where every node can read them, or set their folder in workload.data.root; then {AGAIN}"

AWAITED = f"find the missing rank in `hpcddp logs`, or ask the site to check the network; then {AGAIN}"
"""Of a rank that waited for others until the time was over."""

Table = Mapping[str, tuple[tuple[str, str], ...]]

CAUSES: Table = {
    MORE_MEMORY: (
        (r"oom[-_ ]kill|out-of-memory handler|exceeded (?:\w+ )?memory limit", "it used more memory than Slurm gave it"),
    ),
    EXCLUDE_NODE: ((r"Node failure on (?P<node>[\w.-]+)", "{node} failed"),),
    "tell the administrators; exclude {node} until it is repaired: --set slurm.exclude={node}": (
        (r"uncorrectable (?P<a>ECC|NVLink) error|(?P<b>ECC)_UNCORRECTABLE", "a GPU of its node is broken ({0} error)"),
        # Xids of memory, bus, NVLink and firmware, which no program causes (NVIDIA, "Xid Errors")
        (r"\bXid(?: \(.*?\):|[ =:]+)\s*(?P<a>48|6[1-4]|74|79|9[245]|119|12[0-4]|140)\b", "a GPU of its node is broken (Xid {0})"),
        (r"fallen off the bus|GPU is lost|device handle for GPU", "a GPU of its node is lost"),
        (r"devices?(?:\(s\))? (?:is|are|is/are) busy or unavailable", "a GPU of its node is busy or unavailable"),
        (r"system not yet initialized", "the fabric manager of its node's GPUs does not run"),
        (
            r"driver/library version mismatch|unsupported display driver",
            "the GPU driver of its node does not match its libraries",
        ),
        (r"Input/output error|Stale file handle|Errno (?:5|116)\b", "the file system of its node has failed"),
    ),
    "ask the administrators for the Xid in the kernel's log at that time: it shows whether the GPU or the code failed": (
        (r"unspecified launch failure|ERROR_LAUNCH_FAILED", "a kernel failed on its GPU (unspecified launch failure)"),
    ),
    "install a torch (or extension) built for this GPU and driver in the profile's `compute`; `compute.torch` names the build": (
        (
            r"driver (?:on your system is too old|version is insufficient)",
            "the NVIDIA driver of its node is too old for its torch",
        ),
        (
            r"forward compatibility was attempted|installed CUDA driver|unsupported toolchain",
            "the NVIDIA driver of its node is too old for its torch",
        ),
        (r"no kernel image is available|invalid device function", "its torch, or an extension, is not built for its node's GPU"),
        (r"compatible with the current PyTorch installation", "its torch, or an extension, is not built for its node's GPU"),
    ),
    "start one task per GPU and use the local rank as device; MIG slices of a GPU count as one GPU": (
        (r"invalid device ordinal", "a rank uses a GPU number that its node does not have"),
        (r"Duplicate GPU detected ?: rank (?P<a>\d+) and rank (?P<b>\d+)", "ranks {a} and {b} use the same GPU"),
    ),
    f"ask the administrators for LimitMEMLOCK=infinity of slurmd: `ulimit -l` in a job must be unlimited; then {AGAIN}": (
        (
            r"ibv_(?:reg|create)_.*(?:Cannot allocate memory|failed\s*$)",
            "its node's limit on locked memory is too low for InfiniBand",
        ),
        (r"RLIMIT_MEMLOCK|(?:max|some) locked memory", "its node's limit on locked memory is too low for InfiniBand"),
    ),
    f"use MASTER_PORT from the job's environment; then {AGAIN}": (
        (r"(?:port:? |\]:|\d:)(?P<a>\d{2,5})\b.*(?:address already in use|EADDRINUSE)", "port {0} is in use on its node"),
        (r"address already in use|EADDRINUSE", "a required port is in use on its node"),
    ),
    "use fewer loader processes, raise `ulimit -n`, or torch.multiprocessing.set_sharing_strategy('file_system'); then submit": (
        (r"Too many open files|\d+ items of ancdata", "it reached the limit of open files"),
    ),
    "use fewer loader processes, delete old files in the node's /dev/shm, or give a container a larger one; then submit": (
        (r"(?<!PCIe )Bus error|posix_fallocate|(?:insufficient|out of) shared memory|</torch_\d", "its node's /dev/shm is full"),
        (
            r"unable to (?:mmap|open shared|allocate shared)|(?:extend|segment|on device.*) ?'?/dev/shm",
            "its node's /dev/shm is full",
        ),
    ),
    "use fewer loader processes and threads (OMP_NUM_THREADS), or raise `ulimit -u` where the ranks start; then submit": (
        (r"start new thread|pthread_create|(?:fork:|Errno 11\]).* unavailable", "it reached the limit of processes and threads"),
    ),
    MAKE_ROOM: (
        (r"disk quota exceeded(?P<a>: '[^']+')?", "the quota of its disk is used up{0}"),
        (r"No space left on device(?P<a>: '[^']+')?", "its disk is full{0}"),
        (r"file write failed|unexpected pos \d+ vs \d+", "a checkpoint is incomplete: the disk or a quota is full"),
    ),
    WRITABLE_RUNS: ((r"Read-only file system", "its file system is mounted read-only on its node"),),
    f"download its files on the login node, to a folder that the nodes can read; then {AGAIN}": (
        (r"urlopen error|Max retries exceeded|Could not resolve host", "its node cannot reach the server of a download"),
    ),
    "ask the site to check the network, or name another interface in the profile (NCCL_SOCKET_IFNAME, NCCL_IB_HCA)": (
        (r"No route to host|Got completion .*error 12\b", "its nodes cannot reach each other over the network"),
    ),
    f"remove `rendezvous.master_address` from the cluster's profile, or set `master_suffix`; then {AGAIN}": (
        (
            r"hpcddp: Slurm's address of (?P<node>[\w.-]+) is '(?P<a>[^']*)', which is no number",
            "Slurm's address of {node} is `{0}`, not numeric",
        ),
    ),
    f"choose a module that `module avail` lists there, in `compute` of the cluster's profile; then {AGAIN}": (
        (r"Unable to locate a modulefile for '(?P<a>[^']+)'", "module `{0}` does not exist on its node"),
        (r"The following module\(s\) are unknown: \"(?P<a>[^\"]+)\"", "module `{0}` does not exist on its node"),
        (r"script failed with status \d+: module load (?P<a>\S+)", "module `{0}` does not exist on its node"),
    ),
    FIX_COMPUTE: (
        (r"no `module` command", "its node has no `module` command"),
        (r"hpcddp: this node has no (?P<a>[\w -]+)", "its node has no {0}"),
        (r"No module named '?(?P<a>torch)\b", "the Python of its node has no torch"),
        (r"undefined symbol: (?P<a>\w+)", "its libraries do not match (symbol {0} is missing)"),
        (r"open image (?P<a>[^\s:]+)", "its node cannot open the container image {0}"),
        (
            r"\"(?P<a>[^\"]+)\": executable file not found|exec (?P<b>\S+) failed: No such",
            "`{0}` does not exist in its container",
        ),
        (r"(?:executable file|can't execute) [`'\"](?P<a>[^`'\"]+)[`'\"]", "`{0}` does not exist in its container"),
        (r"FATAL: +stat (?P<a>[^\s:]+): no such file", "`{0}` does not exist in its container"),
        (r"(?P<a>[^\s:]+): command not found|sh: \d+: (?P<b>[^\s:]+): not found", "`{0}` does not exist on its node"),
        (r"exec: (?P<a>[^\s:]+): (?:cannot execute: )?(?:not found|No such file)", "`{0}` does not exist on its node"),
        (r"(?:execve\(2?\)|line \d+|env): [^\w./]?(?P<a>[\w./+-]+)[^\w./]?: No such file", "`{0}` does not exist on its node"),
        (r"Can not execute (?P<a>\S+)", "`{0}` does not exist on its node"),
        (r"script failed with status \d+: (?P<a>.+)", "a line of its job script failed: {0}"),
        (r"`GLIBC\S+ not found|(?<!an )Illegal instruction", "its environment was built for another machine than its node"),
        (r"cannot execute binary|Exec format error", "its environment was built for another machine than its node"),
    ),
    f"put the module beside the sweep, or install it in the compute environment; then {AGAIN}": (
        (r"No module named '?(?P<a>[\w.]+)", "the Python of its node has no module `{0}`"),
    ),
    f"load the library's module in `compute` of the cluster's profile; then {AGAIN}": (
        (r"loading shared libraries: (?P<a>[^\s:]+)", "the library {0} is missing on its node"),
        (r"(?P<a>lib[\w.+-]+): cannot open shared object file", "the library {0} is missing on its node"),
    ),
    EXCLUDE_WITHOUT_GPU: (
        (r"No CUDA GPUs are available|no CUDA-capable device", "its node shows torch no GPU"),
        (r"no NVIDIA driver|communicate with the NVIDIA driver", "its node shows torch no GPU"),
    ),
    AWAITED: (
        (
            r"\[Rank (?P<a>\d+)\] Watchdog caught .*SeqNum=(?P<b>\d+), OpType=(?P<c>\w+).* ran for (?P<d>\d+)\d{3} milliseconds",
            "rank {a} waited {d} s for other ranks in {c} number {b}",
        ),
    ),
}
"""Next step -> regular expressions (for letters of either size), each with the cause that it is a sign of.

The first that fits any line counts: what is certain stands before what may follow from it. Groups fill the sentence: the one
called node as {node}, the first other one as {0}, all by their names.
"""

CAUSES_IN_LOGS: Table = {
    "lower workload.batch_per_gpu in the sweep, which creates a different point; then submit": (
        (r"(?:CUDA|HIP).{0,20}\Wout of memory|OutOfMemoryError|DefaultCPUAllocator|\bMemoryError\b", "memory ran out"),
    ),
    **CAUSES,
    PROVIDE_DATA: ((r"FileNotFoundError|No such file or directory", "a file or folder is missing on its node"),),
    f"get permission for that file; then {AGAIN}": ((r"Permission denied", "it has no permission for a file that it needs"),),
    AWAITED: (
        *CAUSES[AWAITED],
        (r"Timed out after (?P<a>\d+) seconds waiting for clients", "a rank waited {0} s for another one"),
        (r"Timed out waiting (?P<a>\d+)\d{3} ?ms for", "a rank waited {0} s for another one"),
    ),
    f"{AGAIN}; if memory ran out, request more with slurm.mem_mb; to exclude {{node}}: --set slurm.exclude={{node}}": (
        (
            r"srun: error: (?P<node>[\w.-]+): (?P<a>tasks? [\d,-]+: (?:Killed|Segmentation fault|Aborted|Bus error))",
            "a process on {node} died without an error message ({0})",
        ),
    ),
}
"""With those that ranks word otherwise in their records, or that say too little beside them."""

HARMLESS = re.compile(
    r"(?!.*(?:CUDA initialization|RLIMIT_MEMLOCK|PyTorch installation|(?:NCCL|\.\w+:\d+) WARN))"
    r"(?:frame #|<omitting|Exception raised from|/etc/|.*(?:(?<![=\w])(?:(?:INFO|DEBUG)\b|WARN)|[Ww]arning\b|\[[WI]\d* "
    r"|\b[Ii]gnor(?:ed?|ing)\b|couldn't chdir|cannot remove|libnccl-\w+\.so|bash_?(?:rc|profile)\b|\b[sm]?tty|tput:))"
)
"""Lines that name no cause: remarks, C++ frames, plug-ins and folders that need not be there, a user's and the site's start-up
files."""


class FoundCause(NamedTuple):
    """`next_step` still has its `{node}`; `line`: which of the lines says so, by its place."""

    sentence: str
    next_step: str
    node: str | None
    line: int


def cause_of(lines: Iterable[str], host: str | None = None, table: Table = CAUSES) -> FoundCause | None:
    """`lines`: of an error's message or a log; `host`: where it happened, if that is known."""
    texts = list(lines)
    for step, rows in table.items():
        for pattern, sentence in rows:
            for number, text in enumerate(texts):
                if found := re.search(pattern, text, re.IGNORECASE):
                    return _filled(sentence, step, found, host, number)
    return None


def _filled(sentence: str, step: str, found: re.Match[str], host: str | None, line: int) -> FoundCause:
    groups = {name: value or "" for name, value in found.groupdict().items()}
    node = groups.pop("node", "") or host
    what = next(filter(None, groups.values()), "")
    return FoundCause(sentence.format(what, **groups, node=node), step, node, line)
