"""Controllers without nodes, one for each profile: they judge requests (`sbatch --test-only`) for clusters of any size.

with Controllers(folder) as controllers:
    controllers.get(load_profile("rcc")).test_only(script)

Their nodes are those of a cloud that nobody starts, so a controller is up in seconds, and one MariaDB serves all of them."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import profile_names
from tests.twin import daemons, rules
from tests.twin.config import write_folder
from tests.twin.daemons import CONTROLLERS_LOCK, MARK, Daemon, ending_signals_raise, kill_marked, only_twin, signals_held, stop
from tests.twin.shape import CONTROLLER_PORTS, Shape, Site, free_ports, make_shape

UNKNOWN_NODES = 64
"""Nodes of a type whose number the profile does not know."""


class Controller(daemons.Slurm):
    """The controller of one profile, with its slurmdbd."""

    def __init__(self, shape: Shape, mark: Path) -> None:
        super().__init__(shape.folder, mark)
        self.profile, self.shape = shape.profile, shape

    def boot(self, database: Path) -> list[Daemon]:
        """Starts it on the MariaDB in that folder; its daemons. Queries of slurmdbd wait more than they compute."""
        folder, env = self.shape.folder, {**os.environ, **self.env}
        write_folder(self.shape)
        started = [daemons.start_munged(folder, env), daemons.start_slurmdbd(folder, env, database)]
        for command in rules.early_commands(self.profile):
            self.sacctmgr(command)
        started.append(daemons.start_slurmctld(folder, env))
        user = pwd.getpwuid(os.getuid()).pw_name
        accounts = rules.account_commands(self.profile, self.shape.site.accounts, user)
        for command in (*rules.qos_commands(self.profile), *accounts):  # one by one: slurmctld once missed a QOS
            self.sacctmgr(command)
        return started


class Controllers:
    """Up between `with` and its end, like a Twin; no twin can be up beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._stack = ExitStack()
        self._daemons: list[Daemon] = []
        self._controllers: dict[str, Controller] = {}

    def __enter__(self) -> Controllers:
        try:
            self._stack.enter_context(ending_signals_raise())
            self._stack.enter_context(only_twin(self.folder, CONTROLLERS_LOCK))
            self._stack.callback(kill_marked, self.folder)
            self._stack.callback(stop, self._daemons)
            for name in ("log", "pid"):
                (self.folder / name).mkdir(parents=True)
            self._daemons.append(daemons.start_database(self.folder, {**os.environ, MARK: str(self.folder)}))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Takes everything down; does nothing the second time."""
        with signals_held():
            self._stack.close()

    def get(self, profile: ClusterProfile) -> Controller:
        """The controller of that profile, booted now unless it is up."""
        if profile.name not in self._controllers:
            self.boot([profile])
        return self._controllers[profile.name]

    def boot(self, profiles: Sequence[ClusterProfile]) -> None:
        """Starts the controllers of these profiles beside each other, but for those that are up."""
        profiles = [profile for profile in profiles if profile.name not in self._controllers]
        controllers = [Controller(shape, self.folder) for shape in self._shapes(profiles)]
        with ThreadPoolExecutor() as pool:
            for started in pool.map(lambda controller: controller.boot(self.folder), controllers):
                self._daemons += started
        self._controllers |= {controller.profile.name: controller for controller in controllers}

    def _shapes(self, profiles: Sequence[ClusterProfile]) -> list[Shape]:
        """All ports are drawn at once, as nobody listens on them yet."""
        shapes = [_shape(profile, self.folder / profile.name) for profile in profiles]
        ports = iter(free_ports(2 * len(shapes), CONTROLLER_PORTS))
        return [dataclasses.replace(shape, slurmctld_port=next(ports), slurmdbd_port=next(ports)) for shape in shapes]


def _shape(profile: ClusterProfile, folder: Path) -> Shape:
    """With all nodes of the cluster."""
    known = [kind.count for kind in profile.node_types.values() if kind.count is not None]
    site = Site(accounts=rules.site_accounts(profile), cloud=True)
    return make_shape(profile, folder, max([*known, UNKNOWN_NODES]), site)


def slurm_profiles() -> list[str]:
    """By name."""
    return [name for name in profile_names() if load_profile(name).backend == "slurm"]


OF_OTHER_RULES = ("frontier", "jean-zay", "lumi-g", "rcc", "vista")
"""Between them they have every kind of rule: several types of nodes and partitions, QOS by the number of nodes, limits of a user,
forms of accounts, memory that must or must not be asked for, and each way to ask for GPUs. The others are for `make soak`.
"""


def of_controller(cluster: str, value: str | None = None) -> Any:
    """A parameter of a test on this cluster's controller: its name, unless it is another value."""
    return pytest.param(value or cluster, marks=[] if cluster in OF_OTHER_RULES else pytest.mark.soak)
