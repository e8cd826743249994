"""Rules about what is set for ranks, wherever it stands: the address where they meet, and what hpcddp's own worker needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job
from hpcddp.script.job_text import LATER

HOSTS = ("MASTER_ADDR", "PET_MASTER_ADDR", "MAIN_PROCESS_IP", "RDZV_HOST")
PORTS = ("MASTER_PORT", "PET_MASTER_PORT", "MAIN_PROCESS_PORT", "RDZV_PORT")
BOTH = ("RDZV_ENDPOINT", "PET_RDZV_ENDPOINT", "DIST_URL", "INIT_METHOD")

WRONG_HOSTS = {
    r"localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[?::1\]?": "each node waits at itself",
    rf"{LATER}(\(hostname\b.*|\{{?(HOSTNAME|SLURMD_NODENAME)\b.*)": "each node fills in its own name",
    r"\$\{?SLURM_(JOB_)?NODELIST\}?": "a list of nodes is no address",
}

WORKER = re.compile(r"hpcddp\.worker|(^|/)bootstrap\.py$|submitit\.core\._submit")


def _settings(job: Job) -> Iterator[tuple[int, str, str]]:
    """Line, name and value: of variables of the script and of a step's shell, and of arguments, in capitals."""
    launches = {launch.line: launch for launch in job.launches}
    for command in job.script.commands:
        yield from ((command.line, name, value) for name, value in command.assigned if not command.is_conditional)
        if launch := launches.get(command.line):
            words = [word for text in launch.words for word in re.split(r"[\s;,]+", text)]
            words += (launch.option("export") or "").split(",")
            pairs = [*launch.arguments.items(), *(word.lstrip("-").replace("-", "_").partition("=")[::2] for word in words)]
            yield from ((launch.line, name.upper(), value.strip("\"'")) for name, value in pairs if name.isidentifier())


def addresses_and_ports(job: Job) -> Iterator[Finding]:
    """One host for all, and a port that no other job takes."""
    found = dict[str, Finding]()
    is_exclusive = job.script.get("exclusive") is not None or job.script.get("mem") == "0"
    for line, name, value in _settings(job):
        address = value.removeprefix("tcp://")
        host, _, port = address.rpartition(":") if name in BOTH else (address, "", address)
        why = next((why for pattern, why in WRONG_HOSTS.items() if re.fullmatch(pattern, host)), None)
        if name in (*HOSTS, *BOTH) and (job.layout.nodes or 1) > 1 and why:
            text = f'{name}: {why}. Write $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) in the script'
            found.setdefault("host", Finding(line, "master-addr", text))
        fixed = re.fullmatch(r"(?:\$\{\w+:-)?(\d+)\}?", port)
        if name in (*PORTS, *BOTH) and fixed and int(fixed[1]) and not is_exclusive:
            text = f"port {fixed[1]} is fixed: two jobs on a node take the same one. Write $((10000 + SLURM_JOB_ID % 20000))"
            found.setdefault("port", Finding(line, "fixed-port", text))
    yield from found.values()


def worker_contract(job: Job) -> Iterator[Finding]:
    """Of hpcddp's worker and submitit's job side only."""
    first = next((launch.line for launch in job.launches if any(map(WORKER.search, launch.words))), None)
    if first is None:
        return
    for option in job.script.header:
        if option.name == "time" and not (option.value or "").isdecimal():
            text = (
                f"--time={option.value} is no number of minutes: submitit computes with it when the job is signalled, and fails"
            )
            yield Finding(option.line, "time-minutes", text)
    if not any((name, value) == ("SUBMITIT_EXECUTOR", "slurm") and line < first for line, name, value in _settings(job)):
        text = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
        yield Finding(first, "executor", text)
