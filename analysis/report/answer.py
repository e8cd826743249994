"""What the first screen says of a study, on terminal and page: what was trained, what limits it, and what to do next."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from hpcddp.analysis.study.trained import facts_line
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.analysis.verdicts.verdicts import doubts
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count

LETTERS = 72
"""Characters of a line beside its name on a terminal of 80 columns."""

_ASIDE = re.compile(r" \([^()]*\)")
_OF_STEP = re.compile(r"[\d.-]+ % of the step")
_END = re.compile(r"[.;] |, then |\.$")
_COMMAND = re.compile(r"`((?:hpcddp |--)[^`]*)`")


@dataclass(frozen=True)
class Answer:
    """Each text is one line; empty where there is nothing to say."""

    trained: str
    """`resnet50 on imagenet, batch 64/GPU, fp32, A100, leonardo`"""
    kind: str
    """`weak`, `strong`; `effect of workers on 4 GPUs`"""
    limits: tuple[str, ...]
    """What holds back each row of Findings.shown most, such as `exchange`; empty where nothing is known to."""
    why: str
    """`communication-bound at 2x4 and 4x4: 38-41 % of the step`: the weightiest verdict."""
    next_step: str
    """What it advises: a command or one sentence."""
    trust: str
    """`12 of 12 runs pass; 3 runs each: ranges (6 give intervals)`, and what leaves the numbers open."""


def answer_of(found: Findings, folder: Path) -> Answer:
    """`folder`: where the study was looked for. Parts that raise an error are empty, and noted as failed."""
    weightiest = found.verdicts[0] if found.verdicts else None
    contain = found.failures.contain
    return Answer(
        trained=contain("what was trained, in a line", lambda: facts_line(found.trained), ""),
        kind=" and ".join(kind.partition(" scaling")[0] for kind in found.kinds),
        limits=found.limited_by,
        why=_why(weightiest) if weightiest else "",
        next_step=_next_step(found, weightiest, folder),
        trust=contain("how far to trust it", lambda: _trust(found, weightiest), ""),
    )


def _why(verdict: Verdict) -> str:
    """Its evidence as far as the first full stop, without runs: --full and the page have all of it."""
    evidence = _ASIDE.sub("", verdict.evidence)
    for run in verdict.runs:
        evidence = evidence.replace(f" of {run}", "")
    share = _OF_STEP.match(evidence)
    return f"{verdict.name} {verdict.where}: {share[0] if share else _END.split(evidence)[0]}"


def _next_step(found: Findings, weightiest: Verdict | None, folder: Path) -> str:
    if not any(run.state != "missing" for run in found.records.runs):
        return f"hpcddp status {shlex.quote(str(folder))}"
    if weightiest is None:
        few = len(found.shown) and int(found.shown["n"].min()) < FEWEST
        return f"--set repeat={FEWEST}" if few else ""
    advice = _END.split(weightiest.advice)[0]
    command = _COMMAND.search(weightiest.advice)
    return command[1] if command and (len(advice) > LETTERS or command.start() == 0) else advice[:1].upper() + advice[1:]


def _trust(found: Findings, weightiest: Verdict | None) -> str:
    others = [verdict for verdict in found.verdicts if weightiest is None or verdict.name != weightiest.name]
    runs = found.records.runs
    done, missing = (sum((run.state == "missing") is absent for run in runs) for absent in (False, True))
    passing = sum(run.state == "counts" for run in runs)
    parts = [f"{passing} of {count(done, 'run')} pass" if done else f"no run of {len(runs)} has finished"]
    parts[0] += f", {missing} missing" if done and missing else ""
    return "; ".join([*parts, *([_spread(found)] if len(found.shown) else []), *doubts(others, runs)])


def _spread(found: Findings) -> str:
    """`3 runs each: ranges (6 give intervals)`; `95 % intervals within 2 %`, half of the widest."""
    few, most = (int(found.shown["n"].agg(pick)) for pick in ("min", "max"))
    if few >= FEWEST:
        ends = (found.shown[f"samples_per_s_{end}"] for end in ("high", "low"))
        width = float(((next(ends) - next(ends)) / 2 / found.shown["samples_per_s"]).max())
        return f"95 % intervals within {percent(width) if width >= 0.1 else f'{100 * width:.1f} %'}"
    each = count(few, "run") if few == most else f"{few} to {most} runs"
    return f"{each} each: {'ranges' if few > 1 else 'no spread'} ({FEWEST} give intervals)"
