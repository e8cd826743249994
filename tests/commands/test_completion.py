"""What a shell completes: commands, clusters, sweeps, groups and node types, in bash, zsh and fish themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from hpcddp.cli import main
from hpcddp.cluster.profile_names import profile_names
from hpcddp.sweep.shipped import shipped_sweeps
from tests.commands.conftest import Run
from tests.machine import cannot_run

SWEEP = """\
schema: 1
cluster: rcc
points:    # two groups
  # of these
  in-node: {layout.gpus_per_node: [1, 2]}

  "two nodes":
    layout.nodes: [2]
    where: ranks <= 8
slurm: {walltime_min: 5}
"""

BASE = "schema: 1\nname: base\ntitle: x\nnode_types: {fat: {gpus: 4, cpu: null}, thin: {gpus: 1}}\n"


def offered(*words: str) -> tuple[list[str], bool]:
    """What is offered for the last of the words, and whether files are, too."""
    found = ShellComplete(main, {}, "hpcddp", "_HPCDDP_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found if item.type == "plain"], any(item.type == "file" for item in found)


@pytest.mark.usefixtures("run")
def test_commands_and_their_values(tmp_path: Path) -> None:
    assert offered("pl") == (["plan"], False)
    assert offered("clusters", "sh") == (["show"], False)
    assert offered("schema", "") == (["profile", "sweep"], False)
    assert offered("plan", "") == ([], True)
    assert offered("init", "") == ([sweep.name for sweep in shipped_sweeps()], False)
    assert offered("init", "--cluster", "rcc", "") == ([], False)


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    "line", ["clusters show", "clusters check", "render --cluster", "submit x.yaml --cluster", "init --cluster"]
)
def test_clusters(tmp_path: Path, line: str) -> None:
    words = line.split()
    assert offered(*words, "") == (profile_names(), True)
    own = tmp_path / "config" / "hpcddp" / "clusters"
    own.mkdir(parents=True)
    (own / "rcc-mine.yaml").write_text("not looked into\n")
    assert offered(*words, "rcc") == (["rcc", "rcc-mine"], True)
    assert offered(*words, "./rcc") == ([], True)


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("points", [SWEEP, 'points: {in-node: {a: [1], where: "b: c"}, "two nodes": {a: [{b: 1}]}}\n'])
def test_groups(tmp_path: Path, points: str) -> None:
    (tmp_path / "mine.yaml").write_text(points)
    for words in ("plan mine.yaml", "submit --group in-node mine.yaml", "render mine.yaml --cluster rcc"):
        assert offered(*words.split(), "--group", "") == (["in-node", "two nodes"], False)
    assert offered("plan", "mine.yaml", "--group", "tw") == (["two nodes"], False)
    assert offered("plan", "nosuch.yaml", "--group", "") == ([], False)
    assert offered("plan", "--group", "") == ([], False)


@pytest.mark.usefixtures("run")
def test_node_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    own = "schema: 1\nname: mine\nextends: base.yaml\nnode_types:\n  new: {gpus: 1}\n  thin: null\n"
    (tmp_path / "mine.yaml").write_text(own)
    types = (["v100", "a40", "v100-sxm2", "l40s"], False)
    assert offered("render", "--cluster", "rcc", "--node-type", "") == types
    assert offered("render", "--cluster", "./mine.yaml", "--node-type", "") == (["fat", "new"], False)
    assert offered("clusters", "survey", "base.yaml", "--node-type", "") == (["fat", "thin"], False)
    assert offered("render", "--node-type", "") == ([], False)
    monkeypatch.setenv("HPCDDP_CLUSTER", "rcc")
    assert offered("bench", "comm", "--node-type", "") == types


CODE = """
import sys
from hpcddp.cli import main
try:
    main(sys.argv[1:], prog_name="hpcddp")
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def imported(words: Sequence[str], **env: str) -> set[str]:
    """Modules after a call."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "line", ["hpcddp clusters show r", "hpcddp plan mine.yaml --group i", "hpcddp render --cluster rcc --node-type v"]
)
def test_completing_imports_what_help_does(run: Run, tmp_path: Path, line: str) -> None:
    """And the names of profiles: so it is as fast."""
    (tmp_path / "mine.yaml").write_text(SWEEP)
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_HPCDDP_COMPLETE": "bash_complete"}
    more = imported([], **words) - imported(["--help"])
    assert more <= {"click.shell_completion", "hpcddp.cluster", "hpcddp.cluster.profile_names"}


PATIENCE_S = 20

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ". {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; . {script}"),
    "fish": (["fish", "--no-config", "-i"], "source {script}"),
}


@pytest.mark.dear
@pytest.mark.parametrize("shell", SHELLS)
def test_in_the_shell_itself(run: Run, tmp_path: Path, shell: str) -> None:
    command, load = SHELLS[shell]
    if shutil.which(command[0]) is None:
        cannot_run(f"no {shell}: apt-get install {shell}")
    script, plan = tmp_path / "script", tmp_path / "plan.json"
    script.write_text(run("completion", shell).stdout)
    run("init", "rcc-bigmnist")
    lines = (
        load.format(script=script),
        f"hpcddp clus\tsho\tmarc\t> {tmp_path}/shown",
        f"hpcddp plan rcc-bigmnist.yaml --group brea\t--format json > {plan}",
    )
    typed(command, lines, tmp_path)
    assert "\nname: marconi100\n" in (tmp_path / "shown").read_text()
    assert '"breakdown"' in plan.read_text()


def typed(command: Sequence[str], lines: Sequence[str], home: Path) -> None:
    """Starts the shell at a terminal of its own and types the lines, each when it waits for input."""
    ours, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "HOME": str(home), "TERM": "xterm", "XDG_DATA_HOME": str(home / "data")}
    at_terminal = ["setsid", "--ctty", *command]
    with subprocess.Popen(at_terminal, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env=env) as shell:
        os.close(theirs)
        prompted(ours)
        for number, line in enumerate(lines):
            done, deadline = home / f"done-{number}", time.monotonic() + PATIENCE_S
            os.write(ours, f"{line}; touch {done}\r".encode())
            while not done.exists():
                assert time.monotonic() < deadline, line
                time.sleep(0.02)
            prompted(ours)
        os.close(ours)
        shell.wait(timeout=PATIENCE_S)


def prompted(terminal: int) -> None:
    """Reads what a shell shows until it shows no more: then it waits for input."""
    ready = select.select([terminal], [], [], PATIENCE_S)[0]
    while ready:
        os.read(terminal, 10_000)
        ready = select.select([terminal], [], [], 0.3)[0]
