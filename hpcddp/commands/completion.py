"""`hpcddp completion`: what a shell needs to complete hpcddp's commands."""

from __future__ import annotations

import click

from hpcddp.core.errors import UsageError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script by which a shell completes hpcddp at Tab: commands, options, clusters, sweeps, groups, node types.

    Write it to a file once, and have the shell read that at its start; zsh behind its line with compinit, fish by itself.

    \b
    hpcddp completion bash > ~/.hpcddp.bash; echo '. ~/.hpcddp.bash' >> ~/.bashrc
    hpcddp completion zsh > ~/.hpcddp.zsh; echo '. ~/.hpcddp.zsh' >> ~/.zshrc
    hpcddp completion fish > ~/.config/fish/completions/hpcddp.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"this version of click has no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "hpcddp", "_HPCDDP_COMPLETE").source())
