"""What to do next after a run that did not finish, by what ended it. `{node}` is the node at fault, where that is known."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcddp.core.causes import (
    AGAIN,
    EXCLUDE_NODE,
    EXCLUDE_WITHOUT_GPU,
    FIX_COMPUTE,
    MAKE_ROOM,
    MORE_MEMORY,
    PROVIDE_DATA,
    WRITABLE_RUNS,
)

READ_LOGS = "`hpcddp logs` shows what it wrote; submit it again"

NO_STEP_IN_TIME = (
    "find with `hpcddp logs` what its ranks waited for, and fix that; then submit it again. A longer limit alone would not help"
)
"""Of a run whose time limit was over before it made a step."""

BY_STATE: Mapping[str, str] = {
    "CANCELLED": f"{AGAIN} if that was not meant",
    "TIMEOUT": "raise slurm.walltime_min in the sweep{above}, or take fewer steps; then submit it again",
    "DEADLINE": "leave --deadline out, or give a later one; then submit it again",
    "OUT_OF_MEMORY": MORE_MEMORY,
    "NODE_FAIL": EXCLUDE_NODE,
    "BOOT_FAIL": EXCLUDE_NODE,
    "PREEMPTED": f"{AGAIN}; with measure.resume: true a run goes on from its last checkpoint",
}
"""By Slurm's word for what it ended itself; slurm_words.ENDED has the sentences. `{above}`: the time limit it had."""

BY_FAULT: Mapping[str, str] = {
    "died": EXCLUDE_NODE,
    "silent": EXCLUDE_NODE,
    "hung": "look at the place it names, and at `hpcddp logs`; if {node} fails every time: --set slurm.exclude={node}",
    "late": "`hpcddp logs` shows where it was: fix what takes it so long; if {node} fails every time: --set slurm.exclude={node}",
    "stuck": "submit it again; if it comes back, ask the site to check the network between these nodes",
    "out_of_memory": "set workload.batch_per_gpu{fits} in the sweep, which creates a different point; then submit",
    "disk": MAKE_ROOM,
    "loader": "lower workload.loader_workers_per_rank in the sweep, which creates a different point; then submit",
    "contact": "submit it again; if it comes back, `hpcddp logs` shows what each rank said",
    "time_out": "submit it again; if it comes back, `hpcddp logs` shows what each rank said",
    "user": "fix that; then submit it again",
    "diverged": "lower workload.optimizer.lr in the sweep, which creates a different point; then submit",
    "interrupted": AGAIN,
    "error": "`hpcddp logs` shows where in the code; fix it, then submit it again",
}
"""Kind of a fault (worker/faults.py) -> next step; its sentence is the worker's own."""

NO_GPU = re.compile(r"finds no GPU")
"""worker/gpus.py's words; torch has said why in the rank's log."""

BY_SENTENCE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"the script's batch"), "fix it in the script, or by workload.args where its batch is one; then submit"),
    (re.compile(r"the script's DataLoader"), "fix it in the script, or by workload.args where that is one; then submit"),
    (re.compile(r"no such folder on|No such file|data prepare|data fetch|workload\.data\.root|fetch it again"), PROVIDE_DATA),
    (re.compile(r"cannot write the log"), WRITABLE_RUNS),
    (NO_GPU, EXCLUDE_WITHOUT_GPU),
    (
        re.compile(r"`ulimit -[vd]`"),
        "raise that limit where the ranks start, or lower workload.batch_per_gpu, which creates a different point; then submit",
    ),
    (
        re.compile(r"could not be allocated, though"),
        "look for what limits it (`ulimit -a` in a job, vm.overcommit_memory, a GPU that is not the rank's); then submit",
    ),
    (
        re.compile(r"the job is not requeued"),
        "raise slurm.walltime_min in the sweep, or let Slurm warn later (-J --signal=USR2@SECONDS); then submit it again",
    ),
    (re.compile(r"under `compute`|is built without CUDA|install a build"), FIX_COMPUTE),
)
"""Next steps for some of the sentences of kinds `user`, `disk`, `error`, `loader` and `out_of_memory`, and of Slurm's."""
