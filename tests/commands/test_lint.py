"""`hpcddp lint`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Run

TEMPLATE = """\
{% extends "base.sh.j2" %}
{% block environment %}
{{ super() }}
export MASTER_ADDR=localhost
{% endblock %}
"""


def test_a_script_that_hpcddp_renders_is_clean(run: Run, tmp_path: Path) -> None:
    """Nothing is printed, and it ends with 0."""
    assert run("render", "--cluster", "rcc", "--set", "account=a", "-o", "job.sh").exit_code == 0
    result = run("lint", "job.sh")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_findings_have_file_line_and_reason_and_end_with_4(run: Run, tmp_path: Path) -> None:
    """The same in JSON."""
    run("render", "--cluster", "rcc", "--set", "account=a", "-o", "job.sh")
    text = (tmp_path / "job.sh").read_text().replace("SUBMITIT_EXECUTOR=slurm", "SUBMITIT_EXECUTOR=local")
    (tmp_path / "job.sh").write_text(text)
    line = next(at for at, each in enumerate(text.splitlines(), start=1) if each.startswith("srun "))
    result = run("lint", "job.sh")
    assert result.exit_code == 4
    reason = "no `export SUBMITIT_EXECUTOR=slurm` above srun: submitit's job side does not find out what it runs in"
    assert result.stdout == f"job.sh:{line}: {reason} [executor]\n"
    found = json.loads(run("lint", "job.sh", "--format", "json").stdout)
    assert found == [{"file": "job.sh", "line": line, "rule": "executor", "text": reason}]


def test_of_a_template_the_line_is_its_own(run: Run, tmp_path: Path) -> None:
    """Once, in however many scripts it is; a template that comes with hpcddp has none."""
    (tmp_path / "mine.sh.j2").write_text(TEMPLATE)
    result = run("lint", "mine.sh.j2", "--cluster", "rcc")
    assert result.exit_code == 4
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{tmp_path / 'mine.sh.j2'}:4: MASTER_ADDR: ")
    (tmp_path / "mine.sh.j2").write_text(TEMPLATE.replace("export MASTER_ADDR=localhost\n", ""))
    assert run("lint", "mine.sh.j2", "--cluster", "rcc").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nosuch.sh",), "does not exist"),
        (("job.sh", "--cluster", "rcc"), "--cluster is for a template"),
        (("mine.sh.j2", "--cluster", "local"), "local has no Slurm"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """Are said, with 2."""
    (tmp_path / "job.sh").write_text("#!/bin/bash\n")
    (tmp_path / "mine.sh.j2").write_text(TEMPLATE)
    result = run("lint", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_comment_in_another_encoding_is_none_of_its_business(run: Run, tmp_path: Path) -> None:
    """As sbatch has it."""
    (tmp_path / "job.sh").write_bytes(b"#!/bin/bash\n# caf\xe9\n#SBATCH --gpu-per-node=4\n")
    result = run("lint", "job.sh")
    assert (result.exit_code, result.stdout.partition(": ")[0]) == (4, "job.sh:3")


def test_without_shellcheck_it_says_so(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And checks the rest."""
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpu-per-node=4\nif true; then\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("lint", "job.sh")
    assert "shellcheck is not installed here" in result.stderr
    assert "[unknown-option]" in result.stdout
    assert "[SC" not in result.stdout


def test_it_imports_neither_torch_nor_pandas_nor_matplotlib(tmp_path: Path) -> None:
    """On a login node a check is over at once."""
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpu-per-node=4\n")
    code = "import sys; from hpcddp.cli import main\ntry: main(['lint', 'job.sh'])\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert not any(f"'{name}'" in done.stdout.splitlines()[-1] for name in ("torch", "pandas", "matplotlib", "jinja2", "yaml"))
