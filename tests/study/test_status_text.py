"""The words of a run's state."""

from __future__ import annotations

import pytest

from hpcddp.study.status import RunState
from hpcddp.study.status_text import status_table


@pytest.mark.parametrize(("start_up_s", "said"), [(None, False), (40.0, False), (180.0, True)])
def test_a_long_start_is_said_while_a_run_runs(start_up_s: float | None, said: bool) -> None:
    """Of one that took its ranks no longer than imports do, nothing."""
    state = RunState(label="n01-g4", run=1, phase="running", job="7", steps_done=60, steps_total=120, start_up_s=start_up_s)
    assert ("3 min from srun to the first step" in status_table([state])) is said


def test_a_copy_of_the_data_is_said_while_a_run_runs() -> None:
    """How long the ranks waited for it, which is no part of the start."""
    state = RunState(label="n01-g4", run=1, phase="running", job="7", steps_done=60, staging_s=250.0)
    assert "step 60, data copied to its nodes in 4 min" in status_table([state])
