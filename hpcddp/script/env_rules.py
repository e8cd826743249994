"""What the profile's `env_rules`, and a study's own variables, come to in a script.

What hangs on fabric, node type and nodes is known when it is rendered; what hangs on NCCL's version or on what a command prints,
in the job.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.cluster.environment import EnvRule, condition_holds
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest


@dataclass(frozen=True, kw_only=True)
class RuleLines:
    """The rules of one script."""

    exports: tuple[tuple[str, str, str], ...]
    """Name and value, for the whole job, and the source in words; empty where it is that of the one before."""
    nccl: tuple[str, ...]
    """Conditions on NCCL's version."""
    nccl_names: tuple[str, ...]
    """Variables that hang on them."""
    in_steps: Mapping[int, str]
    """Nodes of a step -> shell text that each of its ranks runs before it starts."""

    def in_step(self, request: JobRequest) -> str:
        """That of a step, and the variables of its point, which stand above all others."""
        own = [f"export {name}={shlex.quote(value)}" for name, value in request.env]
        return "\n".join(filter(None, (self.in_steps[request.nodes], *own)))


def rule_lines(profile: ClusterProfile, point: Point, step_nodes: Collection[int]) -> RuleLines:
    """The rules for a script whose steps have so many nodes, on nodes of the point's type."""
    by_nodes = {nodes: [rule for rule in profile.env_rules if _fits(rule, profile, point, nodes)] for nodes in step_nodes}
    fitting = [rule for rule in profile.env_rules if any(rule in rules for rules in by_nodes.values())]
    differing = {rule.name for rule in fitting if _is_of_step(rule) or not all(rule in rules for rules in by_nodes.values())}
    with_nccl = [rule for rule in fitting if rule.when.nccl]
    return RuleLines(
        exports=tuple(_exports([rule for rule in fitting if rule.name not in differing], profile.sources)),
        nccl=tuple(dict.fromkeys(_spaceless(rule.when.nccl or "") for rule in with_nccl)),
        nccl_names=tuple(dict.fromkeys(rule.name for rule in with_nccl)),
        in_steps={nodes: _in_step(rules, differing) for nodes, rules in by_nodes.items()},
    )


def _exports(rules: Sequence[EnvRule], sources: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    said = ""
    for rule in rules:
        source = "".join(each for each in " ".join(sources.get(rule.source, rule.source).split()) if each.isprintable())
        yield rule.name, str(rule.value), "" if source == said else source
        said = source


def _fits(rule: EnvRule, profile: ClusterProfile, point: Point, nodes: int) -> bool:
    """All but NCCL's version; ranks on CPUs have no NCCL."""
    when, fabric = rule.when, profile.fabric.name or ""
    node_type = point.layout.node_type or profile.default_node_type
    return (
        (when.fabric is None or when.fabric.lower() in fabric.lower())
        and (not when.node_type or node_type in when.node_type)
        and (when.nodes is None or condition_holds(when.nodes, nodes))
        and (when.nccl is None or point.device == "cuda")
    )


def _is_of_step(rule: EnvRule) -> bool:
    return rule.command is not None or rule.when.nccl is not None


def _in_step(rules: Sequence[EnvRule], names: Collection[str]) -> str:
    return "\n".join(_lines(rule for rule in rules if rule.name in names))


def _lines(rules: Iterable[EnvRule]) -> Iterable[str]:
    for rule in rules:
        line = _from_command(rule) if rule.command is not None else f"export {rule.name}={shlex.quote(str(rule.value))}"
        yield f'if [[ $HPCDDP_NCCL == *" {_spaceless(rule.when.nccl)} "* ]]; then {line}; fi' if rule.when.nccl else line


def _from_command(rule: EnvRule) -> str:
    """A comment or a last line of the command ends before the bracket does."""
    command = str(rule.command).strip()
    end = "\n" if "#" in command or "\n" in command else ""
    return f'found=$({command}{end}); if [ -n "$found" ]; then export {rule.name}="$found"; fi'


def _spaceless(condition: str) -> str:
    return "".join(condition.split())
