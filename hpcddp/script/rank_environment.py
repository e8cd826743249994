"""Where ranks run, as the values of templates: their container with the folders that it shows, and variables, of the profile's
`env_rules` and of the study.

What hangs on fabric, node type and nodes is known when the script is rendered; what hangs on NCCL's version or on what a command
prints, in the job. Variables reach the ranks of a container whatever its image sets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.cluster.environment import Container, EnvRule, condition_holds
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest

BY_SRUN = ("pyxis", "cscs")
"""Runtimes that srun itself starts, by options; the others are commands in front of the ranks' own."""

VARIABLE = re.compile(r"\$\{?(\w+)\}?")
SET_BY_SCRIPT = ("HPCDDP_RUNS", "PWD")

FROM_SCRIPT = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "PYTHONUNBUFFERED")
"""Variables of every script."""


@dataclass(frozen=True, kw_only=True)
class ContainerLines:
    """What the template writes."""

    runtime: str
    image: str
    """A shell word."""
    gpus: str
    shown: tuple[str, ...]
    """Folders, shell words; with another name inside there are two."""
    names: tuple[str, ...]
    """Variables that the job sets for its ranks, or that paths of theirs begin with."""

    @property
    def is_by_srun(self) -> bool:
        return self.runtime in BY_SRUN


def container_lines(profile: ClusterProfile, folders: Sequence[str], variables: Iterable[str] = ()) -> ContainerLines | None:
    """None where ranks run in no container. `folders`: what they read and write, may hold variables; `variables`: a study's."""
    container = profile.compute.container
    if container is None:
        return None
    paths = dict.fromkeys(folders)
    in_paths = [name for path in paths for name in VARIABLE.findall(path) if name not in SET_BY_SCRIPT]
    names = [*profile.env, *(rule.name for rule in profile.env_rules), *FROM_SCRIPT, *variables, *in_paths]
    return ContainerLines(
        runtime=container.runtime,
        image=shell_word(container.image),
        gpus=container.gpus,
        shown=(*map(_mountable, paths), *_binds(container)),
        names=tuple(dict.fromkeys(names)),
    )


def _binds(container: Container) -> Iterator[str]:
    for bind in container.binds:
        outside, _, inside = bind.partition(":")
        yield " ".join(map(_mountable, [outside, inside] if inside else [outside]))


def _mountable(path: str) -> str:
    """As a shell word; UsageError for a path that no runtime can be given."""
    if re.search(r"[:,\n]", path):
        raise UsageError(f"`{path}` cannot be mounted in a container: a colon or a comma would end its name. Use another path.")
    return shell_word(path)


def shell_word(path: str) -> str:
    """In double quotes, where variables are filled in and nothing else. One that is not set leads nowhere: alone it would be the
    root folder.
    """
    text, at = "", 0
    for found in VARIABLE.finditer(path):
        name = found[1]
        text += _escaped(path[at : found.start()]) + (f"${name}" if name in SET_BY_SCRIPT else f"${{{name}-/unset}}")
        at = found.end()
    text += _escaped(path[at:])
    return f'"{re.sub("^~(?=/|$)", "$HOME", text)}"'


def _escaped(text: str) -> str:
    return re.sub(r'(["$`\\])', r"\\\1", text)


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
        own = [f"  export {name}={shlex.quote(value)}" for name, value in request.env]
        return "\n".join(filter(None, (self.in_steps[request.nodes], *own)))


def rule_lines(profile: ClusterProfile, point: Point, step_nodes: Collection[int]) -> RuleLines:
    """The rules for a script whose steps have so many nodes, on nodes of the point's type."""
    by_nodes = {nodes: [rule for rule in profile.env_rules if _fits(rule, profile, point, nodes)] for nodes in step_nodes}
    fitting = [rule for rule in profile.env_rules if any(rule in rules for rules in by_nodes.values())]
    in_steps = [rule for rule in fitting if rule.command is not None or rule.when.nccl is not None]
    in_steps += [rule for rule in fitting if not all(rule in rules for rules in by_nodes.values())]
    differing = {rule.name for rule in in_steps}
    with_nccl = [rule for rule in fitting if rule.when.nccl]
    return RuleLines(
        exports=tuple(_exports([rule for rule in fitting if rule.name not in differing], profile.sources)),
        nccl=tuple(dict.fromkeys(_spaceless(rule.when.nccl or "") for rule in with_nccl)),
        nccl_names=tuple(dict.fromkeys(rule.name for rule in with_nccl)),
        in_steps={nodes: "\n".join(_lines(rules, differing)) for nodes, rules in by_nodes.items()},
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


def _lines(rules: Sequence[EnvRule], names: Collection[str]) -> Iterator[str]:
    """Of a function's body."""
    for rule in (rule for rule in rules if rule.name in names):
        indent, export = "    " if rule.when.nccl else "  ", f"export {rule.name}={shlex.quote(str(rule.value))}"
        body = [indent + export] if rule.command is None else _from_command(rule.name, rule.command.strip(), indent)
        nccl = _spaceless(rule.when.nccl or "")
        yield from [f'  if [[ $HPCDDP_NCCL == *" {nccl} "* ]]; then', *body, "  fi"] if nccl else body


def _from_command(name: str, command: str, indent: str) -> Iterator[str]:
    """A comment or a last line of the command ends before the bracket does."""
    lines = command.split("\n")
    if len(lines) > 1 or "#" in command:
        yield f"{indent}found=$("
        yield from (f"{indent}  {line}" if _may_indent(lines) else line for line in lines)
        yield f"{indent})"
    else:
        yield f"{indent}found=$({command})"
    yield f'{indent}if [ -n "$found" ]; then export {name}="$found"; fi'


def _may_indent(lines: Sequence[str]) -> bool:
    """Whether no text in quotes and no here-document goes over lines, and no word does."""
    return not any(line.endswith("\\") or "<<" in line or line.count("'") % 2 or line.count('"') % 2 for line in lines)


def _spaceless(condition: str) -> str:
    return "".join(condition.split())
