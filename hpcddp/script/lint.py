"""`hpcddp lint`: what in a job script Slurm refuses, makes ranks wait for each other, or leaves GPUs idle.

A rule holds for the launcher that the script uses, and a right public script breaks none: lint_header.py, lint_launch.py and
lint_settings.py. Errors that shellcheck finds stand beside them where it is installed.
"""

from __future__ import annotations

from hpcddp.script.findings import Finding, run_shellcheck
from hpcddp.script.job_launch import Job
from hpcddp.script.job_text import JobText
from hpcddp.script.lint_header import header
from hpcddp.script.lint_launch import launches, signals, variables_of_ranks
from hpcddp.script.lint_settings import addresses_and_ports, worker_contract

RULES = (header, launches, variables_of_ranks, signals, addresses_and_ports, worker_contract)


def lint_script(text: str) -> list[Finding]:
    """All findings, by line."""
    job = Job(script=JobText(text=text))
    found = [finding for rules in RULES for finding in rules(job)]
    return sorted([*found, *run_shellcheck(job.script)], key=lambda finding: (finding.line, finding.rule))
