"""Rules about variables: those that make a run fail or its numbers another's, and those that are known only within a step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.shell_text import Command, Script

SEARCHED = "NCCL finds it by itself; set it only for one site that documents it, with the source in the comment above"

HARMFUL = {
    "NCCL_IB_GID_INDEX": ("", "the index changes with node, driver and after a link's flap; from NCCL 2.21 on it is found"),
    "NCCL_SOCKET_IFNAME": ("", f"other nodes may not have that interface: find or fail; {SEARCHED}"),
    "NCCL_IB_HCA": (r"(?!\^)", f"a list of adapters leaves out those of other nodes; {SEARCHED}"),
    "NCCL_IB_DISABLE": ("1", "ranks talk through TCP, many times slower"),
    "NCCL_P2P_DISABLE": ("1", "GPUs of a node talk through its memory"),
    "NCCL_SHM_DISABLE": ("1", "processes of a node talk through the network"),
    "NCCL_PROTO": (r"(?!\^)", "NCCL chooses by size and topology; its makers file this under debugging"),
    "NCCL_ALGO": (r"(?!\^)", "NCCL chooses by size and topology; its makers file this under debugging"),
    "NCCL_MIN_NCHANNELS": ("", "it takes multiprocessors from training; its makers file this under debugging"),
    "NCCL_MAX_NCHANNELS": ("", "it narrows every exchange; its makers file this under debugging"),
    "NCCL_BUFFSIZE": ("", "it changes what GPU memory is left and how exchanges are split"),
    "NCCL_NET_GDR_LEVEL": (r"\d", "numbers mean other things in other versions; write PIX, PXB, PHB or SYS"),
    "NCCL_DEBUG": (r"INFO|TRACE", "its lines are in the times of a run; write VERSION or WARN"),
    "CUDA_LAUNCH_BLOCKING": ("1", "every kernel waits for the one before: no time is of use"),
    "RDMAV_FORK_SAFE": ("", "it makes registering memory slow; libibverbs needs it no more"),
    "NCCL_IB_CUDA_SUPPORT": ("", "NCCL does not know it any more; NCCL_NET_GDR_LEVEL is its successor"),
}
"""Variable -> the values (a regular expression for their beginning) that do harm, and how."""

IN_STEP = r"\$\{?(SLURM_(?:PROCID|LOCALID|NODEID|STEP_ID|STEPID))\b"
"""Variables that a step's tasks have, each its own."""


def harmful_variables(script: Script) -> Iterator[Finding]:
    """Set for all runs; with its source in the comment above it, one is what a site documents."""
    for command in script.commands:
        for name, value in _assigned(command):
            harm = HARMFUL.get(name)
            if harm is not None and re.match(harm[0], value) and not _has_source(command):
                yield Finding(line=command.line, rule=name, text=f"{name}={value}: {harm[1]}")


def fixed_port(script: Script) -> Iterator[Finding]:
    """Jobs that share a node meet."""
    for command in script.commands:
        for name, value in _assigned(command):
            if name in ("MASTER_PORT", "PET_MASTER_PORT") and value.isdecimal():
                text = (
                    f"{name}={value}: two jobs on a node take the same one; make it of the job's id, below 32768: "
                    f"$((10000 + SLURM_JOB_ID % 20000))"
                )
                yield Finding(line=command.line, rule="fixed-port", text=text)
    for command in script.commands:
        if "SLURM_LAUNCH_NODE_IPADDR" in command.unquoted:
            text = "SLURM_LAUNCH_NODE_IPADDR is the node that srun was called on, not rank 0's: ask scontrol show hostnames"
            yield Finding(line=command.line, rule="launch-node", text=text)


def too_early(script: Script) -> Iterator[Finding]:
    """Every rank would be rank 0."""
    for command in script.commands:
        for name in re.findall(rf"(?<!\\){IN_STEP}", command.unquoted):
            text = (
                f"${name} is filled in before srun starts: every rank gets the same; put it into single quotes, `bash -c '...'`"
            )
            yield Finding(line=command.line, rule="too-early", text=text)


def executor(script: Script) -> Iterator[Finding]:
    """How submitit's job side knows where it is."""
    starts = [srun.line for srun in script.sruns if srun.starts_ranks]
    given = [command.line for command in script.commands if ("SUBMITIT_EXECUTOR", "slurm") in _assigned(command)]
    if starts and not any(line < starts[0] for line in given):
        text = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
        yield Finding(line=starts[0], rule="executor", text=text)


def emptied_environment(script: Script) -> Iterator[Finding]:
    """sbatch(1), --export."""
    option = script.get("--export")
    if option is None or option.value not in ("NONE", "NIL"):
        return
    has_all = any(("SLURM_EXPORT_ENV", "ALL") in _assigned(command) for command in script.commands)
    for srun in script.sruns:
        given = srun.get("--export")
        if srun.starts_ranks and not has_all and (given is None or "ALL" not in (given.value or "")):
            text = f"--export={option.value} holds for srun, too: ranks lack what the script exports; export SLURM_EXPORT_ENV=ALL"
            yield Finding(line=srun.line, rule="export-none", text=text)


def _assigned(command: Command) -> list[tuple[str, str]]:
    """What the command sets, in the shell of the script or of a step."""
    found = re.findall(
        r"(?<![\w$])([A-Z][A-Z0-9_]+)=(\"[^\"]*\"|'[^']*'|[^\s;'\"]*?(?=,[A-Z][A-Z0-9_]+=|[\s;'\"]|$))", command.text
    )
    return [(name, value.strip("'\"")) for name, value in found]


def _has_source(command: Command) -> bool:
    return bool(re.search(r"\bsource\b|://", command.comment, re.IGNORECASE))


ENVIRONMENT_RULES = (harmful_variables, fixed_port, too_early, executor, emptied_environment)
