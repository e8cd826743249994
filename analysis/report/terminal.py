"""Findings as text for the terminal and as plain values for scripts."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from hpcddp.analysis.report.result import WIDTHS
from hpcddp.analysis.report.table import Table, terminal_forms
from hpcddp.analysis.report.tables import AGAINST, EPOCH, LOSS, plain_effects, scaling_foot
from hpcddp.analysis.report.write import named, plain_rows, without_unknown
from hpcddp.analysis.runs.run import Run, by_reason
from hpcddp.analysis.study.axes import OF_EFFECTS
from hpcddp.analysis.study.axis_words import leading_sentences
from hpcddp.analysis.study.frames import EXCHANGE
from hpcddp.analysis.study.readings import any_read
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.study.trained import facts_line
from hpcddp.analysis.util.wording import WIDE
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.analysis.verdicts.verdicts import verdict_lines, verdict_rows
from hpcddp.core.records import PARTS
from hpcddp.core.run_root import spans
from hpcddp.core.text import first_few, one_line

SCHEMA = 2
"""Of report.json: 1 (0.1.0) as findings_plain says, its times medians over steps; 2: means, named as MEANS says."""

_TIMES = ("step", "step_hook", *PARTS, *EXCHANGE, "h2d_hidden")
MEANS = {f"{name}_s": f"{name}_mean_s" for name in _TIMES}
"""Column of the scaling table -> in report.json, so that nobody takes means for the medians that had the short names."""

AT_MOST, NAMED_AT_MOST = 8, 3
"""Reasons why runs do not count, and names of runs with each; report.json has them all."""

LAWS_AT_MOST = 2


def findings_plain(found: Findings, files: Sequence[str]) -> dict[str, Any]:
    """What report.json and `--format json` hold; `files` are relative to the report's folder."""
    done, names = _of_state(found, "counts", "rejected"), full_names(found.apart)
    rows: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "verdicts": lambda: verdict_rows(found.verdicts),
        "points": lambda: plain_rows(without_unknown(named(found.scaling, names).rename(columns=MEANS))),
        "limits": lambda: plain_rows(found.limits),
        "collectives": lambda: plain_rows(found.fits),
        "loaders": lambda: plain_rows(named(found.loaders, names)),
        "laws": lambda: plain_rows(named(found.laws, names)),
        "outliers": lambda: plain_rows(named(found.outliers, names)),
        "epochs": lambda: plain_rows(named(found.epochs, names)),
        "to_accuracy": lambda: plain_rows(named(found.targets, names)),
        "readings": lambda: plain_rows(named(found.readings, names)),
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


def full_texts(found: Findings, folder: Path, tables: Mapping[str, Table], end: Sequence[str]) -> tuple[str, ...]:
    """Sentences, verdicts, checks, tables and notes, then what failed and `end`, for each of WIDTHS; `folder` is where the study
    was looked for. A part that raises is left out."""
    contain, none = found.failures.contain, [""] * len(WIDTHS)
    facts = contain("what was trained", lambda: facts_line(found.trained), "")
    head, sentences = _head(found)
    shown = contain("tables on the terminal", lambda: _shown(found, tables), list[str]())
    parts: dict[str, Callable[[], list[str]]] = {
        "sentences": lambda: _of_all_widths(lambda width: [head, *_wrapped([facts, *sentences], width, indent=0)]),
        "verdicts": lambda: _of_all_widths(lambda width: verdict_lines(found.verdicts, width)),
        "runs": lambda: _of_all_widths(lambda width: _states(found, folder, width)),
        **{f"the table of {name}": partial(_table_forms, name, tables[name], found) for name in shown},
        "effects": lambda: _listed_as("effect", [] if found.is_of_keys else leading_sentences(found.effects)),
        "fits": lambda: _listed_as("fit", found.implied[:LAWS_AT_MOST]),
        "notes": lambda: _listed_as("note", found.notes),
    }
    blocks = [contain(f"{name} on the terminal", make, none) for name, make in parts.items()]
    failed = [f"{first_few(of, NAMED_AT_MOST)}: {reason}" for reason, of in found.failures.by_reason().items()]
    blocks += [_listed_as("failed", failed), *([text] * len(WIDTHS) for text in end)]
    return tuple("\n\n".join(filter(None, texts)) for texts in zip(*blocks, strict=True))


def _listed_as(word: str, texts: Sequence[str]) -> list[str]:
    return _of_all_widths(lambda width: _wrapped([f"{word}: {text}" for text in texts], width))


def _of_all_widths(lines: Callable[[int], Iterable[str]]) -> list[str]:
    return ["\n".join(lines(min(width, WIDE))) for width in WIDTHS]


def _head(found: Findings) -> tuple[str, list[str]]:
    """The first line, and the sentences below it: where no run counts, that is the first thing to know."""
    if found.sentences and not any(run.state == "counts" for run in found.records.runs):
        return f"{found.records.name}: {found.sentences[0]}", found.sentences[1:]
    return ": ".join([found.records.name, *([" and ".join(found.kinds)] if found.kinds else [])]), found.sentences


NARROWER = {"scaling": EPOCH, "accuracy": LOSS, "time to accuracy": AGAINST}
"""Table -> heading of the columns that narrow terminals do without; the page has them."""

ON_PAGE = ("losses", "bindings", "preflight", "laws")
"""Tables that the page alone has."""


def _shown(found: Findings, tables: Mapping[str, Table]) -> list[str]:
    """Their names. Of readings those of GPUs or, where there are none, of nodes; no points twice where keys are the subject."""
    left = {*ON_PAGE, "readings of GPUs" if (found.readings["device"] == "cpu").all() else "readings of nodes"}
    if not any_read(found.readings):
        left |= {"readings of GPUs", "readings of nodes"}
    keys = [axis.stem for axis in found.effects]
    if not found.is_of_keys:
        left |= set(keys)
    elif any(len(tables[stem].rows) >= len(tables["scaling"].rows) for stem in keys if stem in tables and "scaling" in tables):
        left.add("scaling")
    return [name for name, table in tables.items() if table.rows and name not in left]


def _table_forms(name: str, table: Table, found: Findings) -> list[str]:
    """For each of WIDTHS the first form that fits, below the title and the first sentence of its note; or the last."""
    forms = [*terminal_forms(table), *(terminal_forms(table.without(NARROWER[name])) if name in NARROWER else [])]
    head = table.title if name.startswith(OF_EFFECTS) else f"{table.title}. {table.note.partition('. ')[0].removesuffix('.')}."
    foot = scaling_foot(found.shown) if name == "scaling" else []

    def text(width: int) -> str:
        form = next((form for form in forms if max(map(len, form.splitlines())) <= width), forms[-1])
        return "\n".join([*_prose([head], width), form, *_prose(foot, WIDTHS[-1])])

    return [text(width) for width in WIDTHS]


def _prose(texts: Iterable[str], width: int) -> list[str]:
    return _wrapped([f"  {text}" for text in texts], min(width, WIDE), indent=2)


def _wrapped(texts: Iterable[str], width: int, indent: int = 6) -> list[str]:
    """Lines of that width; what a text goes on with is indented; a number and its % stay together."""
    wrap = textwrap.TextWrapper(width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\0", " ") for text in texts for line in wrap.wrap(text.replace(" %", "\0%"))]


def _states(found: Findings, folder: Path, width: int) -> list[str]:
    rejected, missing = _of_state(found, "rejected"), _of_state(found, "missing")
    done = len(found.records.runs) - len(missing)
    lines = [f"checks    {done - len(rejected)} of {done} runs pass"] if done else []
    if not done:
        lines.append(f"no run has finished; `hpcddp status {shlex.quote(str(folder))}` shows their states")
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
