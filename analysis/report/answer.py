"""What the first screen says of a study, on terminal and page: what was trained, what limits it, and what to do next."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hpcddp.analysis.study.trained import facts_line
from hpcddp.analysis.util.wording import percent
from hpcddp.analysis.verdicts.context import Verdict
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.analysis.verdicts.verdicts import DOUBTS, doubts
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count

LETTERS = 72
"""Characters of a line beside its name on a terminal of 80 columns."""

_ASIDE = re.compile(r" \([^()]*\)")
_END = re.compile(r"[.;] |, then |\.$")
_SUBMIT = "hpcddp submit SWEEP.yaml"
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
    verdict: str
    """The name of the weightiest verdict that is no doubt, if any, or of the weightiest one."""
    why: str
    """`communication-bound at 2x4 and 4x4: 38-41 % of the step`: what that verdict says."""
    next_step: str
    """What it advises: a command or one sentence."""
    trust: str
    """`12 of 12 runs pass; 3 runs each: ranges (6 give intervals)`, and what leaves the numbers open."""


def answer_of(found: Findings, folder: Path) -> Answer:
    """`folder`: where the study was looked for. Parts that raise an error are empty, and noted as failed."""
    weightiest = next((each for each in found.verdicts if each.name not in DOUBTS), next(iter(found.verdicts), None))
    contain = found.failures.contain
    return Answer(
        trained=contain("what was trained, in a line", lambda: facts_line(found.trained), ""),
        kind=" and ".join(dict.fromkeys(kind.partition(" scaling")[0] for kind in found.kinds)),
        limits=found.limited_by,
        verdict=weightiest.name if weightiest else "",
        why=_why(weightiest) if weightiest else "",
        next_step=_next_step(found, weightiest, folder),
        trust=contain("how far to trust it", lambda: _trust(found, weightiest), ""),
    )


def _why(verdict: Verdict) -> str:
    """As much as a line holds: its brief, or its evidence to the first full stop or comma, or without where it is; no runs."""
    evidence = _ASIDE.sub("", verdict.evidence)
    for run in verdict.runs:
        evidence = evidence.replace(f" of {run}", "")
    first = verdict.brief or _END.split(evidence)[0]
    first = first if re.match("[A-Z]{2}", first) else first[:1].lower() + first[1:]
    heads = (f"{verdict.name} {verdict.where}", verdict.name)
    texts = [f"{head}: {text}" for head in heads for text in (first, first.split(", ")[0])]
    brief = f"{verdict.name}: {DOUBTS[verdict.name]}" if verdict.name in DOUBTS else texts[-1]
    return next((text for text in texts if len(text) <= LETTERS), brief)


def _next_step(found: Findings, weightiest: Verdict | None, folder: Path) -> str:
    if not any(run.state != "missing" for run in found.records.runs):
        return f"hpcddp status {shlex.quote(str(folder))}"
    if weightiest is None:
        few = len(found.shown) and int(found.shown["n"].min()) < FEWEST
        return f"{_SUBMIT} --set repeat={FEWEST}" if few else ""
    advice = _END.split(weightiest.advice)[0]
    command = _COMMAND.search(weightiest.advice)
    text = command[1] if command else ""
    text = f"{_SUBMIT} {text}" if text.startswith("--") else text
    says_all = command and (len(advice) > LETTERS or command.start() == 0 or advice.endswith(f"`{text}`"))
    return text if says_all and len(text) <= LETTERS else advice[:1].upper() + advice[1:]


def _trust(found: Findings, weightiest: Verdict | None) -> str:
    """As many doubts as a line holds; that the weightiest verdict is one is said before."""
    runs = found.records.runs
    done, missing = (sum((run.state == "missing") is absent for run in runs) for absent in (False, True))
    if not done:
        return f"no run of {len(runs)} has finished"
    passing = sum(run.state == "counts" for run in runs)
    text = f"{passing} of {done} runs pass{f', {missing} missing' if missing else ''}"
    left = doubts([verdict for verdict in found.verdicts if weightiest is None or verdict.name != weightiest.name], runs)
    text += f"; {_spread(found.shown)}" if len(found.shown) else ""
    hint = f" ({FEWEST} give intervals)"
    if not left and text.endswith(("ranges", "no spread")) and len(text + hint) <= LETTERS:
        return text + hint
    while left and len(text) + len(left[0]) + len("; " + "; 9 more doubts" * bool(left[1:])) <= LETTERS:
        text += f"; {left.pop(0)}"
    return f"{text}; {count(len(left), 'more doubt')}" if left else text


def _spread(points: pd.DataFrame) -> str:
    """`3 runs each: ranges`; `95 % intervals within 2 %`, half of the widest."""
    few, most = int(points["n"].min()), int(points["n"].max())
    if few >= FEWEST:
        width = float(((points["samples_per_s_high"] - points["samples_per_s_low"]) / 2 / points["samples_per_s"]).max())
        return f"95 % intervals within {percent(width) if width >= 0.1 else f'{100 * width:.1f} %'}"
    each = count(few, "run") if few == most else f"{few} to {most} runs"
    return f"{each} each: {'ranges' if few > 1 else 'no spread'}"
