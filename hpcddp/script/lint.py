"""`hpcddp lint`: what in a job script would lose a run, its records or its exit code, or spoil its times.

The rules are those of lint_header.py, lint_launch.py and lint_environment.py, each with its reason; those of shellcheck come
beside them where it is installed (shellcheck.py).
"""

from __future__ import annotations

from hpcddp.script.findings import Finding, Rule
from hpcddp.script.lint_environment import ENVIRONMENT_RULES
from hpcddp.script.lint_header import HEADER_RULES
from hpcddp.script.lint_launch import LAUNCH_RULES
from hpcddp.script.shell_text import Script
from hpcddp.script.shellcheck import run_shellcheck

RULES: tuple[Rule, ...] = (*HEADER_RULES, *LAUNCH_RULES, *ENVIRONMENT_RULES)


def lint_script(text: str) -> list[Finding]:
    """All findings, by line."""
    script = Script(text=text)
    found = [finding for rule in RULES for finding in rule(script)]
    return sorted([*found, *run_shellcheck(text)], key=lambda finding: (finding.line, finding.rule))
