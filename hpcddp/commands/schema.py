"""`hpcddp schema`: what an editor needs to check a sweep or a profile as it is written."""

from __future__ import annotations

import click

from hpcddp.commands.options import print_json


@click.command()
@click.argument("document", type=click.Choice(["profile", "sweep"]))
def schema(document: str) -> None:
    """Print the JSON Schema of profiles or sweeps, for editors.

    An editor with a YAML language server checks and completes a document with the line `# yaml-language-server: $schema=FILE`.
    Sweeps and profiles of hpcddp have this line. Write the file beside the document:

    \b
    hpcddp schema sweep > sweep.schema.json
    hpcddp schema profile > profile.schema.json
    """
    if document == "profile":
        from hpcddp.cluster.json_schema import profile_schema

        print_json(profile_schema())
    else:
        from hpcddp.sweep.sweep_schema import sweep_schema

        print_json(sweep_schema())
