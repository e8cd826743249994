"""`hpcddp submit --wait`: when it ends, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState, pause_s
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.submit.session import wait_until_over
from tests.fake_backend import FakeBackend
from tests.given_event import log_event

ANSWERS = (
    JobState(phase="queued", detail="just submitted"),
    JobState(phase="unknown", detail="squeue: Socket timed out on send/recv operation"),
    JobState(phase="running"),
)


class Successive(FakeBackend):
    """Gives the ANSWERS one after another; then the job has ended."""

    def __init__(self, study: Study, end: str) -> None:
        super().__init__()
        self._study, self._end = study, end

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        self.polled.append(dict(jobs))
        if len(self.polled) <= len(ANSWERS):
            return dict.fromkeys(jobs, ANSWERS[len(self.polled) - 1])
        write_json(self._study.attempt_dir("p", 1, "7", 0) / "end.json", {"state": self._end, "reason": "why", "gates": []})
        return dict.fromkeys(jobs, JobState(phase="done" if self._end == "done" else "failed"))


@pytest.mark.parametrize("end", ["done", "failed"])
def test_waits_until_the_job_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """A controller that once does not answer does not end the wait; what became of the run asked
    about is the answer."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    study = Study(tmp_path)
    for label in ("p", "q"):
        study.point_file(label).parent.mkdir()
    log_event(study, "p", job="7")
    backend = Successive(study, end)
    log_event(study, "q", "refused", token="u", reason="not asked about")
    lines: list[str] = []
    states = wait_until_over(study, backend, {"p"}, lines.append)
    assert [(state.label, state.phase) for state in states] == [("p", end)]
    assert [line.partition(": ")[2].partition(" ")[2][:7].rstrip(";") for line in lines] == ["queued", "unknown", "running", end]
    assert len(backend.polled) == len(ANSWERS) + 1


def test_pauses_grow() -> None:
    """2 s at first, never more than half a minute."""
    assert [pause_s(waited_s) for waited_s in (0, 40, 100, 3600)] == [2.0, 2.0, 5.0, 30.0]
