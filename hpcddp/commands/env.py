"""`hpcddp env`: the environment that ranks run in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import cluster_option

if TYPE_CHECKING:
    from hpcddp.cluster.compute_environment import MadeEnvironment


@click.group()
def env() -> None:
    """Make the environment that ranks run in.

    \b
    hpcddp env create --cluster ./mycluster.yaml
    """


@env.command()
@cluster_option
@click.option("--squashfs", is_flag=True, help="Also as one file, from which a parallel file system reads it fast.")
def create(cluster: str | None, squashfs: bool) -> None:
    """Make it as the profile's `compute: {create: ...}` says: tool, folder, Python, requirements or lock file.

    What to write into the profile comes to stdout.

    \b
    hpcddp env create --cluster ./mycluster.yaml
    hpcddp env create --cluster ./mycluster.yaml --squashfs
    """
    from hpcddp.cluster.compute_environment import create_environment
    from hpcddp.submit.choose import pick_cluster

    click.echo("\n".join(_words(create_environment(pick_cluster(cluster), squashfs=squashfs))))


def _words(made: MadeEnvironment) -> list[str]:
    """What the profile says from now on, and where the versions are."""
    words = [f"# versions: {made.lock}", "compute:", "  kind: venv"]
    folder = made.python.parent.parent
    if made.image is None:
        return [*words, f"  python: {made.python}"]
    mount = f"squashfs-mount {made.image}:{folder} -- {made.python}"
    bound = f"apptainer exec --nv --mount type=bind,src={made.image},dst={folder},image-src=/ IMAGE.sif {made.python}"
    if shutil.which("squashfs-mount"):
        return [*words, f"  python: {mount}"]
    return [
        *words,
        "  # IMAGE.sif is a container of yours; the environment is mounted where it was made",
        f"  python: {bound}",
    ]
