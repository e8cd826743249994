"""Rules about the header of a job script: what sbatch refuses, does not read, or reads otherwise than it was meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from hpcddp.script.findings import Finding
from hpcddp.script.job_launch import Job, gpu_counts
from hpcddp.script.job_text import HETEROGENEOUS, Option, read_options
from hpcddp.script.option_table import EXCLUSIVE, FOREIGN, SBATCH, SRUN

TYPO = 0.8
"""Likeness of two names (difflib) from which one is the other mistyped: --gpu-per-node is 0.96, a plugin's --uenv below 0.5."""

ODD = re.compile("[\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff\u2010-\u2015\u2212\u2018-\u201d]")
"""Spaces, dashes and quotes of word processors and web pages, which look like those of the keyboard."""


def file_form(job: Job) -> Iterator[Finding]:
    """sbatch looks at the whole file before it reads an option."""
    text = job.script.text
    if "\r" in text:
        first = text[: text.index("\r")].count("\n") + 1
        reason = "sbatch refuses the script (`Batch script contains DOS line breaks`). Run `sed -i 's/\\r$//'` on it"
        yield Finding(first, "dos-lines", f"lines end in CR LF: {reason}")
    if not text.startswith("#!"):
        yield Finding(1, "shebang", "the first line is no `#!/bin/bash`: sbatch refuses the script")
    near = r"\s*#\s*SBATCH\s+-" if not job.script.directives else r"\s+#SBATCH\s"
    for at, line in enumerate(job.script.lines[: job.script.first_command], start=1):
        if re.match(near, line, re.IGNORECASE):
            yield Finding(at, "no-directive", "a comment to sbatch, which reads only lines that begin with `#SBATCH`")
            return


def words_of_directives(job: Job) -> Iterator[Finding]:
    """What makes sbatch end before the job is queued, and lines that it never reads."""
    for line, words in job.script.directives.items():
        directive = job.script.lines[line - 1]
        odd = ODD.search(directive.partition(" #")[0])
        if line > job.script.first_command:
            if not words or words[0].startswith("-"):
                above = f"the first command (line {job.script.first_command})"
                yield Finding(line, "late-option", f"#SBATCH stands below {above}: sbatch does not read it. Move it up")
        elif odd is not None:
            text = f"the character U+{ord(odd[0]):04X} is not the keyboard's: sbatch does not read the option. Type it anew"
            yield Finding(line, "odd-character", text)
        elif words is None:
            yield Finding(line, "open-quote", "a quote is not closed: sbatch refuses the line. Close it")
        elif words not in HETEROGENEOUS:
            yield from _faults(line, words)


def _faults(line: int, words: list[str]) -> Iterator[Finding]:
    options, rest = read_options(words, SBATCH, line)
    unknown = next((option.name for option in options if option.kind is None), None)
    if unknown is not None:
        if instead := _instead(unknown.lstrip("-")):
            yield Finding(line, "unknown-option", f"sbatch has no {unknown}: {instead}")
        return
    if rest:
        text = f"`{rest[0]}` is no option: sbatch ends with `Invalid directive found in batch script`. Quote a value with spaces"
        yield Finding(line, "stray-word", text)
        return
    for option in options:
        if option.value in ("None", "False", "null", "") or (option.kind == "value" and option.value is None):
            text = f"--{option.name} has no value (`{option.value or ''}`): write one, or omit the option"
            yield Finding(line, "empty-option", text)
        elif option.kind == "none" and option.value is not None:
            yield Finding(line, "unknown-option", f"--{option.name} takes no value: write --{option.name} alone")
        elif re.search(r"\$(\w|\{)", option.value or "") and option.name not in ("wrap", "comment"):
            text = f"--{option.name}={option.value}: sbatch expands no variable. Write the value, or %j, %x, %A for a file's name"
            yield Finding(line, "variable-in-header", text)


def _instead(name: str) -> str | None:
    """What was meant by an option that sbatch does not have; None of one that a site's plugin may add (`--uenv`)."""
    if name in SRUN and name not in SBATCH:
        return "it is an option of srun, so write it there"
    near = FOREIGN.get(name) or next(iter(difflib.get_close_matches(name, SBATCH, n=1, cutoff=TYPO)), None)
    return near and f"write --{near}"


def contradictions(job: Job) -> Iterator[Finding]:
    """Options that exclude or contradict each other."""
    by_name = dict[str, Option]()
    for option in job.script.header:
        before = by_name.get(option.name)
        if before is not None and before.value != option.value and option.name != "mail-type":
            text = f"--{option.name} is in line {before.line} already with another value: sbatch takes the last one. Omit one"
            yield Finding(option.line, "repeated-option", text)
        by_name[option.name] = option
    for names in EXCLUSIVE:
        beside = [name for name in names if name in by_name]
        if len(beside) > 1 and (names[0] != "hint" or job.script.get("hint") == "nomultithread"):
            text = f"--{beside[0]} and --{beside[1]} exclude each other: sbatch refuses the job. Omit one"
            yield Finding(by_name[beside[1]].line, "exclusive-options", text)
    yield from _counts(job, by_name)


def _counts(job: Job, by_name: dict[str, Option]) -> Iterator[Finding]:
    nodes, per_node, tasks = (_number(by_name.get(name)) for name in ("nodes", "ntasks-per-node", "ntasks"))
    if nodes and per_node and tasks and nodes * per_node != tasks:
        text = f"--ntasks={tasks} is not {nodes} nodes x {per_node} tasks ({nodes * per_node}): write the same number"
        yield Finding(by_name["ntasks"].line, "ntasks-twice", text)
    counts = gpu_counts(job.script.get, nodes or 1, job.layout.tasks_per_node)
    for name, count in counts.items():
        if count == 0 or (re.search(r"(^|gpu|:)$", job.script.get(name) or "") and name != "gres"):
            yield Finding(by_name[name].line, "no-gpus", f"--{name} asks for no GPU: write their number")
    known = {name: count for name, count in counts.items() if count}
    if len(set(known.values())) > 1:
        said = " and ".join(f"--{name} for {count}" for name, count in known.items())
        text = f"GPUs of a node are asked for twice, with different numbers ({said}): ask once"
        yield Finding(max(by_name[name].line for name in known), "gpus-twice", text)


def _number(option: Option | None) -> int | None:
    value = (option.value or "") if option is not None else ""
    return int(value) if value.isdecimal() else None


HEADER_RULES = (file_form, words_of_directives, contradictions)
