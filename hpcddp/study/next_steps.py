"""What to do next after a run that did not finish, by what ended it. `{node}` is the node at fault, where that is known."""

from __future__ import annotations

import re
from collections.abc import Mapping

AGAIN = "submit it again"

EXCLUDE_NODE = "submit it again; to keep off {node}: --set slurm.exclude={node}"

MORE_MEMORY = (
    "ask for more with slurm.mem_mb in the sweep, or lower workload.loader_workers_per_rank or batch_per_gpu; "
    "then submit it again"
)

MAKE_ROOM = "make room where the runs are, or put them elsewhere with --runs; then submit it again"

WRITABLE_RUNS = "put the runs where the compute nodes may write, with --runs; then submit it again"

FIX_COMPUTE = "mend `compute` of the cluster's profile, which `hpcddp clusters show` shows; then submit it again"

PROVIDE_DATA = "put the data where every node sees them, or name their folder with workload.data.root; then submit it again"

EXCLUDE_WITHOUT_GPU = (
    "submit it again; if it is always {node}, tell its administrators, and keep off it: --set slurm.exclude={node}"
)

READ_LOGS = "`hpcddp logs` shows what it wrote; submit it again"

NO_STEP_IN_TIME = (
    "`hpcddp logs` shows what its ranks waited for, and a longer limit alone would not help; mend that, then submit it again"
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
    "hung": "look at the place it names, and at `hpcddp logs`; if it is always on {node}: --set slurm.exclude={node}",
    "late": "`hpcddp logs` shows where it was: mend what takes it so long; if it is always on {node}: --set slurm.exclude={node}",
    "stuck": "submit it again; if it comes back, have the network between these nodes looked at",
    "out_of_memory": "set workload.batch_per_gpu{fits} in the sweep, which makes it another point; then submit",
    "disk": MAKE_ROOM,
    "loader": "lower workload.loader_workers_per_rank in the sweep, which makes it another point; then submit",
    "contact": "submit it again; if it comes back, `hpcddp logs` shows what each rank said",
    "time_out": "submit it again; if it comes back, `hpcddp logs` shows what each rank said",
    "user": "mend that; then submit it again",
    "diverged": "lower workload.optimizer.lr in the sweep, which makes it another point; then submit",
    "interrupted": AGAIN,
    "error": "`hpcddp logs` shows where in the code; mend it, then submit it again",
}
"""Kind of a fault (worker/faults.py) -> next step; its sentence is the worker's own."""

BY_SENTENCE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"the script's batch"), "mend it in the script, or by workload.args where its batch is one; then submit"),
    (re.compile(r"the script's DataLoader"), "mend it in the script, or by workload.args where that is one; then submit"),
    (re.compile(r"no such folder on|No such file|data prepare|data fetch|workload\.data\.root|fetch it again"), PROVIDE_DATA),
    (re.compile(r"Read-only file system|cannot write the log"), WRITABLE_RUNS),
    (re.compile(r"finds no GPU"), EXCLUDE_WITHOUT_GPU),
    (
        re.compile(r"`ulimit -[vd]`"),
        "raise that limit where the ranks start, or set workload.batch_per_gpu lower, which makes it another point; then submit",
    ),
    (
        re.compile(r"the job is not requeued"),
        "raise slurm.walltime_min in the sweep, or let Slurm warn later (-J --signal=USR2@SECONDS); then submit it again",
    ),
    (re.compile(r"under `compute`|is built without CUDA|install a build"), FIX_COMPUTE),
)
"""Next steps for some of the sentences of kinds `user`, `disk`, `error`, `loader` and `out_of_memory`, and of Slurm's."""
