"""The attempts whose steps make up a run, each with its own rows, clocks and warm-up; and their telemetry and loaders as one.

The last one's end.json says whose steps count (`history`), each step once. What an attempt made beyond its last checkpoint was
made again by a later one, and attempts that are not named there made nothing that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcddp.analysis.records import buckets
from hpcddp.analysis.records.json_files import EndFile, check_end, environment_names, launch_software, read_end_file, read_launch
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.records.steps import RunSteps, StepSpan, before, rank_results, read_steps
from hpcddp.core.attempt_records import GpuTelemetry, LoaderTimes, NodeTelemetry, RankEnd, Telemetry, TrainingEnd
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import Point
from hpcddp.core.text import count


def merged_fields(same: Sequence[Any]) -> dict[str, Any]:
    """Of records of one class, each field that says how it is merged (`merge`: max, mean, min or sum).

    A sum, and a mean, is unknown where one of its parts is. Means are weighted by `readings`; a record without any has no part.
    """
    return {of.name: _merged(same, of.name, how) for of in fields(same[0]) if (how := of.metadata.get("merge"))}


def _merged(same: Sequence[Any], name: str, how: str) -> Any:
    values = [getattr(each, name) for each in same]
    known = [value for value in values if value is not None]
    if how in ("max", "min"):
        return (max if how == "max" else min)(known, default=None)
    if how == "sum":
        return sum(known) if len(known) == len(values) else None
    return _mean([(value, each.readings) for value, each in zip(values, same, strict=True) if each.readings])


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    if not weighted or any(value is None for value, _ in weighted):
        return None
    return float(sum((value or 0.0) * weight for value, weight in weighted) / sum(weight for _, weight in weighted))


def merged_nodes(nodes: Iterable[NodeTelemetry]) -> tuple[NodeTelemetry, ...]:
    """By host. Clocks are those of the attempt with most readings."""
    by_host: dict[str | None, list[NodeTelemetry]] = {}
    for node in nodes:
        by_host.setdefault(node.host, []).append(node)
    return tuple(same[0] if len(same) == 1 else _node(same) for same in by_host.values())


def _node(same: Sequence[NodeTelemetry]) -> NodeTelemetry:
    gpus: dict[int, list[GpuTelemetry]] = {}
    for gpu in (gpu for node in same for gpu in node.gpus):
        gpus.setdefault(gpu.gpu, []).append(gpu)
    complete = all(len(each) == len(same) for each in gpus.values())
    merged = tuple(_gpu(each) for _, each in sorted(gpus.items())) if complete else ()
    return replace(same[0], **merged_fields(same), gpus=merged)


def _gpu(same: Sequence[GpuTelemetry]) -> GpuTelemetry:
    most = max(same, key=lambda gpu: gpu.readings)
    sources = {gpu.energy_from for gpu in same}
    energy_from = sources.pop() if len(sources) == 1 else "power"
    return replace(most, **merged_fields(same), throttle=_throttle(same), energy_from=energy_from)


def _throttle(same: Sequence[GpuTelemetry]) -> dict[str, float] | None:
    known = [(gpu.throttle, gpu.readings) for gpu in same if gpu.throttle is not None]
    total = sum(readings for _, readings in known)
    if len(known) < len(same) or not total:
        return None
    reasons = sorted({reason for shares, _ in known for reason in shares})
    return {reason: sum(shares.get(reason, 0.0) * readings for shares, readings in known) / total for reason in reasons}


def merged_loader(found: Iterable[LoaderTimes | None]) -> LoaderTimes | None:
    """Times add up, rates are weighted by samples; None where nothing is known of any. Of equal workers, as one point has."""
    known = [each for each in found if each is not None]
    if not known:
        return None
    took_s = sum(each.samples / each.samples_per_s for each in known if each.samples_per_s)
    rate = sum(each.samples for each in known) / took_s if took_s else 0.0
    return replace(known[0], **merged_fields(known), samples_per_s=rate)


ENDED = ("done", "interrupted")
"""States of an attempt that closed its files."""


@dataclass(frozen=True)
class Stretch:
    """Steps of a run that one of its attempts made and that count."""

    attempt: Path
    first_step: int
    steps: int | None
    """None: all it recorded."""

    @property
    def stop(self) -> int | None:
        return None if self.steps is None else self.first_step + self.steps

    @property
    def words(self) -> str:
        """`steps 73 to 132 (attempt 9.0)`; it is known how many there are."""
        return f"steps {self.first_step} to {self.first_step + (self.steps or 0) - 1} (attempt {self.attempt.name})"


@dataclass(frozen=True)
class AttemptRecords:
    """What an attempt recorded of its stretch."""

    folder: Path
    launch: LaunchRecord
    end: TrainingEnd | None
    """None where it did not come to write one."""
    ranks: tuple[RankEnd, ...]
    """In order; without end.json as far as launch.json says."""
    steps: RunSteps
    windows: buckets.ExchangeWindows

    @property
    def hooked(self) -> bool:
        """Whether all-reduces were recorded of every rank, with checksum and clock."""
        return _hooked(self.ranks)

    @property
    def hosts(self) -> list[str]:
        return [entry.host for entry in self.ranks]


def stretches_of(attempt: Path, end: TrainingEnd) -> list[Stretch]:
    """The stretches of the run that `attempt` ended, oldest first; Rejected where a step is missing, or counted twice."""
    if not end.history:
        return [Stretch(attempt, 0, None)]
    done = 0
    for each in end.history:
        if each.first_step != done:
            raise Rejected(f"end.json: history goes on at step {each.first_step} after {count(done, 'step')}")
        done += each.steps
    names = [each.attempt for each in end.history]
    if len(set(names)) < len(names) or any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names):
        raise Rejected("end.json: history names what are no attempts of one run")
    if attempt.name in names[:-1]:
        raise Rejected(f"end.json: history continues after {attempt.name}, which ended the run")
    return [Stretch(attempt.parent / each.attempt, each.first_step, each.steps) for each in end.history]


def read_attempts(  # noqa: PLR0913 - what is known of the run, and who hears of what is lost
    attempt: Path,
    launch: LaunchRecord,
    end: TrainingEnd,
    point: Point | None,
    warnings: list[str],
    *,
    epoch_ends: Sequence[int] = (),
) -> list[AttemptRecords]:
    """Reads all attempts whose steps make up the run that `attempt` ended, oldest first.

    `epoch_ends`: of `work: train`, the steps of the run at the end of each epoch. Rejected where its own records cannot be read.
    Which steps of earlier attempts are lost, and why, is added to `warnings`.
    """
    run = f"{attempt.parent.name} of {attempt.parent.parent.name}"
    stretches = stretches_of(attempt, end)
    files = {each.attempt: read_end_file(each.attempt, warnings) for each in stretches if each.attempt != attempt}
    ends = {attempt: end, **{folder: _training_end(file) for folder, file in files.items()}}
    spans = complete_epochs(_spans(stretches, ends), epoch_ends)
    found = []
    for stretch, span in zip(stretches, spans, strict=True):
        if stretch.attempt == attempt:
            found.append(_read(stretch, launch, end, span, warnings))
            continue
        try:
            its_launch, its_end = _earlier(stretch.attempt, files[stretch.attempt], launch, point)
            found.append(_read(stretch, its_launch, its_end, span, warnings))
        except Rejected as reason:
            warnings.append(f"{run}: {stretch.words} are missing: {reason}")
            continue
        if its_end is None:
            warnings.append(f"{run}: {stretch.words} count by their rows alone: it did not end, so nothing else checks them")
    if not found:
        raise Rejected("no attempt's step rows can be read")
    return found


def _earlier(
    attempt: Path, file: EndFile | None, last: LaunchRecord, point: Point | None
) -> tuple[LaunchRecord, TrainingEnd | None]:
    """Its launch and its end, if it has one; Rejected where one cannot be read, or the run's last attempt had other software."""
    launch = read_launch(attempt, point)
    if launch.env_id != last.env_id:
        names = environment_names((each.env_id, launch_software(each)) for each in (launch, last))
        raise Rejected(f"it ran with {names[launch.env_id]}, the run's last attempt with {names[last.env_id]}")
    if file is None or file.state not in ENDED:
        return launch, None
    end = file.decoded(TrainingEnd)
    check_end(end, point)
    return launch, end


def _ranks_without_end(stretch: Stretch, launch: LaunchRecord) -> tuple[RankEnd, ...]:
    nodes = [rank // launch.ranks_per_node for rank in range(launch.ranks)]
    hosts = [launch.hosts[node] if node < len(launch.hosts) else "unknown" for node in nodes]
    return tuple(RankEnd(rank=rank, host=host, rows=stretch.steps or 0, crc32=None) for rank, host in enumerate(hosts))


def _training_end(file: EndFile | None) -> TrainingEnd | None:
    try:
        return file.decoded(TrainingEnd) if file and file.state in ENDED else None
    except Rejected:
        return None


def _spans(stretches: Sequence[Stretch], ends: Mapping[Path, TrainingEnd | None]) -> list[StepSpan]:
    """The timed steps of each attempt. A warm-up whose end nobody saw is taken to be as long as the run's longest."""
    longest_warmup = max(0, *(end.protocol.steady_from_step - end.first_step for end in ends.values() if end))

    def first(stretch: Stretch) -> int:
        end = ends[stretch.attempt]
        return end.protocol.steady_from_step if end else stretch.first_step + longest_warmup

    return [StepSpan(first(each), each.stop) for each in stretches]


def complete_epochs(spans: Sequence[StepSpan], epoch_ends: Sequence[int]) -> list[StepSpan]:
    """Of each attempt's timed steps those of whole epochs: the first step of one, which waits for the loader, then has the weight
    that it has in an epoch. All of them where no attempt timed an epoch from end to end."""
    found = []
    for span in spans:
        edges = [edge for edge in (0, *epoch_ends) if edge >= span.first and (span.stop is None or edge <= span.stop)]
        found.append(replace(span, first=edges[0], stop=edges[-1]) if edges else replace(span, stop=span.first))
    return found if any(span.first < (span.stop or 0) for span in found) else list(spans)


def _read(stretch: Stretch, launch: LaunchRecord, end: TrainingEnd | None, span: StepSpan, warnings: list[str]) -> AttemptRecords:
    ranks = rank_results(end, launch.ranks) if end else _ranks_without_end(stretch, launch)
    hooked = _hooked(ranks)
    windows = buckets.ExchangeWindows(ranks, span, buckets.first_table(stretch.attempt, ranks[0], warnings) if hooked else None)
    steps = read_steps(stretch.attempt, ranks, span, launch.step_rows, warnings, watch=windows.add if hooked else None)
    steps = buckets.with_shared_boundaries(steps, windows, ranks)
    if stretch.stop is not None:
        steps = before(steps, stretch.stop)
        if steps.step.size != stretch.steps or not np.array_equal(steps.step, np.arange(stretch.first_step, stretch.stop)):
            raise Rejected(f"the rows of attempt {stretch.attempt.name} are not those of {stretch.words.partition(' (')[0]}")
    return AttemptRecords(stretch.attempt, launch, end, ranks, steps, windows)


def _hooked(ranks: Sequence[RankEnd]) -> bool:
    return all(entry.bucket_rows for entry in ranks)


def buckets_of_run(attempts: Sequence[AttemptRecords], last: Path, warnings: list[str]) -> buckets.RunBuckets | None:
    """All attempts' all-reduces; None: none recorded any. Rejected where those of `last` cannot be read, of others a warning."""
    found = []
    for each in attempts:
        try:
            read = buckets.read_buckets(each.folder, each.ranks, each.windows, warnings)
        except Rejected as reason:
            if each.folder == last:
                raise
            warnings.append(f"{'/'.join(each.folder.parts[-3:])}: its all-reduces are left aside: {reason}")
            continue
        if read is not None:
            found.append(read)
    return buckets.joined_buckets(found) if found else None


def merged_end(attempts: Sequence[AttemptRecords], end: TrainingEnd) -> TrainingEnd:
    """end.json of the attempt that ended the run, with what the others know too: their gates that failed, memory, telemetry.

    Energy per sample is the mean over attempts, weighted by their steady steps; memory is the largest; readings of nodes are
    as merged_nodes has them. The first loss is that of the run's first step, where it is known.
    """
    if [each.end for each in attempts] == [end]:
        return end
    ended = [(each, each.end) for each in attempts if each.end is not None]
    others = [(each, its_end) for each, its_end in ended if its_end is not end]
    failed = [
        replace(gate, evidence=f"attempt {each.folder.name}: {gate.evidence}")
        for each, its_end in others
        for gate in its_end.gates
        if not gate.passed
    ]
    nodes = [node for _, its_end in ended if its_end.telemetry for node in its_end.telemetry.nodes]
    first = attempts[0]
    return replace(
        end,
        gates=(*end.gates, *failed),
        ranks=tuple(entry for _, its_end in ended for entry in its_end.ranks),
        loader=merged_loader(its_end.loader for _, its_end in ended),
        telemetry=Telemetry(energy_j_per_1000_samples=_energy(attempts), nodes=merged_nodes(nodes)),
        loss_first=first.end.loss_first if first.end and first.steps.step[:1].tolist() == [0] else None,
    )


def _energy(attempts: Sequence[AttemptRecords]) -> float | None:
    weighted = [
        (each.end.telemetry.energy_j_per_1000_samples, int(each.steps.steady.sum()))
        for each in attempts
        if each.end is not None and each.end.telemetry is not None
    ]
    known = [(joules, weight) for joules, weight in weighted if joules is not None]
    steps = sum(weight for _, weight in known)
    return sum(joules * weight for joules, weight in known) / steps if steps else None
