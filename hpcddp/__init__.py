"""hpcddp: scaling studies of PyTorch DDP on Slurm clusters, from one sweep file to figures that can be trusted."""

from typing import Any

__version__ = "0.1.0"


def executor(cluster: "str | None" = None, *, folder: Any = None, **parameters: Any) -> Any:
    """A submitit Executor that runs functions on a cluster by its profile; see hpcddp.submit.executor and docs/own-jobs.md.

    hpcddp.executor("rcc", nodes=2, gpus_per_node=4, walltime_min=30).submit(train, config).results()
    """
    from importlib import import_module  # only who calls this needs the login side, and what it imports

    return import_module("hpcddp.submit.executor").make_executor(cluster, folder, parameters)
