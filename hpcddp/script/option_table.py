"""Options of sbatch and srun, Slurm 22.05 to 25.05 (slurm_opt.c, sbatch(1), srun(1)): which exist, and which take a value."""

from __future__ import annotations

_SHORT = """
a:array A:account b:begin B:extra-node-info c:cpus-per-task C:constraint d:dependency D:chdir e:error E:preserve-env F:nodefile
G:gpus h:help H:hold i:input I:immediate J:job-name k:no-kill K:kill-on-bad-exit l:label L:licenses m:distribution M:clusters
n:ntasks N:nodes o:output O:overcommit p:partition q:qos Q:quiet r:relative s:oversubscribe S:core-spec t:time T:threads
u:unbuffered v:verbose V:version w:nodelist W:wait x:exclude X:disable-status Z:no-allocate
"""

_VALUED = """
account acctg-freq bb bbf begin chdir cluster cluster-constraint clusters comment constraint container container-id context
core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude export
extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition power prefer priority
profile qos reservation segment signal sockets-per-node switches tasks-per-node thread-spec threads-per-core time time-min tmp
tres-bind tres-per-task uid wckey
"""
_OPTIONAL = "consolidate-segments exclusive nice no-kill oom-kill-step propagate resv-ports spread-segments x11"
_FLAGS = """
contiguous help hold overcommit oversubscribe quiet reboot share spread-job stepmgr test-only usage use-min-nodes verbose version
"""
_SRUN_VALUED = "accel-bind bcast-exclude cpu-bind epilog het-group mpi prolog relative task-epilog task-prolog threads wait"
_SRUN_FLAGS = "disable-status exact external-launcher label multi-prog no-allocate overlap preserve-env pty unbuffered whole"
_PYXIS = "container-env container-image container-mounts container-name container-workdir"
_PYXIS_FLAGS = "container-mount-home no-container-mount-home container-entrypoint no-container-entrypoint container-remap-root"


def _kinds(valued: str, optional: str, flags: str) -> dict[str, str]:
    kinds = (("value", valued), ("optional", optional), ("none", flags))
    return {name: kind for kind, names in kinds for name in names.split()}


SHORT = dict(entry.split(":") for entry in _SHORT.split())
"""Letter -> long name, of both commands."""

ALIASES = {"tasks-per-node": "ntasks-per-node"}

SBATCH = _kinds(
    f"{_VALUED} {_PYXIS} array batch export-file kill-on-invalid-dep wait-all-nodes wrap",
    f"{_OPTIONAL} get-user-env",
    f"{_FLAGS} {_PYXIS_FLAGS} ignore-pbs no-requeue parsable requeue wait",
)
"""Long name -> whether it takes a value: `value`, `optional` (only behind `=`) or `none`."""

SRUN = _kinds(
    f"{_VALUED} {_SRUN_VALUED} {_PYXIS}",
    f"{_OPTIONAL} bcast compress immediate kill-on-bad-exit send-libs",
    f"{_FLAGS} {_SRUN_FLAGS} {_PYXIS_FLAGS}",
)
"""The same of srun; both with the container options of pyxis."""

FOREIGN = {
    **{"walltime": "time", "queue": "partition", "project": "account", "memory": "mem", "name": "job-name", "gpu": "gpus"},
    **{"ncpus": "cpus-per-task", "cores": "cpus-per-task", "cpus": "cpus-per-task", "cpus-per-node": "cpus-per-task"},
    **{"procs": "ntasks", "tasks": "ntasks", "node": "nodes", "workdir": "chdir"},
}
"""Options of other schedulers and older versions -> sbatch's."""
