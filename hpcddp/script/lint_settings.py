"""Rules about variables and addresses: what ranks receive, and where they meet; and what hpcddp's own worker needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job
from hpcddp.script.job_text import ASSIGNMENT, LATER

HARMFUL = {
    "NCCL_IB_DISABLE": "ranks talk through TCP, many times slower",
    "NCCL_P2P_DISABLE": "GPUs of a node talk through its memory",
    "NCCL_SHM_DISABLE": "processes of a node talk through the network",
    "CUDA_LAUNCH_BLOCKING": "every kernel waits for the one before, so no time is of use",
}
"""Variable -> what it does when it is 1; a comment above with the source allows it."""

HOSTS = ("MASTER_ADDR", "PET_MASTER_ADDR", "MAIN_PROCESS_IP", "RDZV_HOST")
PORTS = ("MASTER_PORT", "PET_MASTER_PORT", "MAIN_PROCESS_PORT", "RDZV_PORT")
BOTH = ("RDZV_ENDPOINT", "PET_RDZV_ENDPOINT", "DIST_URL", "INIT_METHOD")
LOCAL = r"(localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[?::1\]?)"
OWN_HOST = rf"{LATER}(\(hostname\b.*|\{{?HOSTNAME\b.*|\{{?SLURMD_NODENAME\b.*)"
IN_STEP = r"\$\{?(SLURM_(?:PROCID|LOCALID|NODEID|STEP_ID|STEPID|LAUNCH_NODE_IPADDR))\b"
"""Variables that only a step's tasks have, mostly each its own."""

HPCDDP = re.compile(r"hpcddp\.worker|(^|/)bootstrap\.py$")
SUBMITIT = "submitit.core._submit"


def _settings(job: Job) -> Iterator[tuple[int, str, str]]:
    """Line, name and value of what is set for ranks: by the script, in a step's shell, or as an argument."""
    launches = {launch.line: launch for launch in job.launches}
    for command in job.script.commands:
        yield from ((command.line, name, value) for name, value in command.assigned if not command.is_conditional)
        launch = launches.get(command.line)
        if launch is not None:
            inner = [word for text in launch.words for word in re.split(r"[\s;,]+", text)]
            exported = (launch.option("export") or "").split(",")
            found = [match for word in (*inner, *exported) if (match := ASSIGNMENT.fullmatch(word))]
            yield from ((launch.line, match[1], match[3].strip("\"'")) for match in found)
            pairs = [*launch.arguments.items(), *((word.lstrip("-").replace("-", "_").partition("=")[::2]) for word in inner)]
            yield from ((launch.line, name.upper(), value) for name, value in pairs if name.islower())


def addresses_and_ports(job: Job) -> Iterator[Finding]:
    """One host for all, and a port that no other job takes."""
    hosts, ports = list[Finding](), list[Finding]()
    is_exclusive = job.script.get("exclusive") is not None or job.script.get("mem") == "0"
    for line, name, value in _settings(job):
        address = value.removeprefix("tcp://")
        host, _, port = address.rpartition(":") if name in BOTH else (address, "", address)
        if name in (*HOSTS, *BOTH) and (job.layout.nodes or 1) > 1 and (why := _wrong_host(host)):
            text = f'{name}: {why}. Write $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) in the script'
            hosts.append(Finding(line, "master-addr", text))
        fixed = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)\}?", port)
        if name in (*PORTS, *BOTH) and fixed and int(fixed[1]) and not is_exclusive:
            text = f"port {fixed[1]} is fixed: two jobs on a node take the same one. Write $((10000 + SLURM_JOB_ID % 20000))"
            ports.append(Finding(line, "fixed-port", text))
        if name in (*PORTS, *BOTH, "RDZV_ID") and re.search(rf"{LATER}\{{?RANDOM\b", value):
            text = f"{name}: $RANDOM is expanded by each task, so no two agree. Expand it in the script, above srun"
            ports.append(Finding(line, "random-in-step", text))
    yield from (*hosts[:1], *ports[:1])


def _wrong_host(host: str) -> str | None:
    if re.fullmatch(LOCAL, host):
        return "each node waits at itself"
    if re.fullmatch(OWN_HOST, host):
        return "each node fills in its own name"
    return "a list of nodes is no address" if re.fullmatch(r"\$\{?SLURM_(JOB_)?NODELIST\}?", host) else None


def too_early(job: Job) -> Iterator[Finding]:
    """The script's shell expands them once, before srun starts a task."""
    steps = [launch for launch in job.launches if launch.in_step]
    found = dict[int, str]()
    for launch in steps:
        is_unused = launch.arguments.get("rdzv_backend", "static") != "static"
        unused = launch.arguments.get("node_rank") if is_unused else None
        for word in launch.words:
            if (early := re.search(IN_STEP, word)) and unused not in (word, word.partition("=")[2]):
                found.setdefault(launch.line, early[1])
    for command in job.script.commands if any(launch.kind == "direct" for launch in steps) else ():
        for name, value in command.assigned:
            if name in ("RANK", "LOCAL_RANK", "MASTER_ADDR") and (early := re.search(IN_STEP, value)):
                found.setdefault(command.line, early[1])
    for line, name in found.items():
        text = f"${name} is expanded before srun starts: every task gets the same. Put it into single quotes, `bash -c '...'`"
        yield Finding(line, "too-early", text)


def not_exported(job: Job) -> Iterator[Finding]:
    """A variable of the shell alone does not reach the ranks."""
    code, is_read = job.script.code, any(launch.kind == "direct" for launch in job.launches)
    for command in job.script.commands if is_read and "set -a" not in code else ():
        for name, _ in command.assigned if len(command.assigned) == len(command.words) else ():
            is_used = re.search(rf"[${LATER}]\{{?{name}\b|(export|declare -x) [^\n]*\b{name}\b", code)
            if name in ("MASTER_ADDR", "MASTER_PORT") and not is_used:
                yield Finding(command.line, "not-exported", f"ranks do not receive {name}: write `export {name}`")


def environment_of_ranks(job: Job) -> Iterator[Finding]:
    """sbatch(1) and srun(1), --export."""
    header = job.script.get("export")
    resets = re.search(r"SLURM_EXPORT_ENV=ALL|unset .*SLURM_EXPORT_ENV", job.script.code)
    for launch in job.launches:
        given = launch.option("export")
        value = given if given is not None else header if launch.in_step and not resets else None
        if value is not None and "ALL" not in value.split(","):
            place = "srun" if given is not None else "the header, which holds for srun,"
            text = f"--export={value} of {place} takes PATH and all other variables from ranks: write --export=ALL"
            text += f",{value}" if value not in ("NONE", "NIL") else ""
            yield Finding(launch.line, "export", text)


def harmful_variables(job: Job) -> Iterator[Finding]:
    """Set for all runs."""
    for line, name, value in _settings(job):
        if name in HARMFUL and value == "1" and not re.search(r"#.*(\bsource\b|://)", job.script.lines[line - 2]):
            yield Finding(line, name, f"{name}=1: {HARMFUL[name]}")


def worker_contract(job: Job) -> Iterator[Finding]:
    """Of hpcddp's worker and submitit's job side only."""
    hpcddp = [launch for launch in job.launches if any(HPCDDP.search(word) for word in launch.words)]
    launches = hpcddp or [launch for launch in job.launches if SUBMITIT in launch.words]
    if not launches:
        return
    first, at = launches[0], {option.name: option.line for option in job.script.header}
    time, settings = job.script.get("time"), list(_settings(job))
    if time and not time.isdecimal():
        text = f"--time={time} is no number of minutes: submitit computes with it when the job is signalled, and fails"
        yield Finding(at["time"], "time-minutes", text)
    if job.script.get("open-mode") not in ("append", "a"):
        text = "no --open-mode=append in the header: a requeued job writes over its logs"
        yield Finding(at.get("open-mode", 1), "no-open-mode", text)
    if not any((name, value) == ("SUBMITIT_EXECUTOR", "slurm") and line < first.line for line, name, value in settings):
        text = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
        yield Finding(first.line, "executor", text)
    for launch in hpcddp:
        if launch.in_step and launch.option("kill-on-bad-exit") in (None, "0"):
            text = "srun without --kill-on-bad-exit=1: when one rank dies the others wait for it until the time limit"
            yield Finding(launch.line, "kill-on-bad-exit", text)


SETTING_RULES = (addresses_and_ports, too_early, not_exported, environment_of_ranks, harmful_variables, worker_contract)
