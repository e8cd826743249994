"""Faults as people make them, each planted in a clone of what is committed: `make mutants` says which ones the tests find.

Its tests are those of its module's room in tests/, without those on a Slurm, soaks, and those that time themselves.
`python -m tests.mutants NAME...` plants those whose file has one of these words in its path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ALL = "not slurm and not soak and not timed and not gpu"
CHOSEN = (f"{ALL} and not dear", f"{ALL} and dear")
"""Those that take long come last."""

LIMIT_S = 120
"""Of a test: one that hangs finds its fault."""


LARGE = ("worker",)
"""Rooms of whose tests only those of the module and those that import it are run."""

ALSO = {"study": "submit", "analysis/records": "analysis/runs"}
"""Room -> another one whose tests are its own as well."""


class Change(NamedTuple):
    """The text `right`, which the file has once, becomes `wrong`; `why`: how a user would meet it."""

    right: str
    wrong: str
    why: str


FAULTS = {
    "templates/base.sh.j2": [
        Change(
            "export {{ name }}={{ value | word }}\n{% endfor %}\n{% for name, value, source",
            "export {{ name }}={{ value }}\n{% endfor %}\n{% for name, value, source",
            "a profile's variable with a space or `$` is cut or expanded",
        ),
        Change(
            "checked module load {{ name | word }}",
            "checked module load {{ name }}",
            "a module named `cuda/12 (gcc)` ends the script with a syntax error",
        ),
        Change("--mem={{ request.mem_mb }}M", "--mem={{ request.mem_mb }}G", "Slurm refuses every job for its memory"),
        Change(
            '{{ "B:" if launch.steps else "" }}USR2',
            '{{ "" if launch.steps else "B:" }}USR2',
            "no rank is told to write its checkpoint",
        ),
    ],
    "hpcddp/script/rank_environment.py": [
        Change(
            'own = [f"  export {name}={shlex.quote(value)}"',
            'own = [f"  export {name}={value}"',
            "a study's own variable with a space is cut",
        ),
        Change("when.fabric.lower() in fabric.lower()", "when.fabric in fabric.lower()", "the rules for RoCEv2 apply nowhere"),
    ],
    "hpcddp/script/queues.py": [
        Change("mb_per_core * cores // nodes", "mb_per_core * cores", "a node is asked for the memory of all nodes"),
        Change(
            "gpus=nodes * request.gpus_per_node,",
            "gpus=request.gpus_per_node,",
            "a job beyond the QOS's GPUs is sent and waits for ever",
        ),
        Change(
            "nodes >= (limits.min_nodes or 1)", "nodes > (limits.min_nodes or 0)", "a job of exactly the fewest nodes is refused"
        ),
    ],
    "hpcddp/script/resources.py": [
        Change(
            "min(WARNING_S, walltime_min * 15)",
            "max(WARNING_S, walltime_min * 15)",
            "a short job is told to stop before it began",
        ),
        Change(
            "node.memory_mb * cores // node.physical_cores", "node.memory_mb // cores", "half a node is given too little memory"
        ),
        Change(
            "return Hours(node=node, gpu=node * request.gpus_counted)",
            "return Hours(node=node, gpu=request.gpus_counted)",
            "a budget of GPU hours is overdrawn",
        ),
    ],
    "hpcddp/sweep/expand.py": [
        Change(
            "share = workload.global_batch // gpus",
            "share = workload.global_batch // sweep.layout.nodes",
            "strong scaling trains the wrong batch",
        ),
        Change("workers = max(1, cores - 1)", "workers = max(1, cores)", "`auto` workers take the core of the rank"),
        Change(
            '"interval_percent": measure.stop != "interval"',
            '"interval_percent": measure.stop == "interval"',
            "points that differ in nothing have two ids",
        ),
    ],
    "hpcddp/core/epoch_plan.py": [
        Change(
            "divmod(step - phase.step, phase.steps_per_epoch)",
            "divmod(step, phase.steps_per_epoch)",
            "epochs after the batch grew are miscounted",
        ),
        Change("if phase.step > step), None)", "if phase.step >= step), None)", "the interval of a run is taken over nothing"),
    ],
    "hpcddp/core/lock.py": [
        Change("RENEW_EVERY_S = 10.0", "RENEW_EVERY_S = 70.0", "another login node takes the lock of a living submission over"),
        Change("alive is None and silent_s < STALE_S", "alive is None", "a lock of a lost login node is held for ever"),
        Change("file.hardlink_to(aside)", "file.write_bytes(aside.read_bytes())", "two processes hold the lock"),
        Change(
            'None if state in "ZX" else int(rest[18])',
            "int(rest[18])",
            "a killed command holds the lock as long as its parent lives",
        ),
    ],
    "hpcddp/core/records.py": [
        Change("aside.replace(file)", "file.write_bytes(aside.read_bytes())", "a reader sees half a record"),
        Change(
            "        with contextlib.suppress(OSError):\n            aside.unlink(missing_ok=True)\n        raise",
            "        raise",
            "a full disk is filled with temporary files",
        ),
    ],
    "hpcddp/study/submission_log.py": [
        Change(
            "append(self._study, [intent for intents in new.values() for intent in intents])",
            "pass",
            "a job whose submission was cut is sent twice",
        ),
        Change(
            "            append(self._study, [intent for",
            "            with contextlib.suppress(OSError, HpcddpError):\n              append(self._study, [intent for",
            "on a full disk jobs are sent that no line knows",
        ),
        Change('content[: content.rfind(b"\\n") + 1]', "content", "a torn line makes the study unreadable"),
        Change(
            "for intent, job in jobs]",
            "for intent, job in jobs[1:]]",
            "the first run of an interrupted submission stays in doubt",
        ),
    ],
    "hpcddp/backends/slurm_recovery.py": [
        Change(
            "row.name == name and Path(row.workdir).name == folder",
            "row.name == name",
            "another study's job of the same name is taken for one's own",
        ),
        Change(
            "        time.sleep(SEARCH_AGAIN_S)\n        found =",
            "        found = None and",
            "a job that a restarted controller shows late is sent again",
        ),
    ],
    "hpcddp/backends/slurm_states.py": [
        Change(
            "if row is not None and row.state in QUEUED:",
            "if row is not None and row.state in RUNNING and False:",
            "a waiting job is told as ended",
        ),
    ],
    "hpcddp/study/used_hours.py": [
        Change("nodes * left_s / 3600", "left_s / 3600", "hours to come are told for one node"),
        Change("max(0, ended_ns - started_ns) / 3.6e12", "(ended_ns - started_ns) / 3.6e12", "clocks that step give hours back"),
    ],
    "hpcddp/submit/budget.py": [
        Change(
            "self.budget.holds(self.used + self.waiting + more)",
            "self.budget.holds(self.used + more)",
            "runs that wait count in no budget",
        ),
    ],
    "hpcddp/worker/timing/steptimer.py": [
        Change(
            "total_ns = between_ns(first, previous) - paused_ns",
            "total_ns = between_ns(first, previous)",
            "evaluations count as steps",
        ),
        Change(
            "row[column] = (row[column] or 0) + part_ns",
            "row[column] = part_ns",
            "of accumulated batches the last one counts alone",
        ),
        Change(
            "for done_ns, ready_ns, index, size_bytes in sorted(times_ns)",
            "for done_ns, ready_ns, index, size_bytes in times_ns",
            "all-reduces are told in another order than they ended",
        ),
    ],
    "hpcddp/worker/training/window.py": [
        Change(
            "self.timed_from = min(self.first_step + point.measure.warmup_steps, self._planned)",
            "self.timed_from = min(point.measure.warmup_steps, self._planned)",
            "a resumed run counts its warm-up",
        ),
    ],
    "hpcddp/worker/training/epochs.py": [
        Change(
            "parts.log.loss_sum = 0.0\n        if self._log:", "if self._log:", "the loss of an epoch has those of all before"
        ),
        Change(
            "epoch == measure.epochs or (every > 0 and epoch % every == 0)",
            "every > 0 and epoch % every == 0",
            "the last epoch is not evaluated",
        ),
    ],
    "hpcddp/worker/training/checkpoint.py": [
        Change(
            "for file in files if file not in damaged][-RETAINED:]",
            "for file in files][-RETAINED:]",
            "only damaged checkpoints are retained",
        ),
        Change("        if is_done(attempt):\n            break\n", "", "a run that is run again goes on from its end"),
    ],
    "hpcddp/worker/gates.py": [
        Change(
            "sums = [rank_sums.get(when) for rank_sums in by_rank]",
            "sums = [rank_sums[when] for rank_sums in by_rank if when in rank_sums]",
            "a rank without a checksum passes",
        ),
        Change(
            "if apart > ROUNDING[arithmetic]:",
            "if apart > 100 * ROUNDING[arithmetic]:",
            "a rank that computes something else passes",
        ),
        Change(
            "if cap > THROTTLED_SHARE and begin and end is not None and end < (1 - CLOCK_FALL) * begin:",
            "if cap > THROTTLED_SHARE and begin and end is not None and end < CLOCK_FALL * begin:",
            "a GPU that slows down at its power cap passes",
        ),
    ],
    "hpcddp/worker/telemetry/reader_process.py": [
        Change(
            "statistics.median(sm_mhz[-quarter:])", "statistics.median(sm_mhz[:quarter])", "clocks that fall are told as held"
        ),
        Change(
            "any(after[1] < before[1] for before, after in itertools.pairwise(known))",
            "known[-1][1] < known[0][1]",
            "energy over a driver's reload is told as measured",
        ),
        Change(
            "window.begin_ns <= _time_ns(row) <= window.end_ns",
            "window.begin_ns <= _time_ns(row)",
            "idle time behind the steps counts in their power",
        ),
    ],
    "hpcddp/worker/watchdog/detector.py": [
        Change(
            "if last.beat.position == own.beat.position:",
            "if last.beat.position >= own.beat.position - 1:",
            "of a time-out the rank that was late is not named",
        ),
    ],
    "hpcddp/probe/loop_recorder.py": [
        Change(
            "warmup = WARMUP if self.run.steps < self.run.window.timed_from else 0",
            "warmup = 0",
            "the warm-up of a script counts in its rate",
        ),
        Change(
            "self.halt()\n        self._timer.resume()",
            'self._timer.mark("other")',
            "among accumulated batches an evaluation is part of the step",
        ),
    ],
    "analysis/records/steps.py": [
        Change(
            '(columns["flags"] & ~AFTER_PAUSE == 0) & (columns["step"] >= span.first)',
            'columns["step"] >= span.first',
            "warm-up steps count",
        ),
        Change('step_ns=sums["total"] / count,', 'step_ns=sums["total"],', "a step lasts as long as all ranks' together"),
    ],
    "analysis/records/rows.py": [
        Change("if crc32(data) != recorded.crc32:", "if False:", "a row that was changed counts"),
    ],
    "analysis/records/attempts.py": [
        Change("if each.first_step != done:", "if each.first_step > done:", "steps of two attempts count twice"),
    ],
    "analysis/study/effects.py": [
        Change(
            'float(apart(min(a), max(b))), float(apart(max(a), min(b))), "range"',
            'float(apart(min(a), min(b))), float(apart(max(a), max(b))), "range"',
            "the interval of few runs is far too narrow",
        ),
    ],
    "analysis/study/scaling.py": [
        Change(
            "speedup(rate, base_rate) * base_gpus / gpus",
            "speedup(rate, base_rate) / gpus",
            "efficiency against a node is told a fourth of what it is",
        ),
        Change(
            ".iloc[(len(runs) - 1) // 2 : len(runs) // 2 + 1]",
            ".iloc[:1]",
            "the parts of the fastest run stand for the point",
        ),
        Change(
            'plain = runs[~runs["hook"].astype(bool)]',
            'plain = runs[runs["hook"].astype(bool)]',
            "rates come from runs that the hook slowed down",
        ),
    ],
    "analysis/runs/slow_ranks.py": [
        Change(
            "_plain(np.maximum(np.minimum(*halves)",
            "_plain(np.maximum(np.maximum(*halves)",
            "a rank that stalled once is a straggler",
        ),
    ],
    "analysis/verdicts/input.py": [
        Change(
            "return None if _for_few(case, row, share) else share",
            "return share",
            "one rank's late batches are told as a slow loader",
        ),
    ],
}
"""By file: what the shell sees and a job asks for, what is written and found again, what is measured, what is made of it."""


def main(words: list[str]) -> int:
    """0 where the tests find every fault."""
    missed, files = 0, [file for file in FAULTS if not words or any(word in file for word in words)]
    chosen = [(file, change) for file in files for change in FAULTS[file]]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tree], check=True)
        for file, change in chosen:
            start_s, found = time.monotonic(), _found_by(file, change, tree)
            missed += found is None
            line = f"{time.monotonic() - start_s:4.0f} s  {file}: {change.why}"
            print(f"MISSED {line}" if found is None else f"found  {line} ({found})", flush=True)
    print(json.dumps({"faults": len(chosen), "missed": missed}))
    return int(missed > 0)


def _found_by(name: str, fault: Change, tree: Path) -> str | None:
    """The first test that fails with the fault and passes without it; None where none does."""
    file = tree / name
    text = file.read_text()
    if text.count(fault.right) != 1:
        raise SystemExit(f"{name} has {text.count(fault.right)} times what the fault replaces: {fault.right}")
    file.write_text(text.replace(fault.right, fault.wrong))
    try:
        tried = ((tests, marks) for marks in CHOSEN for tests in _tests_of(name, tree))
        failed = next(filter(None, (_first_failed(*each, tree) for each in tried)), None)
    finally:
        file.write_text(text)
    if failed and _first_failed([failed.partition("[")[0]], ALL, tree):
        raise SystemExit(f"{failed} fails without a fault, too")
    return failed


def _tests_of(file: str, tree: Path) -> list[list[str]]:
    """Test files, the likeliest first: those of the module's name, those of its room that import it, the others of its room."""
    if not file.endswith(".py"):
        return [["tests/script"]]
    name, package = Path(file).stem, str(Path(file).parent).replace("/", ".")
    imports = re.compile(
        rf"from {re.escape(package)}(\.{name} import|\b import .*\b{name}\b)|import {re.escape(package)}\.{name}\b"
    )
    room = file.split("/")[1] if file.startswith("hpcddp/") else str(Path(file).parent)
    own, importing, others = list[str](), list[str](), list[str]()
    for test in sorted(each for folder in (room, ALSO.get(room, room)) for each in (tree / "tests" / folder).rglob("test_*.py")):
        kind = own if test.stem == f"test_{name}" else importing if imports.search(test.read_text()) else others
        kind.append(str(test.relative_to(tree)))
    return [own, importing, others if room not in LARGE else []]


def _first_failed(tests: list[str], marks: str, tree: Path) -> str | None:
    """None where all pass, and of no tests."""
    if not tests:
        return None
    options = ["-x", "-q", "-m", marks, f"--timeout={LIMIT_S}", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests], check=False, cwd=tree, env=env, capture_output=True, text=True
    )
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
