"""`hpcddp lint`: what in a job script Slurm refuses, makes ranks wait for each other, or leaves GPUs idle.

A rule holds for the launcher that the script uses, and a right public script breaks none: lint_header.py, lint_launch.py and
lint_settings.py. Errors that shellcheck finds stand beside them where it is installed (shellcheck.py).
"""

from __future__ import annotations

from hpcddp.script.findings import Finding, Rule
from hpcddp.script.job_launch import Job
from hpcddp.script.job_text import JobText
from hpcddp.script.lint_header import HEADER_RULES
from hpcddp.script.lint_launch import LAUNCH_RULES
from hpcddp.script.lint_settings import SETTING_RULES
from hpcddp.script.shellcheck import run_shellcheck

RULES: tuple[Rule, ...] = (*HEADER_RULES, *LAUNCH_RULES, *SETTING_RULES)


def lint_script(text: str) -> list[Finding]:
    """All findings, by line."""
    job = Job(script=JobText(text=text))
    found = [finding for rule in RULES for finding in rule(job)]
    return sorted([*found, *run_shellcheck(job.script)], key=lambda finding: (finding.line, finding.rule))
