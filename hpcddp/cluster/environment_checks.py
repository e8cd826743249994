"""What is refused of a profile's compute environment when it is read, with the place in the file."""

from __future__ import annotations

import re

from hpcddp.cluster.conditions import holds
from hpcddp.cluster.environment import EnvRule, When
from hpcddp.cluster.nccl_variables import is_for_debugging
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import SchemaError, did_you_mean


def check_environment(profile: ClusterProfile) -> None:
    """SchemaError with the first thing that does not fit."""
    for at, rule in enumerate(profile.env_rules):
        try:
            _check_rule(rule, profile)
        except SchemaError as error:
            raise error.inside("env_rules", at) from None
    if profile.backend != "slurm" and profile.compute.container:
        words = f"ranks of {profile.name} are not started by Slurm; write the runtime's command into compute.python"
        raise SchemaError(("compute", "container"), words)
    rendezvous = profile.rendezvous
    if rendezvous.master_suffix and rendezvous.master_address == "numeric":
        words = f"`{rendezvous.master_suffix}` goes behind a name, and master_address is numeric; leave one of them out"
        raise SchemaError(("rendezvous", "master_suffix"), words)


def _check_rule(rule: EnvRule, profile: ClusterProfile) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*", rule.name, re.ASCII):
        raise SchemaError(("name",), f"`{rule.name}` is no name of a variable")
    if is_for_debugging(rule.name):
        words = f"{rule.name}: NVIDIA files it under debugging, and runs are timed; set it for one job by hand, if at all"
        raise SchemaError(("name",), words)
    if (rule.value is None) == (rule.command is None):
        raise SchemaError(("name",), f"{rule.name} needs a `value` or a `command`, and not both")
    if rule.name.startswith("NCCL_") and rule.when == When():
        words = f"{rule.name} needs a `when`: which fabric, NCCL version, node type or number of nodes it is for"
        raise SchemaError(("name",), words)
    for name in rule.when.node_type:
        if name not in profile.node_types:
            raise SchemaError(("when", "node_type"), f"no node type `{name}`{did_you_mean(name, profile.node_types)}")
    _check_conditions(rule.when)


def _check_conditions(when: When) -> None:
    for key, condition in (("nccl", when.nccl), ("nodes", when.nodes)):
        try:
            if condition is not None:
                holds(condition, 1)
        except UsageError as error:
            raise SchemaError(("when", key), str(error)) from None
