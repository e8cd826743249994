"""Rules about the header of a job script: what sbatch refuses, does not read, or reads otherwise than it was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job, gpu_counts, number
from hpcddp.script.job_text import Option, read_options
from hpcddp.script.option_table import FOREIGN, SBATCH, SRUN

TYPO = 0.8
"""Likeness of two names (difflib) from which one is the other mistyped: --gpu-per-node is 0.96, a plugin's --uenv below 0.5."""

ODD = re.compile("[\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff\u2010-\u2015\u2212\u2018-\u201d]")
"""Spaces, dashes and quotes of word processors and web pages, which look like those of the keyboard."""


def header(job: Job) -> Iterator[Finding]:
    """sbatch looks at the whole file, then reads lines up to the first command, and compares the options last."""
    text, lines, end = job.script.text, job.script.lines, job.script.first_command
    if "\r" in text:
        reason = "sbatch refuses the script (`Batch script contains DOS line breaks`). Run `sed -i 's/\\r$//'` on it"
        yield Finding(text[: text.index("\r")].count("\n") + 1, "dos-lines", f"lines end in CR LF: {reason}")
    if not text.startswith("#!"):
        yield Finding(1, "shebang", "the first line is no `#!/bin/bash`: sbatch refuses the script")
    near = r"\s*#\s*SBATCH\s+-" if not job.script.directives else r"\s+#SBATCH\s"
    if at := next((at for at, line in enumerate(lines[:end], start=1) if re.match(near, line, re.IGNORECASE)), None):
        yield Finding(at, "no-directive", "a comment to sbatch, which reads only lines that begin with `#SBATCH`")
    for at, words in job.script.directives.items():
        if at < end:
            yield from _directive(at, words, ODD.search(lines[at - 1].partition(" #")[0]))
        elif words[:1] == [] or words[0].startswith("-"):
            text = f"#SBATCH stands below the first command (line {end}): sbatch does not read it. Move it up"
            yield Finding(at, "late-option", text)
    yield from _counts(job)


def _directive(line: int, words: list[str], odd: re.Match[str] | None) -> Iterator[Finding]:
    options, rest = read_options(words, SBATCH, line)
    if odd is not None:
        text = f"the character U+{ord(odd[0]):04X} is not the keyboard's: sbatch does not read the option. Type it anew"
        yield Finding(line, "odd-character", text)
    elif rest and all(option.kind for option in options):
        text = f"`{rest[0]}` is no option: sbatch ends with `Invalid directive found in batch script`. Quote a value with spaces"
        yield Finding(line, "stray-word", text)
    else:
        yield from (Finding(line, rule, text) for option in options for rule, is_broken, text in _option(option) if is_broken)


def _option(option: Option) -> Iterator[tuple[str, object, str]]:
    """Rules, whether it breaks them, and what is said then."""
    name, value = option.name, option.value
    instead = None if option.kind else _instead(name.lstrip("-"))
    yield "unknown-option", instead, f"sbatch has no {name}: {instead}"
    is_empty = option.kind == "value" and value in ("None", "False", "null", "", None)
    yield "empty-option", is_empty, f"--{name} has no value (`{value or ''}`): write one, or omit the option"
    text = f"--{name}={value}: sbatch expands no variable. Write the value, or %j, %x, %A for a file's name"
    yield "variable-in-header", re.search(r"\$(\w|\{)", value or "") and name not in ("wrap", "comment"), text


def _instead(name: str) -> str | None:
    """What was meant by an option that sbatch does not have; None of one that a site's plugin may add (`--uenv`)."""
    if name in SRUN:
        return "it is an option of srun, so write it there"
    near = FOREIGN.get(name) or next(iter(difflib.get_close_matches(name, SBATCH, n=1, cutoff=TYPO)), None)
    return near and f"write --{near}"


def _counts(job: Job) -> Iterator[Finding]:
    """What is asked for twice, with different numbers."""
    at = {option.name: option.line for option in job.script.header}
    nodes, per_node, tasks = (number(job.script.get(name), job.layout) for name in ("nodes", "ntasks-per-node", "ntasks"))
    if nodes and per_node and tasks and nodes * per_node != tasks:
        text = f"--ntasks={tasks} is not {nodes} nodes x {per_node} tasks ({nodes * per_node}): write the same number"
        yield Finding(at["ntasks"], "ntasks-twice", text)
    counts = {name: count for name, count in gpu_counts(job.script.get, nodes or 1, job.layout.tasks_per_node).items() if count}
    if len(set(counts.values())) > 1:
        said = " and ".join(f"--{name} for {count}" for name, count in counts.items())
        text = f"GPUs of a node are asked for twice, with different numbers ({said}): ask once"
        yield Finding(max(at[name] for name in counts), "gpus-twice", text)
