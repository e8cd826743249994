"""What became of the runs of every study in a folder, what preflight found, and over which network ranks exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.preflight import PreflightRecord, preflight_words
from hpcddp.core.run_root import Study, studies
from hpcddp.core.text import escape_controls
from hpcddp.core.transport_record import TransportRecord, transport_words
from hpcddp.study.data_jobs import DataJobState, data_job_lines, data_job_states, folders_of_data_jobs
from hpcddp.study.scope import LIVE, not_in_sweep_words, study_scope
from hpcddp.study.status import RunState, all_states, states_to_plain
from hpcddp.study.status_text import bar, next_lines, run_lines, total_lines, wrapped
from hpcddp.study.study_folder import shell_path
from hpcddp.study.study_records import read_record
from hpcddp.study.used_hours import StudyHours, study_hours


@dataclass(frozen=True, kw_only=True)
class StudyStatus:
    """The runs of one study."""

    name: str
    path: Path
    """What the user may name it by: its folder, or its sweep."""
    states: list[RunState]
    hours: StudyHours
    preflight: str | None = None
    """What the newest one found, in a line."""
    network: str | None = None
    """The newest attempt's, in a line."""
    data_jobs: Sequence[DataJobState] = ()
    """What prepares its data."""

    @property
    def plain(self) -> dict[str, object]:
        """For JSON."""
        used, to_come = self.hours.used, self.hours.to_come
        return {
            "name": self.name,
            "runs": states_to_plain(self.states),
            "node_hours": round(used.node, 3),
            "gpu_hours": round(used.gpu, 3),
            "node_hours_to_come": None if to_come is None else round(to_come.node, 3),
            "gpu_hours_to_come": None if to_come is None else round(to_come.gpu, 3),
            "preflight": self.preflight,
            "network": self.network,
            "data_jobs": [state.plain for state in self.data_jobs],
        }

    def text(self, at_most: int | None = None) -> str:
        """For a terminal, in `at_most` lines where that can be: how much is done, what prepares data, runs, preflight, network,
        runs not in the sweep any more, and what to do next.
        """
        gone = not_in_sweep_words([state for state in self.states if state.phase in LIVE], self.path)
        more = [line for text in (self.preflight, self.network, gone) if text for line in wrapped(text)]
        totals = total_lines(self.states, self.hours) if self.states or not self.data_jobs else []
        first = [f"{self.name}  {bar(self.states)}".rstrip(), *data_job_lines(self.data_jobs)]
        last = [*more, *totals, *self._next_lines()]
        return "\n".join([*first, *run_lines(self.states, at_most and max(0, at_most - len(first) - len(last))), *last])

    def _next_lines(self) -> list[str]:
        sweep = self.path if self.path.is_file() else self.path.with_name(f"{self.path.name}.yaml")
        submit = f"hpcddp submit {shell_path(sweep)}" if sweep.is_file() else "submit its sweep again"
        return next_lines(self.states, submit, f"hpcddp analyze {shell_path(self.path)}")

    @property
    def is_live(self) -> bool:
        """Whether a run of the sweep waits or runs; a controller that does not answer just now has not ended a job."""
        wanted = [state for state in self.states if state.in_sweep]
        live = any(state.phase in ("queued", "running") or (state.phase == "unknown" and state.job) for state in wanted)
        return live or any(state.is_live for state in self.data_jobs)

    @property
    def is_done(self) -> bool:
        """Whether all runs of the sweep are done, and no job prepares data any more; where there are only such jobs, whether all
        ended well: runs that are done did not need one that failed.
        """
        if not self.states:
            return all(state.phase == "done" for state in self.data_jobs)
        runs_done = all(state.phase == "done" for state in self.states if state.in_sweep)
        return runs_done and not any(state.is_live for state in self.data_jobs)


def study_statuses(runs: Path, sweep: Path | None) -> list[StudyStatus]:
    """Of the studies at or below `runs`; UsageError where there is none. `sweep`: the file that stood for the one study there."""
    found = sorted({*studies(runs.absolute()), *folders_of_data_jobs(runs.absolute())}, key=lambda study: study.folder)
    if not found:
        raise UsageError(f"{runs}: no study here; `hpcddp submit SWEEP` creates one beside the sweep")
    states = all_states(found, study_scope(Study(runs), sweep) if sweep else None)
    return [
        StudyStatus(
            name=study.name,
            path=sweep or study.folder,
            states=states[study.name],
            hours=study_hours(study, states[study.name]),
            preflight=newest_preflight_words(study),
            network=newest_network_words(study),
            data_jobs=data_job_states(study),
        )
        for study in found
    ]


def status_text(statuses: Sequence[StudyStatus], at_most: int | None = None) -> str:
    """All studies, for a terminal, in `at_most` lines where that can be: of several, those that are done, or all, have a line."""
    several = [status for status in statuses if len(statuses) > 1 and status.states]
    text = _text(statuses, [status for status in several if status.is_done], at_most)
    fits = at_most is None or len(text.splitlines()) <= at_most
    return escape_controls(text if fits else _text(statuses, several, at_most))


def _text(statuses: Sequence[StudyStatus], brief: Sequence[StudyStatus], at_most: int | None) -> str:
    share = None if at_most is None else (at_most - len(brief)) // max(1, len(statuses) - len(brief)) - 1
    rows = "\n".join(f"{status.name}  {total_lines(status.states)[0]}" for status in brief)
    return "\n\n".join(filter(None, [rows, *(status.text(share) for status in statuses if status not in brief)]))


def newest_network_words(study: Study) -> str | None:
    """`network: NCCL 2.28.9 over InfiniBand (IB), 4 adapters a node, GPUDirect RDMA`; None where none is recorded, or it is the
    loopback of one node.
    """
    files = sorted(study.folder.glob("n*/r*/*/transport.json"), key=lambda file: file.lstat().st_mtime_ns)
    try:
        record = read_record(TransportRecord, files[-1]) if files else None
    except (HpcddpError, OSError):
        return None
    if record is None or (record.library == "gloo" and len(record.nodes) < 2):
        return None
    return f"network: {transport_words(record)}"


def preflights_of(study: Study) -> list[PreflightRecord]:
    """Oldest first; those that cannot be read are passed over."""
    found = []
    for file in study.preflights.glob("*.json"):
        try:
            record = read_record(PreflightRecord, file)
        except (HpcddpError, OSError):
            continue
        found += [record] if record else []
    return sorted(found, key=lambda record: record.unix_ns)


def newest_preflight_words(study: Study) -> str | None:
    """`preflight of job 4711: 4 nodes, none more than 10 % below the median`; None where there was none."""
    records = preflights_of(study)
    return f"preflight of job {records[-1].job}: {preflight_words(records[-1])}" if records else None
