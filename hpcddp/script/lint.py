"""`hpcddp lint`: what in a job script Slurm refuses, makes ranks wait for each other, or leaves GPUs idle.

A rule is a row: line, name, whether the script breaks it, and what is said then. It holds for the launcher that the script uses,
and is silent about what only the running script knows. Errors that shellcheck finds stand beside them where it is installed.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from hpcddp.core.text import count
from hpcddp.script.job_script import LATER, Job, Launch
from hpcddp.script.option_table import FOREIGN, SBATCH, SRUN

ODD = re.compile("[\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff\u2010-\u2015\u2212\u2018-\u201d]")
"""Spaces, dashes and quotes of word processors and web pages, which look like those of the keyboard."""

STARTERS = {"srun", "mpirun", "mpiexec", "prun", "aprun", "ibrun", "jsrun", "ssh", "pdsh", "clush", "ray", "submitit"}
"""Programs that reach other nodes."""

ADDRESSES = {"rdzv_endpoint", "master_addr", "main_process_ip", "config_file", ""}
IN_STEP = re.compile(r"\$\{?(SLURM_(?:PROCID|LOCALID|NODEID|STEP_ID|STEPID|LAUNCH_NODE_IPADDR))\b")
"""Variables that only a step's tasks have, mostly each its own."""

WRONG_HOST = re.compile(
    r"(?P<name>(PET_)?(MASTER|MAIN_PROCESS|RDZV)_(ADDR|IP|HOST|ENDPOINT)|DIST_URL|INIT_METHOD)=(tcp://)?(?P<host>(localhost|127\.[\d.]+"
    rf"|0\.0\.0\.0|\[?::1\]?|\$\{{?SLURM_(JOB_)?NODELIST\}}?)(:.*)?|{LATER}(\(hostname|\{{?HOSTNAME|\{{?SLURMD_NODENAME)\b.*)"
)
"""No host, or another one on each node."""

FIXED_PORT = re.compile(r"((PET_)?(MASTER|MAIN_PROCESS|RDZV)_(PORT|ENDPOINT)|DIST_URL|INIT_METHOD)=(.*:-?)?(?P<port>[1-9]\d*)\}?")
OF_RANK = re.compile("RANK=|LOCAL_RANK=|MASTER_ADDR=")
WORKER = re.compile(r"hpcddp\.worker|(^|/)bootstrap\.py$|submitit\.core\._submit")
SHELLCHECK = "shellcheck --format=json1 --shell=bash --severity=error --exclude=SC1017,SC2068,SC2148,SC2242 -"
"""Errors, not advice; without CR LF and the first line, which are rules here, and `$@` and `exit -1`, as right scripts have."""
Row = tuple[int, str, object, str]


class LintFinding(NamedTuple):
    """What a rule found in a line: what is wrong, why, and what to write."""

    line: int
    rule: str
    text: str


def lint_script(text: str) -> list[LintFinding]:
    """All findings, by line; of a rule one a line."""
    job = Job(text)
    rows = [row for rules in (_header, _settings, _trap, _shellcheck) for row in rules(job)]
    rows += [row for launch in job.launches for rules in (_numbers, _around) for row in rules(job, launch)]
    return sorted({(line, rule): LintFinding(line, rule, text) for line, rule, is_broken, text in rows if is_broken}.values())


def _header(job: Job) -> Iterator[Row]:
    """sbatch looks at the whole file, then reads lines up to the first command."""
    text = "lines end in CR LF: sbatch refuses them (`Batch script contains DOS line breaks`). Run `sed -i 's/\\r$//'` on it"
    yield job.text.partition("\r")[0].count("\n") + 1, "dos-lines", "\r" in job.text, text
    yield 1, "shebang", not job.text.startswith("#!"), "the first line is no `#!/bin/bash`: sbatch refuses the script"
    near = re.compile(r"\s+#SBATCH\s" if job.directives else r"\s*#\s*SBATCH\s+-", re.IGNORECASE)
    for at in [at for at, line in job.lines.items() if at < job.end and near.match(line)][:1]:
        yield at, "no-directive", True, "a comment to sbatch, which reads only lines that begin with `#SBATCH`"
    for at, (options, rest) in job.directives.items():
        odd, is_late = ODD.search(job.lines[at].partition(" #")[0]), at > job.end
        text = f"#SBATCH stands below the first command (line {job.end}): sbatch does not read it. Move it up"
        yield at, "late-option", is_late and options, text
        text = f"{unicodedata.name(odd[0]) if odd else ''} is not the keyboard's: sbatch does not read the option. Type it anew"
        yield at, "odd-character", not is_late and odd, text
        is_stray = rest and rest[0] not in ("hetjob", "packjob") and options.keys() <= SBATCH.keys()
        text = f"`{' '.join(rest)}` is no option (sbatch: `Invalid directive found in batch script`). Quote a value with spaces"
        yield at, "stray-word", is_stray and not is_late and not odd, text
        for option, value in options.items() if not is_late and not odd else ():
            # A mistyped --gpu-per-node is 0.96 like --gpus-per-node, a plugin's --uenv below 0.5 like any.
            name = option.lstrip("-")
            near_by = [FOREIGN[name]] if name in FOREIGN else difflib.get_close_matches(name, SBATCH, n=1, cutoff=0.8)
            text = "it is an option of srun, so write it there" if name in SRUN else f"write --{''.join(near_by)}"
            yield at, "unknown-option", option not in SBATCH and (name in SRUN or near_by), f"sbatch has no {option}: {text}"
            text = f"--{name}={value}: sbatch expands no variable. Write the value, or %j, %x, %A for a file's name"
            yield at, "variable-in-header", re.search(r"\$(\w|\{)", value) and name not in ("wrap", "comment"), text


def _settings(job: Job) -> Iterator[Row]:
    """One host for all, and a port that no other job takes."""
    for line, wrong in [(line, found) for line, text in job.settings if (found := WRONG_HOST.fullmatch(text))][:1]:
        host = f"`{wrong['host'].replace(LATER, '$')}` is another host on each node, or none, so ranks do not meet"
        text = f'{wrong["name"]}: {host}. Write $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) in the script'
        yield line, "master-addr", (job.layout.nodes or 1) > 1, text
    for line, port in [(line, found["port"]) for line, text in job.settings if (found := FIXED_PORT.fullmatch(text))][:1]:
        text = f"port {port} is fixed: two jobs on a node take the same one. Write $((10000 + SLURM_JOB_ID % 20000))"
        yield line, "fixed-port", "exclusive" not in job.header and job.header.get("mem") != "0", text


def _trap(job: Job) -> Iterator[Row]:
    """`--signal=B:` signals the script alone, which hears nothing while a program runs in the foreground."""
    signal = re.fullmatch(r"R?BR?:(?:SIG)?(\w+)(?:@\d+)?", job.header.get("signal", ""))
    names = {signal[1], f"SIG{signal[1]}"} if signal else set()
    is_deaf = job.launches and not any(each.in_background or each.words[0] == "wait" for each in job.commands)
    text = "bash runs a trap only when the program in the foreground has ended: write `srun ... &` and `wait`"
    for line in [each.line for each in job.commands if each.words[0] == "trap" and names & set(each.words)]:
        yield line, "trap-waits", is_deaf, text


def _shellcheck(job: Job) -> Iterator[Row]:
    if job.commands and shutil.which("shellcheck"):
        done = subprocess.run(SHELLCHECK.split(), input=job.text.replace("\r", ""), capture_output=True, text=True, check=False)
        yield from ((each["line"], f"SC{each['code']}", True, each["message"]) for each in json.loads(done.stdout)["comments"])


def _numbers(job: Job, launch: Launch) -> Iterator[Row]:
    """Header, srun and launcher are compared: nodes and where they meet, ranks, GPUs and cores."""
    kind, line, step, has, names = launch.kind, launch.command.line, launch.layout, job.layout, set(launch.arguments)
    gpus, tasks, calls = step.gpus or 0, step.tasks or 0, step.tasks or 0 if launch.in_step else int(launch.starts_ranks)
    is_twice = launch.starts_ranks and launch.in_step and tasks > 1 and launch.ranks != 1
    text = f"{tasks} tasks a node each start {kind}, which starts all ranks of a node: `srun --ntasks-per-node=1`"
    yield line, "launcher-in-every-task", is_twice, text
    ranks = 0 if is_twice else calls * (launch.ranks or 0)
    text = f"{count(ranks, 'rank')} and {count(gpus, 'GPU')} on a node: NCCL ends with `Duplicate GPU detected`"
    yield line, "two-ranks-a-gpu", 0 < gpus < ranks, text
    text = f"{kind} starts {count(ranks, 'rank')} on a node with {gpus} GPUs: start a rank for each"
    yield line, "idle-gpus", launch.starts_ranks and 0 < ranks < gpus, text
    nodes = has.nodes if launch.command.in_background or {"nodelist", "relative"} & set(launch.options) else step.nodes
    is_known = nodes and launch.nnodes and launch.in_step and launch.starts_ranks and tasks == 1
    text = f"{kind} expects {launch.nnodes} nodes and starts on {nodes}: it hangs, or each node trains for itself"
    yield line, "nnodes", is_known and launch.nnodes != nodes, text
    is_closed = kind != "deepspeed" and ("standalone" in names or not names & ADDRESSES)
    text = f"{kind} has no address, so each node waits at itself: write --rdzv-backend=c10d and --rdzv-endpoint=HOST:PORT"
    yield line, "rendezvous", is_known and launch.nnodes == nodes != 1 and is_closed, text
    cores, of_job = (tasks * (step.cpus or 0), (has.tasks or 0) * (has.cpus or 0))
    for what, needed, given in (("nodes", step.nodes, has.nodes), ("cores of a node", cores, of_job)):
        text = f"the step needs {needed} {what}, and the job has {given}: srun refuses it. Write the same in the header"
        yield line, "srun-size", needed and given and needed > given, text


def _around(job: Job, launch: Launch) -> Iterator[Row]:
    """What the script does before, around and after: it runs on the first node, and Slurm ends all that runs when it ends."""
    line, words, code = launch.command.line, launch.words, {word for command in job.commands for word in command.words}
    is_bare = launch.starts_ranks or any(word.endswith(".py") for word in words)
    is_first = launch is job.launches[-1] and (job.layout.nodes or 1) > 1 and not STARTERS & code
    text = f"no srun: ranks start on the first of {job.layout.nodes} nodes only. Write `srun` in front"
    yield line, "no-srun", is_bare and is_first and "hostfile" not in launch.arguments, text
    below = {command.words[0] for command in job.commands if command.line > line}
    is_polled = any(re.match(r"\s*(while|until)\b", text) for at, text in job.lines.items() if at > line)
    is_awaited = launch is not job.launches[-1] or below & {"wait", "kill", "tail"} or is_polled
    text = "the script ends while this runs in the background, which ends the job: write `wait` below"
    yield line, "no-wait", launch.command.in_background and not is_awaited, text
    is_reset = any("SLURM_EXPORT_ENV" in word for word in code)
    value = launch.options.get("export", "ALL" if is_reset else job.header.get("export", "ALL"))
    text = f"--export={value} takes PATH and all other variables from ranks: write --export=ALL,..."
    is_partial = launch.in_step and not re.search(r"(?i)^\$|\bALL\b", value) and "container-image" not in launch.options
    yield line, "export", is_partial, text
    unused = launch.arguments.get("node_rank") if launch.arguments.get("rdzv_backend", "static") != "static" else None
    expanded = [(line, word) for word in words if unused not in (word, word.partition("=")[2])]
    of_job = [setting for setting in job.settings if launch.kind == "python" and setting[0] not in job.in_steps]
    expanded += [(at, text) for at, text in of_job if OF_RANK.match(text)]
    for at, early in [(at, found[1]) for at, value in expanded if launch.in_step and (found := IN_STEP.search(value))]:
        text = f"${early} is expanded before srun starts: every task gets the same. Put it into single quotes, `bash -c '...'`"
        yield at, "too-early", True, text
    if any(map(WORKER.search, words)):
        is_exported = any(at < line and setting == "SUBMITIT_EXECUTOR=slurm" for at, setting in job.settings)
        text = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
        yield line, "executor", not is_exported, text
        for at, (options, _) in job.directives.items():
            is_other = not options.get("time", "1").isdecimal()
            yield at, "time-minutes", is_other, "--time is no number of minutes: submitit computes with it at a signal, and fails"
