"""What `sbatch --test-only` takes: the option that asks for GPUs, the accounts that may be charged, whether one must be named."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hpcddp.backends.slurm_commands import UNANSWERED, UnansweredError, run_command
from hpcddp.cluster.slurm_rules import GpuRequest
from hpcddp.core.errors import HpcddpError
from hpcddp.core.text import one_line

MemoryOption = Literal["forbidden", "required", "nonzero"]
"""As `slurm.memory_option` of a profile."""

ACCOUNTS = 20
"""Accounts that are tried."""

QOS = 10
"""QOS that are tried."""

ABOUT_QOS = re.compile(r"qos", re.IGNORECASE)
"""Of a refusal: another QOS may be taken."""

ABOUT_ACCOUNT = re.compile(r"account|assoc", re.IGNORECASE)
"""Of a refusal: another account may be taken."""


SOME_MB = 1000
"""What `--mem` is tried with."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One node of a type, as a job asks for it."""

    partition: str | None
    constraint: str | None
    gres_type: str | None
    gpus: int
    qos: str | None = None
    mem_mb: int | None = None
    """None: the job does not say."""


@dataclass(frozen=True, kw_only=True)
class TrialVerdict:
    """What was taken; None: not known, and `why` is what sbatch said last."""

    gpu_request: GpuRequest | None = None
    qos: str | None = None
    """The one that a job has to name; None: a job may name none."""
    accounts: tuple[str, ...] = ()
    """Those that it was taken with."""
    account_required: bool | None = None
    memory_option: MemoryOption | Literal["free"] | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a job may be submitted with."""

    accounts: Sequence[str]
    qos: Sequence[str | None]
    """In the order to try them; None: without naming one."""


def trial_gpu_option(request: GpuRequest, gres_type: str | None, gpus: int) -> str | None:
    """As the job script has it; None: no option."""
    typed = f"{gres_type}:{gpus}" if gres_type else str(gpus)
    return {
        "gres": f"--gres=gpu:{typed}",
        "gpus-per-node": f"--gpus-per-node={typed}",
        "gpus-per-task": f"--gpus-per-task={f'{gres_type}:1' if gres_type else '1'}",
    }.get(request)


def try_requests(trial: Trial, requests: Sequence[GpuRequest], names: Names, deadline_s: float) -> TrialVerdict:
    """The first of the requests that is taken, with any QOS and account, without and with `--mem`; what else is taken then. No
    answer is no refusal: nothing is known then.
    """
    try:
        for mem_mb in (None, SOME_MB):
            verdict = _try_qos(replace(trial, mem_mb=mem_mb), requests, names, deadline_s)
            if verdict.gpu_request is not None:
                return verdict
    except HpcddpError as error:
        return TrialVerdict(why=one_line(str(error)))
    return verdict


def _try_qos(trial: Trial, requests: Sequence[GpuRequest], names: Names, deadline_s: float) -> TrialVerdict:
    """Other QOS are tried only where the refusal is about that."""
    verdict = TrialVerdict()
    for qos in names.qos[:QOS]:
        verdict = _try_with(replace(trial, qos=qos), requests, names.accounts, deadline_s)
        if verdict.gpu_request is not None or not ABOUT_QOS.search(verdict.why or ""):
            break
    return verdict


def _try_with(trial: Trial, requests: Sequence[GpuRequest], accounts: Sequence[str], deadline_s: float) -> TrialVerdict:
    tried: list[str | None] = [*accounts[:ACCOUNTS]] or [None]
    why = None
    for request in requests:
        taken, why = _taken_with(trial, request, tried, deadline_s)
        if taken:
            names = tuple(name for name in taken if name is not None)
            return TrialVerdict(
                gpu_request=request,
                qos=trial.qos,
                accounts=names,
                account_required=bool(names) and refusal(trial, request, None, deadline_s) is not None,
                memory_option=_memory_option(trial, request, taken[0], deadline_s),
            )
    return TrialVerdict(why=why)


def _memory_option(trial: Trial, request: GpuRequest, account: str | None, deadline_s: float) -> MemoryOption | Literal["free"]:
    """Of `--mem`, given what was taken: required if that had it, else whether it is refused, or refused as 0."""
    if trial.mem_mb is not None:
        return "required"
    if refusal(replace(trial, mem_mb=SOME_MB), request, account, deadline_s) is not None:
        return "forbidden"
    return "free" if refusal(replace(trial, mem_mb=0), request, account, deadline_s) is None else "nonzero"


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
    """What sbatch says against one node so; None where it takes it. HpcddpError where there is no answer."""
    options = {"partition": trial.partition, "constraint": trial.constraint, "qos": trial.qos, "account": account}
    command = ["sbatch", "--test-only", "--nodes=1", "--ntasks=1", "--time=1", "--wrap=true", "--output=/dev/null"]
    command += [f"--{name}={value}" for name, value in options.items() if value]
    command += [] if trial.mem_mb is None else [f"--mem={trial.mem_mb}M"]
    if option := trial_gpu_option(request, trial.gres_type, trial.gpus):
        command.append(option)
    done = run_command(command, timeout_s=max(0.1, deadline_s - time.monotonic()))
    words = one_line(done.stderr) or f"exit code {done.returncode}"
    if done.returncode and UNANSWERED.search(words):
        raise UnansweredError(words)
    return words if done.returncode else None
