"""Findings as text for the terminal and as plain values for scripts."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from hpcddp.analysis.report.table import Table, terminal_forms
from hpcddp.analysis.report.tables import AGAINST, EPOCH, LOSS, plain_effects, scaling_foot
from hpcddp.analysis.report.write import named, plain_rows, with_tokens
from hpcddp.analysis.runs.run import Run, by_reason
from hpcddp.analysis.study.axis_words import leading_sentences
from hpcddp.analysis.study.frames import EXCHANGE
from hpcddp.analysis.study.readings import any_read
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.study.trained import facts_line
from hpcddp.analysis.util.files import Failures
from hpcddp.analysis.util.wording import WIDE
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.analysis.verdicts.verdicts import verdict_lines, verdict_rows
from hpcddp.core.records import PARTS
from hpcddp.core.run_root import spans
from hpcddp.core.text import count, one_line

SCHEMA = 2
"""Of report.json: 1 (0.1.0) as findings_plain says, its times medians over steps; 2: means, named as MEANS says."""

_TIMES = ("step", "step_hook", *PARTS, *EXCHANGE, "h2d_hidden")
MEANS = {f"{name}_s": f"{name}_mean_s" for name in _TIMES}
"""Column of the scaling table -> in report.json, so that nobody takes means for the medians that had the short names."""

AT_MOST, NAMED_AT_MOST = 8, 3
"""Reasons why runs do not count, and names of runs with each; report.json has them all."""

LAWS_AT_MOST = 2

WIDTHS = (WIDE, 80)
"""Characters of a line of prose; longer ones are hard to read, however wide the terminal is."""


def findings_plain(found: Findings, files: Sequence[str]) -> dict[str, Any]:
    """What report.json and `--format json` hold; `files` are relative to the report's folder."""
    done, names = _of_state(found, "counts", "rejected"), full_names(found.apart)
    of_series = {
        "loaders": found.loaders,
        "laws": found.laws,
        "outliers": found.outliers,
        "epochs": found.epochs,
        "to_accuracy": found.targets,
        "readings": found.readings,
    }
    rows: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "verdicts": lambda: verdict_rows(found.verdicts),
        "points": lambda: plain_rows(with_tokens(named(found.scaling, names).rename(columns=MEANS))),
        "limits": lambda: plain_rows(found.limits),
        "collectives": lambda: plain_rows(found.fits),
        **{name: partial(lambda table: plain_rows(named(table, names)), table) for name, table in of_series.items()},
        "effects": lambda: plain_effects(found.effects),
    }
    none: list[dict[str, Any]] = []
    return {
        "schema": SCHEMA,
        "name": found.records.name,
        "scaling": found.kinds,
        "sentences": found.sentences,
        "trained": found.trained,
        "runs": {"done": len(done), "pass": len(_of_state(found, "counts")), "expected": len(found.records.runs)},
        "rejected": [{"run": run.name, "reason": run.reason} for run in _of_state(found, "rejected")],
        "missing": [{"run": run.name, "reason": run.reason} for run in _of_state(found, "missing")],
        **{name: found.failures.contain(f"{name} of report.json", make, none) for name, make in rows.items()},
        "implied": found.implied,
        "notes": found.notes,
        "files": list(files),
        "failures": [{"of": each.of, "reason": each.reason} for each in found.failures],
    }


Block = list[str]
"""A paragraph or a table of the text in all its forms, the widest first; result.StudyResult takes one."""


def to_blocks(found: Findings, folder: Path, tables: Mapping[str, Table]) -> list[Block]:
    """Sentences, verdicts, gates, tables, notes; `folder` is where the study was looked for. One that raises is left out."""

    def texts(lines: Callable[[int], list[str]]) -> Callable[[], list[Block]]:
        return lambda: [["\n".join(lines(width)) for width in WIDTHS]]

    head, sentences = _head(found)
    facts = found.failures.contain("what was trained", lambda: facts_line(found.trained), "")
    parts = {
        "sentences": texts(lambda width: [head, *_wrapped([facts, *sentences], width, indent=0)]),
        "verdicts": texts(lambda width: verdict_lines(found.verdicts, width)),
        "runs": texts(lambda width: _states(found, folder, width)),
        "tables": lambda: _tables(found, tables),
        "effects": texts(lambda width: _wrapped([] if found.is_of_keys else _effects(found), width)),
        "fits": texts(lambda width: _wrapped([f"fit: {text}" for text in found.implied[:LAWS_AT_MOST]], width)),
        "notes": texts(lambda width: _wrapped([f"note: {note}" for note in found.notes], width)),
    }
    none: list[Block] = []
    made = [found.failures.contain(f"{name} on the terminal", make, none) for name, make in parts.items()]
    return [block for blocks in made for block in blocks if block[0]]


def _effects(found: Findings) -> list[str]:
    return [f"effect: {text}" for text in leading_sentences(found.effects)]


def failure_blocks(failures: Failures) -> list[Block]:
    """What failed: of one reason together."""
    texts = [f"failed: {_first(of)}: {reason}" for reason, of in failures.by_reason().items()]
    return [["\n".join(_wrapped(texts, width)) for width in WIDTHS]] if texts else []


def report_blocks(report: Path | None) -> list[Block]:
    """Where the files are."""
    files = "*.csv, *.tex, report.json, figures/*.png, *.svg, *.pdf"
    return [] if report is None else [[f"report: {report / 'index.html'}  (beside it {files})"]]


def _head(found: Findings) -> tuple[str, list[str]]:
    """The first line, and the sentences below it: where no run counts, that is the first thing to know."""
    if found.sentences and not any(run.state == "counts" for run in found.records.runs):
        return f"{found.records.name}: {found.sentences[0]}", found.sentences[1:]
    return ": ".join([found.records.name, *([" and ".join(found.kinds)] if found.kinds else [])]), found.sentences


def _first(names: Sequence[str]) -> str:
    """`scaling.csv, runs.csv, figures/steps and 9 more`"""
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _tables(found: Findings, tables: Mapping[str, Table]) -> list[Block]:
    heads = {
        "training": f"  a training of {_epochs(found)}: training alone, without start, evaluation and checkpoints (means)",
        "accuracy": "  accuracy on all evaluation samples, after so many trained ones (medians of n runs); training loss",
        "time to accuracy": "  time to an accuracy, no evaluations (medians; node h: mean); speedup beside that of samples/s",
        "the step's parts": "  where the step goes, % of it (mean over ranks and steps, middle run)",
        "loaders": "  what was trained and what loaders could give, samples/s; what the loaders' time went into",
        "the exchange": "  how gradients travel: hidden behind other parts, exposed, waited for; bandwidth while they travel",
        "sharding": "  sharded parameters: what of a step ranks wait for, with `measure.comm: on` (medians over runs)",
        "profiled exchange": "  the exchange in profiled steps of the script, with `measure.comm: check` (medians over runs)",
        "limits": "  what limits training, samples/s",
        "collectives": "  collectives (hpcddp bench comm): latency, and bus bandwidth as nccl-tests defines it",
    }
    if found.shown["step_hook_s"].notna().any():
        hook = "from runs with the communication hook where there are any; in brackets what other parts hide"
        heads["the step's parts"] += f"\n  {hook}"
    heads |= _reading_heads(found)
    shown = {name: table for name, table in tables.items() if table.rows}
    none: Block = []
    forms = {
        name: found.failures.contain(f"the table of {name} on the terminal", partial(terminal_forms, table), none)
        for name, table in shown.items()
    }
    shown = {name: table for name, table in shown.items() if forms[name]}
    if "accuracy" in shown:
        forms["accuracy"] += terminal_forms(shown["accuracy"].without(LOSS))
    if "time to accuracy" in shown:
        forms["time to accuracy"] += terminal_forms(shown["time to accuracy"].without(AGAINST))
    answers = [axis.stem for axis in found.effects if axis.stem in shown] if found.is_of_keys else []
    heads = {stem: f"  {shown[stem].title}" for stem in answers} | heads
    blocks = [[f"{head}\n{form}" for form in forms[name]] for name, head in heads.items() if name in shown]
    is_new = "scaling" in shown and not any(len(shown[stem].rows) >= len(shown["scaling"].rows) for stem in answers)
    foot = _wrapped([f"  {text}" for text in scaling_foot(found.shown)], WIDTHS[1], indent=2)
    scaling = ["\n".join([form, *foot]) for form in _scaling(shown["scaling"])] if is_new else []
    return [*blocks[: len(answers)], *([scaling] if scaling else []), *blocks[len(answers) :]]


def _reading_heads(found: Findings) -> dict[str, str]:
    """One table, and only where something was read: of GPUs or, where there are none, of nodes."""
    if not any_read(found.readings):
        return {}
    if (found.readings["device"] == "cpu").all():
        return {"readings of nodes": "  what the nodes did while it trained (index.html has the rest)"}
    on_gpus = "what the GPUs did while it trained, and what of the step waited for data (index.html has the rest)"
    return {"readings of GPUs": f"  {on_gpus}"}


def _scaling(table: Table) -> Block:
    """With the costs of an epoch, where they are known; a form without them says where they are."""
    forms, narrower = terminal_forms(table), terminal_forms(table.without(EPOCH))
    if forms == narrower:
        return forms
    columns = max(map(len, forms[-1].splitlines()))
    note = f"  epoch and node h need {columns} columns; scaling.csv and index.html have them"
    return [*forms, *(f"{form}\n{note}" for form in narrower)]


def _epochs(found: Findings) -> str:
    known = found.shown["train_epochs"].dropna()
    return count(int(known.iloc[0]), "epoch") if len(known) else ""


def _wrapped(texts: Iterable[str], width: int, indent: int = 6) -> list[str]:
    """Lines of that width; what a text goes on with is indented; a number and its % stay together."""
    wrap = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for text in texts for line in wrap.wrap(text.replace(" %", "\0%"))]


def _states(found: Findings, folder: Path, width: int) -> list[str]:
    rejected, missing = _of_state(found, "rejected"), _of_state(found, "missing")
    done = len(found.records.runs) - len(missing)
    lines = [f"gates     {done - len(rejected)} of {done} runs pass"] if done else []
    if not done:
        lines.append(f"no run is done yet; `hpcddp status {shlex.quote(str(folder))}` says what they do")
    return [*lines, *_wrapped([*_listed("rejected", rejected), *_listed("missing", missing)], width, indent=12)]


def _listed(word: str, runs: Sequence[Run]) -> list[str]:
    """A line per reason, the word before the first; the rest only counted."""
    reasons = list(by_reason(runs).items())
    lines = [f"{_some_names(same)}: {reason}" for reason, same in reasons[:AT_MOST]]
    if len(reasons) > AT_MOST:
        lines.append(f"and {sum(len(same) for _, same in reasons[AT_MOST:])} more of {len(runs)}")
    return [f"{word if i == 0 else '':<10}{line}" for i, line in enumerate(lines)]


def _some_names(runs: Sequence[Run]) -> str:
    """`r1-r3 of n01-g4-b32-3fa9c1d2e07b, r5 of n01-g4-b32-3fa9c1d2e07b and 7 more`"""
    by_label = groupby(runs, key=lambda run: run.label)
    stretches = [(label, *span) for label, same in by_label for span in spans(run.run for run in same)]
    names = [
        f"r{first}{'' if first == last else f'-r{last}'} of {one_line(label)}" for label, first, last in stretches[:NAMED_AT_MOST]
    ]
    more = sum(last - first + 1 for _, first, last in stretches[NAMED_AT_MOST:])
    return ", ".join(names) + (f" and {more} more" if more else "")


def _of_state(found: Findings, *states: str) -> list[Run]:
    return [run for run in found.records.runs if run.state in states]
