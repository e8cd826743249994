"""What the analysis says, an example of each from small studies: short and complete, with advice that can be followed."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

from hpcddp.analysis.audit.audit import audits
from hpcddp.analysis.audit.findings import KINDS
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study import comm_bench, fits, readings, scaling
from hpcddp.analysis.study.axis_words import effect_sentences
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts import binding, comm, comparability, gates, notes, steps
from hpcddp.analysis.verdicts.findings import Findings, find
from hpcddp.analysis.verdicts.notes import GROWS
from hpcddp.analysis.verdicts.verdicts import ALL
from hpcddp.core.attempt_records import DamagedFiles
from hpcddp.core.point import Data
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.start_up import StartUp
from tests.analysis.audit import given_tables
from tests.analysis.study.test_accuracy import sized, study
from tests.analysis.study.test_comm_bench import GB, only_bench, operation
from tests.analysis.synthetic import point, write_study
from tests.analysis.verdict_studies import measured, write
from tests.analysis.verdicts.test_input import LIMITS, times
from tests.analysis.verdicts.test_input import study_of as waiting
from tests.analysis.verdicts.test_notes import staged
from tests.analysis.verdicts.test_planted import CAUSES, SIZES, study_of
from tests.analysis.verdicts.test_sentence import NINE, workers, write_rates
from tests.analysis.verdicts.test_verdicts import BY_EVENTS, FAULTS
from tests.test_words import Sentence, plain, split, wrong

pytestmark = pytest.mark.dear

COUNTS: dict[str, Any] = {"label": "n02-g4-b32-3fa9c1d2e07b", "run": 1, "state": "counts"}
NAME = "n01440764/n01440764_18.JPEG (it is no picture)"

ADVICE: Mapping[str, Any] = {
    "unsynchronised ranks": [*gates.UNSYNCHRONISED.values(), gates.OF_SHARDS],
    "shared cores": [binding.UNBIND],
    "communication-bound": [comm.NOT_SPLIT, comm.BY_HAND],
    "contradicting figures": [comparability.ONE_EPOCH, comparability.UNLIKE],
    "out of line with prediction": [*comparability.GREW.values(), comparability.FASTER],
    "burst network": [steps.SUSTAINED],
    "stalls": [*steps.ADVICE.values(), steps.COLLECTING],
    "a finding of an audit": [advice for _, advice in KINDS.values()],
}
"""Of a verdict, what it may advise, in constants: not every one has a study."""


def _hooked(**columns: Any) -> pd.DataFrame:
    row = {"hook": True, "step_hook_s": None, "step_s": 0.1, "breakdown_label": "n02-g4-b32", "n": 1, "interval": None}
    return pd.DataFrame([{**row, **columns}])


SPREAD = pd.DataFrame([{"hook": False, "n": n, "interval": interval} for n, interval in ((3, "range"), (6, "95 %"))])
IDLE = {"data_wait_share": 0.02, "comm_exposed_share": 0.0, "share_of_peak": 0.3}


def _readings() -> pd.DataFrame:
    shares = {"data_wait_share": 0.4, "comm_exposed_share": 0.3, "share_of_peak": 0.02}
    rows = [readings.misleading({"gpu_util_percent": util, **each}) for util, each in ((95.0, shares), (20.0, IDLE))]
    return pd.DataFrame([{"nodes": 2, "gpus_per_node": 4, "misleads": text} for text in rows])


def _checked(closes: bool) -> pd.DataFrame:
    row = {"state": "counts", "comm_check_closes": closes, "comm_check": "the views of the exchange do not agree", **COUNTS}
    return pd.DataFrame([row])


def _laws() -> list[fits.Fitted]:
    fit = fits.fit(fits.GUSTAFSON, {n: [Fraction(rate)] for n, rate in ((1, 100), (2, 70), (4, 300), (8, 200))})
    return [fits.Fitted("a", "node", fit)]


NOTES: Mapping[str, Callable[[], Any]] = {
    "batch_notes": lambda: notes.batch_notes(pd.DataFrame({"series": [json.dumps({GROWS: [3]})]})),
    "hook_notes": lambda: [*notes.hook_notes(_hooked()), *notes.hook_notes(_hooked(hook=False, step_hook_s=0.2))],
    "spread_notes": lambda: [*notes.spread_notes(_hooked()), *notes.spread_notes(SPREAD)],
    "clock_notes": lambda: notes.clock_notes(pd.DataFrame([{"state": "counts", "clock_error_s": 0.01, "step_ns": 1e8}])),
    "window_notes": lambda: notes.window_notes([Run(**COUNTS, windows_apart=(2e8, 2.4e8))] * 3),
    "start_notes": lambda: notes.start_notes(
        [Run(**COUNTS, start_up=StartUp(until_met_s=s, until_first_step_s=s + 9)) for s in (70, 99)]
    ),
    "staging_notes": lambda: [
        *notes.staging_notes([staged(1, 50, 200), staged(2, 50, 250), staged(3, 75, None)]),
        *notes.staging_notes([staged(1, 50, 200), staged(2, 50, None)]),
    ],
    "check_notes": lambda: [*notes.check_notes(_checked(True)), *notes.check_notes(_checked(False))],
    "restart_notes": lambda: notes.restart_notes([Run(**COUNTS, restarts=2, lost_steps=5)]),
    "outlier_notes": lambda: scaling.outlier_notes(pd.DataFrame([{**COUNTS, "percent": -12.0}] * 2)),
    "reading_notes": lambda: readings.reading_notes(_readings()),
    "law_notes": lambda: fits.law_notes(_laws(), {"a": "batch/GPU 64"}),
}
"""Maker of a note -> what it says of a table or of runs made up for it."""

OF_STUDIES = {f"{name}_notes" for name in ("apart", "comm", "damaged", "data", "loader", "network", "preflight", "warmup")}
"""Makers whose notes studies have."""


def _disturbed(folder: Path) -> Study:
    slow, unsteady = (operation(op, 8, 20e-6, 10 * GB) for op in ("all_reduce", "broadcast"))
    for row in slow["sizes"][:2]:
        row.update(dict.fromkeys(("time_s", "time_min_s", "time_max_s"), 3.1e-3))
    unsteady["sizes"][0] |= {"time_s": 25e-6, "time_max_s": 90e-6}
    lacking = {"sizes": [], "left_out": [], "not_supported": "no such thing", "fit": slow["fit"]}
    return only_bench(folder, 2, all_reduce=slow, broadcast=unsteady, reduce_scatter=lacking)


def _trained(folder: Path) -> Study:
    return study(folder, {sized(1): [9_723, 9_722] * 3, sized(2): [9_683, 9_682] * 3})


def _data(folder: Path) -> Study:
    points = {point(1, 1, data=Data(name="digits")): [100], point(1, 2, data=Data(name="digits")): [100]}
    damaged = {"train": encode(DamagedFiles(pictures=9, read=10_000, first=(NAME,)))}
    launch = {"data": {"name": "digits", "samples": 1498, "unofficial": ["a.bin", "b.bin"]}}
    protocol = {"stopped_by": "steps", "warmup_detected_steps": None}
    return measured(folder, points, steps=99, launch=launch, end={"damaged": damaged}, protocol=protocol)


PAIRS = ((1, 32), (1, 64), (8, 32), (8, 64))
"""Workers and batch."""

STUDIES: Mapping[str, Callable[[Path], Study]] = {
    "collectives": _disturbed,
    "accuracy": _trained,
    "unlike trainings": lambda folder: study(
        folder, {point(1, gpus, evaluate=True): [9_000 + gpus] for gpus in (1, 4)}, hold="batch_per_gpu"
    ),
    "data": _data,
    "a key": lambda folder: write_rates(folder, {workers(number): rate for number, rate in NINE.items()}),
    "a key in blocks": lambda folder: write_rates(folder, {workers(n): 300 for n in (1, 2)}, blocks=True, drift=0.06),
    "a key, one run": lambda folder: write_rates(folder, {workers(1): 200, workers(2): 300}, runs=1),
    "two keys": lambda folder: write_rates(
        folder,
        {workers(n, batch_per_gpu=batch): rate for (n, batch), rate in zip(PAIRS, (300, 306, 400, 560), strict=True)},
    ),
    "a rejected baseline": lambda folder: measured(folder, {point(2, 1): [100], point(4, 1): [100]}),
    "no run": lambda folder: write_study(folder, [point(1, 1)]),
}


def studies(folder: Path) -> Iterator[tuple[str, Findings]]:
    """Name, and what is found of it: studies with every verdict, with sentences on keys, accuracy and collectives, with notes."""
    for name, (model, _) in FAULTS.items():
        yield name, find(load_study(write(model, folder / name)))
    for name, plan in ((name, plan) for name, ((verdict, _), plan) in CAUSES.items() if verdict in BY_EVENTS):
        yield name, study_of(folder / f"planted {name}", plan, SIZES[0], seed=len(name))[1]
    for name, make in STUDIES.items():
        yield name, find(load_study(make(folder / name.replace(" ", "-"))))
    for i, (loader, given, *_) in enumerate(LIMITS):
        yield f"loaders {i}", waiting(folder / f"loaders-{i}", replace(loader, prefetch_cut="each reads 1 ahead"), **given)
    yield "more workers than CPUs", waiting(folder / "crowded", times(12), cpus=8)


def said_of(found: Findings) -> Iterator[tuple[str, str]]:
    """(place, text): `evidence of stalls`, `advice of stalls`, `sentence`, `note`, `effect`, `law`."""
    for verdict in found.verdicts:
        yield f"evidence of {verdict.name}", verdict.evidence
        yield f"advice of {verdict.name}", verdict.advice
    yield from (("sentence", text) for text in found.sentences)
    yield from (("effect", text) for axis in found.effects for text in effect_sentences(axis))
    yield from (("law", text) for text in found.implied)
    yield from (("note", text) for text in found.notes)


def analysis_sentences() -> Iterator[tuple[str, str]]:
    """(place, example), one of texts that differ in numbers and names alone. Makes some seventy small studies for it."""
    shown = set[tuple[str, str]]()
    for place, text in _all_texts():
        key = place, re.sub(r"[\w.,-]*\d[\w.,-]*", "0", text)
        if key not in shown:
            shown.add(key)
            yield place, text


def _all_texts() -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for _, found in studies(Path(folder)):
            yield from said_of(found)
        yield from _audited(Path(folder) / "table.csv")
    yield from ((f"advice of {name}", text_of(each)) for name, found in ADVICE.items() for each in found)
    yield from ((f"note of {name}", text_of(each)) for name, make in NOTES.items() for each in make())


def _audited(file: Path) -> Iterator[tuple[str, str]]:
    for plant in given_tables.FAULTS.values():
        table, _ = plant(Random(1))
        for each in (each for audit in audits(table.write(file)) for each in audit.findings):
            yield f"finding {each.kind}", f"Line {each.lines[0]}: {each.sentence}."


def text_of(advice: Any) -> str:
    """With settings as a sweep has them."""
    pieces = [advice] if isinstance(advice, str) else advice
    return "".join(piece if isinstance(piece, str) else _settings(piece.values) for piece in pieces)


def _settings(values: Mapping[str, object]) -> str:
    return f"`{' '.join(f'--set {key}={value}' for key, value in values.items())}`"


VERBS = re.compile(
    "Add|Ask|Average|Bind|Call|Change|Check|Compare|Compute|Copy|Delete|Do|Exchange|Exclude|Find|Fix|Follow|Gather|Give|Halve|Hold|"
    "Install|Keep|Lengthen|Let|Load|Look|Lower|Make|Mark|Measure|Name|Pack|Raise|Read|Record|Remove|Repeat|Request|Resolve|Run|"
    "Send|Separate|Start|State|Stop|Submit|Time|Train|Use|Write"
)
"""With which advice begins."""

VAGUE = re.compile(r"pass(es)? on\b|do(es)? not count|not known|says\b")
"""What other rooms may say, of scripts, of Slurm and of columns."""


@pytest.fixture(scope="module")
def texts() -> Sequence[tuple[str, str]]:
    return list(analysis_sentences())


def test_each_verdict_and_each_note_has_an_example(texts: Sequence[tuple[str, str]]) -> None:
    places = {place for place, _ in texts}
    makers = {name for module in (notes, gates, comm_bench, readings, fits, scaling) for name in vars(module) if "_notes" in name}
    assert makers == {*NOTES, *OF_STUDIES}
    assert {
        *(f"{part} of {name}" for name in ALL for part in ("evidence", "advice")),
        *(f"note of {name}" for name in NOTES),
    } <= places


def test_sentences_are_short_and_complete(texts: Sequence[tuple[str, str]]) -> None:
    found = [Sentence(place, each) for place, text in texts for each in split(text.replace(NAME, "a.JPEG"))]
    assert [str(each) for each in found if wrong(each) or VAGUE.search(plain(each.text))] == []
    assert [text for _, text in texts if not re.match(r"[A-Z0-9`]|\S*\d", text) or not text.endswith(".")] == []


def test_advice_begins_with_a_verb_or_a_command(texts: Sequence[tuple[str, str]]) -> None:
    advice = [text for place, text in texts if place.startswith("advice of ")]
    assert [text for text in advice if not VERBS.fullmatch(text.split()[0]) and text[0] != "`"] == []
