"""`hpcddp completion`, and what a shell offers at Tab besides commands, options and files: clusters, sweeps, groups, node types.

It imports no more than `--help` does, so YAML is not parsed here: names are found by how such files are laid out, and a file that
is laid out in another way offers none.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.core.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SWEEPS = Path(__file__).parents[1] / "sweeps"


def cluster_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Profiles by name, shipped and the user's own; or files."""
    from click.shell_completion import CompletionItem

    from hpcddp.cluster.profile_names import own_profiles, profile_names

    names = [] if "/" in incomplete else _starting(incomplete, [*profile_names(), *own_profiles()])
    return [CompletionItem(incomplete, type="file"), *names]


def shipped_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Sweeps that `init` copies."""
    return [] if ctx.params.get("cluster") else _starting(incomplete, sorted(file.stem for file in SWEEPS.glob("*.yaml")))


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Groups of the sweep file that was given before."""
    return _starting(incomplete, _keys_below(_text(_file(ctx, "sweep")), "points"))


def node_type_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Node types of the cluster that was given before, by option or as a file, or that HPCDDP_CLUSTER names."""
    cluster = ctx.params.get("cluster") or os.environ.get("HPCDDP_CLUSTER")
    file = _file(ctx, "file") if "cluster" not in ctx.params else _profile(cluster) if cluster else None
    return _starting(incomplete, _node_types(file, ()))


def _starting(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _file(ctx: click.Context, argument: str) -> Path | None:
    """The file that was given before. Behind an option that still lacks its value click has not yet made it the argument's."""
    given = ctx.params.get(argument) or next(iter(ctx.args), None)
    return Path(given) if given else None


def _profile(cluster: str, folder: Path = Path()) -> Path:
    """The file of that profile; `folder` is where the paths of files begin."""
    from hpcddp.cluster.profile_names import FOLDER, is_profile_file, own_profiles

    return folder / cluster if is_profile_file(cluster) else own_profiles().get(cluster, FOLDER / f"{cluster}.yaml")


def _text(file: Path | None) -> str:
    """What is in the file; nothing where it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8") if file else ""
    return ""


def _node_types(file: Path | None, above: tuple[Path, ...]) -> list[str]:
    """Those of a profile, and of the one that it extends."""
    if file is None or file in above:
        return []
    text = _text(file)
    base = re.search(r"^extends:[ \t]*([^\s#]+)", text, re.MULTILINE)
    of_base = _profile(base[1], file.parent) if base else None
    own = list(_keys_below(text, "node_types"))
    removed = set(own) & set(re.findall(r"([\w.-]+)[ \t]*:[ \t]*null\b", text))
    return [name for name in dict.fromkeys([*_node_types(of_base, (*above, file)), *own]) if name not in removed]


def _keys_below(text: str, key: str) -> Iterator[str]:
    """Keys of the mapping `key` at the top of a YAML file, as text: indented lines, or `{...}`."""
    found = re.search(rf"^{key}:[ \t]*(.*(?:\n(?:[ \t#].*)?)*)", text, re.MULTILINE)
    block = re.sub(r"(?<!\S)#.*", "", found[1]) if found else ""
    if block.startswith("{"):
        return _flow_keys(block)
    lines = re.findall(r"^([ \t]+)([^\s:]+|\"[^\"]+\"):(?:\s|$)", block, re.MULTILINE)
    return (name.strip("\"'") for indent, name in lines if indent == lines[0][0])


def _flow_keys(block: str) -> Iterator[str]:
    """Keys of the outer mapping of `{a: {b: 1}, c: [2]}`."""
    depth, word = 0, ""
    for character in block:
        depth += (character in "{[") - (character in "}]")
        if character == ":" and depth == 1:
            yield word.strip(" \n\"'")
        word = "" if character in "{,:" else word + character


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for completion at Tab: commands, options, clusters, sweeps, groups, node types.

    Write it to a file once, and source the file when the shell starts. In zsh, source it after compinit; fish finds it by itself.

    \b
    hpcddp completion bash > ~/.hpcddp.bash; echo '. ~/.hpcddp.bash' >> ~/.bashrc
    hpcddp completion zsh > ~/.hpcddp.zsh; echo '. ~/.hpcddp.zsh' >> ~/.zshrc
    hpcddp completion fish > ~/.config/fish/completions/hpcddp.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"This version of click has no completion for {shell}. Upgrade it: `pip install --upgrade click`.")
    click.echo(kind(ctx.find_root().command, {}, "hpcddp", "_HPCDDP_COMPLETE").source())
