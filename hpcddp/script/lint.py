"""`hpcddp lint`: what in a job script Slurm refuses, makes ranks wait for each other, or leaves GPUs idle.

A rule is a row: line, name, whether the script breaks it, and what is said then. It holds for the launcher that the script uses,
and is silent about what only the running script knows. Errors that shellcheck finds stand beside them where it is installed.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from hpcddp.core.text import count
from hpcddp.script.job_script import LATER, Job, Launch, read_job
from hpcddp.script.option_table import FOREIGN, SBATCH, SRUN

TYPO = 0.8
"""Likeness of two names (difflib) from which one is the other mistyped: --gpu-per-node is 0.96, a plugin's --uenv below 0.5."""

ODD = re.compile("[\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff\u2010-\u2015\u2212\u2018-\u201d]")
"""Spaces, dashes and quotes of word processors and web pages, which look like those of the keyboard."""

STARTERS = {"srun", "mpirun", "mpiexec", "prun", "aprun", "ibrun", "jsrun", "ssh", "pdsh", "clush", "ray", "submitit"}
"""Programs that reach other nodes."""

ADDRESSES = {"rdzv_endpoint", "master_addr", "main_process_ip", "config_file", ""}
IN_STEP = re.compile(r"\$\{?(SLURM_(?:PROCID|LOCALID|NODEID|STEP_ID|STEPID|LAUNCH_NODE_IPADDR))\b")
"""Variables that only a step's tasks have, mostly each its own."""

HOST = re.compile("(PET_)?(MASTER_ADDR|MAIN_PROCESS_IP|RDZV_HOST|RDZV_ENDPOINT)|DIST_URL|INIT_METHOD")
PORT = re.compile("(PET_)?(MASTER_PORT|MAIN_PROCESS_PORT|RDZV_PORT|RDZV_ENDPOINT)|DIST_URL|INIT_METHOD")
WRONG_HOSTS = {
    r"(localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[?::1\]?)(:.*)?": "each node waits at itself",
    rf"{LATER}(\(hostname|\{{?HOSTNAME|\{{?SLURMD_NODENAME)\b.*": "each node fills in its own name",
    r"\$\{?SLURM_(JOB_)?NODELIST\}?(:.*)?": "a list of nodes is no address",
}
OF_RANK = {"RANK", "LOCAL_RANK", "MASTER_ADDR"}
WORKER = re.compile(r"hpcddp\.worker|(^|/)bootstrap\.py$|submitit\.core\._submit")
SHELLCHECK = "shellcheck --format=json1 --shell=bash --severity=error --exclude=SC1017,SC2068,SC2148 -"
"""Errors, not advice; without CR LF and the first line, which are rules here, and `$@` without quotes, as right scripts have."""

Row = tuple[int, str, object, str]


class Finding(NamedTuple):
    """What a rule found in a line: what is wrong, why, and what to write."""

    line: int
    rule: str
    text: str


def lint_script(text: str) -> list[Finding]:
    """All findings, by line; of a rule one a line."""
    job = read_job(text)
    rows = [row for rules in (_header, _settings, _trap, _worker) for row in rules(job)]
    rows += [row for launch in job.launches for rules in (_ranks, _nodes, _environment) for row in rules(job, launch)]
    found = {(line, rule): text for line, rule, is_broken, text in rows if is_broken}
    of_shellcheck = _shellcheck(text) if job.commands and shutil.which("shellcheck") else ()
    return sorted([*(Finding(line, rule, text) for (line, rule), text in found.items()), *of_shellcheck])


def _shellcheck(text: str) -> Iterator[Finding]:
    done = subprocess.run(SHELLCHECK.split(), input=text.replace("\r", ""), capture_output=True, text=True, check=False)
    for comment in json.loads(done.stdout)["comments"]:
        yield Finding(comment["line"], f"SC{comment['code']}", comment["message"])


def _header(job: Job) -> Iterator[Row]:
    """sbatch looks at the whole file, then reads lines up to the first command."""
    text = "lines end in CR LF: sbatch refuses the script (`DOS line breaks`). Run `sed -i 's/\\r$//'` on it"
    yield job.text.partition("\r")[0].count("\n") + 1, "dos-lines", "\r" in job.text, text
    yield 1, "shebang", not job.text.startswith("#!"), "the first line is no `#!/bin/bash`: sbatch refuses the script"
    near = r"\s+#SBATCH\s" if job.directives else r"\s*#\s*SBATCH\s+-"
    found = [at for at, line in enumerate(job.lines[: job.end], start=1) if re.match(near, line, re.IGNORECASE)]
    yield min(found, default=0), "no-directive", found, "a comment to sbatch, which reads only lines that begin with `#SBATCH`"
    for at, (options, rest) in job.directives.items():
        text = f"#SBATCH stands below the first command (line {job.end}): sbatch does not read it. Move it up"
        yield at, "late-option", at > job.end, text
        if at > job.end:
            continue
        odd = ODD.search(job.lines[at - 1].partition(" #")[0])
        code = f"U+{ord(odd[0]):04X}" if odd else ""
        text = f"the character {code} is not the keyboard's: sbatch does not read the option. Type it anew"
        yield at, "odd-character", odd, text
        is_stray = rest and rest[0] not in ("hetjob", "packjob") and not odd and options.keys() <= SBATCH.keys()
        text = f"`{''.join(rest[:1])}` is no option: sbatch ends with `Invalid directive found in batch script`. Quote values"
        yield at, "stray-word", is_stray, text
        for option, value in options.items() if not odd else ():
            name = option.lstrip("-")
            near_by = [FOREIGN[name]] if name in FOREIGN else difflib.get_close_matches(name, SBATCH, n=1, cutoff=TYPO)
            text = "it is an option of srun, so write it there" if name in SRUN else f"write --{''.join(near_by)}"
            yield at, "unknown-option", option not in SBATCH and (name in SRUN or near_by), f"sbatch has no {option}: {text}"
            text = f"--{name}={value}: sbatch expands no variable. Write the value, or %j, %x, %A for a file's name"
            yield at, "variable-in-header", re.search(r"\$(\w|\{)", value) and name not in ("wrap", "comment"), text


def _settings(job: Job) -> Iterator[Row]:
    """One host for all, and a port that no other job takes."""
    hosts = [(line, name, value.removeprefix("tcp://")) for line, name, value in job.settings if HOST.fullmatch(name)]
    wrong = [(line, name, why) for line, name, host in hosts for each, why in WRONG_HOSTS.items() if re.fullmatch(each, host)]
    for line, name, why in wrong[:1]:
        text = f'{name}: {why}. Write $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) in the script'
        yield line, "master-addr", (job.layout.nodes or 1) > 1, text
    ports = [(line, re.search(r"(?:^|:-?)([1-9]\d*)\}?$", value)) for line, name, value in job.settings if PORT.fullmatch(name)]
    for line, port in [(line, found[1]) for line, found in ports if found][:1]:
        text = f"port {port} is fixed: two jobs on a node take the same one. Write $((10000 + SLURM_JOB_ID % 20000))"
        yield line, "fixed-port", "exclusive" not in job.header and job.header.get("mem") != "0", text


def _trap(job: Job) -> Iterator[Row]:
    """`--signal=B:` signals the script alone, which hears nothing while a program runs in the foreground."""
    to_shell, _, rest = job.header.get("signal", "").rpartition(":")
    name = rest.partition("@")[0].removeprefix("SIG")
    is_deaf = "B" in to_shell and job.launches and not any(each.in_background or each.words[0] == "wait" for each in job.commands)
    text = "bash runs a trap only when the program in the foreground has ended: write `srun ... &` and `wait`"
    for command in job.commands:
        yield (
            command.line,
            "trap-waits",
            is_deaf and command.words[0] == "trap" and {name, f"SIG{name}"} & set(command.words),
            text,
        )


def _worker(job: Job) -> Iterator[Row]:
    """What hpcddp's worker and submitit's job side need."""
    first = next((launch.command.line for launch in job.launches if any(map(WORKER.search, launch.words))), 0)
    for at, (options, _) in job.directives.items():
        text = "--time is no number of minutes: submitit computes with it when the job is signalled, and fails"
        yield at, "time-minutes", first and not options.get("time", "1").isdecimal(), text
    is_told = any(line < first and setting == ["SUBMITIT_EXECUTOR", "slurm"] for line, *setting in job.settings)
    text = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
    yield first, "executor", first and not is_told, text


def _ranks(job: Job, launch: Launch) -> Iterator[Row]:
    """A launcher for each node, a rank for each GPU, and a GPU for each rank."""
    kind, line, gpus, tasks = launch.kind, launch.command.line, launch.layout.gpus or 0, launch.layout.tasks or 0
    starts = kind not in (None, "python")
    in_each = starts and launch.in_step and tasks > 1 and launch.ranks != 1
    ranks = 0 if in_each else (launch.ranks or 0) * (tasks if launch.in_step else starts)
    text = f"{tasks} tasks a node each start {kind}, which starts all ranks of a node: `srun --ntasks-per-node=1`"
    yield line, "launcher-in-every-task", in_each, text
    text = f"{count(ranks, 'rank')} and {count(gpus, 'GPU')} on a node: NCCL ends with `Duplicate GPU detected`"
    yield line, "two-ranks-a-gpu", 0 < gpus < ranks, text
    text = f"{kind} starts {count(ranks, 'rank')} on a node with {gpus} GPUs: start a rank for each"
    yield line, "idle-gpus", starts and 0 < ranks < gpus, text


def _nodes(job: Job, launch: Launch) -> Iterator[Row]:
    """As many agents as each waits for, an address at which they meet, no more than the job has, and all until their end."""
    kind, line, step, has, names = launch.kind, launch.command.line, launch.layout, job.layout, set(launch.arguments)
    nodes = has.nodes if launch.command.in_background or {"nodelist", "relative"} & set(launch.options) else step.nodes
    is_known = nodes and launch.nnodes and launch.in_step and step.tasks == 1
    text = f"{kind} expects {launch.nnodes} nodes and starts on {nodes}: it hangs, or each node trains for itself"
    yield line, "nnodes", is_known and launch.nnodes != nodes, text
    is_alone = kind != "deepspeed" and ("standalone" in names or not names & ADDRESSES)
    text = f"{kind} has no address, so each node waits at itself: write --rdzv-backend=c10d and --rdzv-endpoint=HOST:PORT"
    yield line, "rendezvous", is_known and launch.nnodes == nodes != 1 and is_alone, text
    cores, of_job = ((layout.tasks or 0) * (layout.cpus or 0) for layout in (step, has))
    for what, needed, given in (("nodes", step.nodes, has.nodes), ("cores of a node", cores, of_job)):
        text = f"the step needs {needed} {what}, and the job has {given}: srun refuses it"
        yield line, "srun-size", (needed or 0) > (given or math.inf), text
    is_last, code = launch is job.launches[-1], {word for command in job.commands for word in command.words}
    starts = kind not in (None, "python") or any(word.endswith(".py") for word in launch.words)
    is_bare = (has.nodes or 1) > 1 and starts and not STARTERS & code and "hostfile" not in names
    text = f"no srun: ranks start on the first of {has.nodes} nodes only. Write `srun` in front"
    yield line, "no-srun", is_last and is_bare, text
    below = {command.words[0] for command in job.commands if command.line > line}
    text = "the script ends while this runs in the background, which ends the job: write `wait` below"
    yield line, "no-wait", is_last and launch.command.in_background and below.isdisjoint(("wait", "kill", "tail")), text


def _environment(job: Job, launch: Launch) -> Iterator[Row]:
    """What tasks receive of the script's variables."""
    is_reset = any("SLURM_EXPORT_ENV" in word for command in job.commands for word in command.words)
    value = launch.options.get("export", "ALL" if is_reset else job.header.get("export", "ALL"))
    text = f"--export={value} takes PATH and all other variables from ranks: write --export=ALL,..."
    yield launch.command.line, "export", launch.in_step and "ALL" not in value.split(","), text
    unused = launch.arguments.get("node_rank") if launch.arguments.get("rdzv_backend", "static") != "static" else None
    words = [(launch.command.line, word) for word in launch.words if unused not in (word, word.partition("=")[2])]
    own = [(line, value) for line, name, value in job.settings if name in OF_RANK and launch.kind == "python"]
    for line, found in [(line, IN_STEP.search(value)) for line, value in words + own if launch.in_step]:
        name = found and found[1]
        text = f"${name} is expanded before srun starts: every task gets the same. Put it into single quotes, `bash -c '...'`"
        yield line, "too-early", found, text
