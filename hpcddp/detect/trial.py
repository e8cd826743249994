"""What `sbatch --test-only` takes: the option that asks for GPUs, the accounts that may be charged, whether one must be named."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcddp.backends.slurm_commands import run
from hpcddp.cluster.slurm_rules import GpuRequest
from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import one_line

ACCOUNTS = 20
"""Accounts that are tried."""

QOS = 10
"""QOS that are tried."""

ABOUT_QOS = re.compile(r"qos", re.IGNORECASE)
"""Of a refusal: another QOS may be taken."""

ABOUT_ACCOUNT = re.compile(r"account|assoc", re.IGNORECASE)
"""Of a refusal: another account may be taken."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One node of a type, as a job asks for it."""

    partition: str | None
    constraint: str | None
    gres_type: str | None
    gpus: int
    qos: str | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was taken; None: not known, and `why` is what sbatch said last."""

    gpu_request: GpuRequest | None = None
    qos: str | None = None
    """The one that a job has to name; None: a job may name none."""
    accounts: tuple[str, ...] = ()
    """Those that it was taken with."""
    account_required: bool | None = None
    why: str | None = None


def gpu_option(request: GpuRequest, gres_type: str | None, gpus: int) -> str | None:
    """As the job script has it; None: no option."""
    typed = f"{gres_type}:{gpus}" if gres_type else str(gpus)
    return {
        "gres": f"--gres=gpu:{typed}",
        "gpus-per-node": f"--gpus-per-node={typed}",
        "gpus-per-task": f"--gpus-per-task={f'{gres_type}:1' if gres_type else '1'}",
    }.get(request)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a job may be submitted with."""

    accounts: Sequence[str]
    qos: Sequence[str | None]
    """In the order to try them; None: without naming one."""


def try_requests(trial: Trial, requests: Sequence[GpuRequest], names: Names, deadline_s: float) -> Verdict:
    """The first of the requests that is taken, with any QOS and account, and the accounts that it is taken with."""
    verdict = Verdict()
    for qos in names.qos[:QOS]:
        verdict = _try_with(replace(trial, qos=qos), requests, names.accounts, deadline_s)
        if verdict.gpu_request is not None or not ABOUT_QOS.search(verdict.why or ""):
            break
    return verdict


def _try_with(trial: Trial, requests: Sequence[GpuRequest], accounts: Sequence[str], deadline_s: float) -> Verdict:
    tried: list[str | None] = [*accounts[:ACCOUNTS]] or [None]
    why = None
    for request in requests:
        taken, why = _taken_with(trial, request, tried, deadline_s)
        if taken:
            names = tuple(name for name in taken if name is not None)
            required = bool(names) and refusal(trial, request, None, deadline_s) is not None
            return Verdict(gpu_request=request, qos=trial.qos, accounts=names, account_required=required)
    return Verdict(why=why)


def _taken_with(
    trial: Trial, request: GpuRequest, accounts: Sequence[str | None], deadline_s: float
) -> tuple[list[str | None], str | None]:
    """The accounts that the request is taken with, and what was said last otherwise."""
    taken, why = [], None
    for account in accounts:
        refused = refusal(trial, request, account, deadline_s)
        if refused is None:
            taken.append(account)
            continue
        why = refused
        if not ABOUT_ACCOUNT.search(refused):
            break
    return taken, why


def refusal(trial: Trial, request: GpuRequest, account: str | None, deadline_s: float) -> str | None:
    """What sbatch says against one node so; None where it takes it."""
    options = {"partition": trial.partition, "constraint": trial.constraint, "qos": trial.qos, "account": account}
    command = ["sbatch", "--test-only", "--nodes=1", "--ntasks=1", "--time=1", "--wrap=true", "--output=/dev/null"]
    command += [f"--{name}={value}" for name, value in options.items() if value]
    if option := gpu_option(request, trial.gres_type, trial.gpus):
        command.append(option)
    try:
        done = run(command, timeout_s=max(0.1, deadline_s - time.monotonic()))
    except HpcddpError as error:
        return str(error)
    return one_line(done.stderr) or f"exit code {done.returncode}" if done.returncode else None
