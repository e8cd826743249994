"""The container that ranks run in, as the values of templates/container.sh.j2: which folders it shows, and which variables reach
the ranks whatever its image sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpcddp.cluster.environment import Container
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError

BY_SRUN = ("pyxis", "cscs")
"""Runtimes that srun itself starts, by options; the others are commands in front of the ranks' own."""

VARIABLE = re.compile(r"\$\{?(\w+)\}?")

SET_BY_SCRIPT = ("HPCDDP_RUNS", "PWD")

FROM_SCRIPT = ("MASTER_ADDR", "OMP_NUM_THREADS", "PYTHONUNBUFFERED")
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
        raise UsageError(
            f"`{path}` cannot be shown in a container: a colon or a comma in it would end its name; put it elsewhere"
        )
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
