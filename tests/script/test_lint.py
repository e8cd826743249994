"""`hpcddp lint` on the world's scripts: a right one has no finding, a wrong one has those that it is there for.

The scripts are in `job_scripts/`, written anew after the page that their first comment names.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcddp.script.lint import lint_script
from hpcddp.script.option_table import SBATCH, SRUN
from tests import GOLDENS

SCRIPTS = Path(__file__).parent / "job_scripts"

WORKER = """\
#!/bin/bash
#SBATCH --job-name=mine
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=30
#SBATCH --open-mode=append

export SUBMITIT_EXECUTOR=slurm
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR

# it's rank by rank
srun --kill-on-bad-exit=1 --output=/runs/%j_%t.out \\
  bash -c 'export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)); exec "$@"' mine \\
  python3 -u -m hpcddp.worker --rank-of "that node's" # a comment's apostrophe
"""
"""As hpcddp starts its ranks."""

BROKEN_CONTRACT = {"time-minutes": ("--time=30", "--time=00:30:00", 6), "executor": ("EXECUTOR=slurm", "EXECUTOR=local", 14)}
"""Rule -> an edit of that script which breaks it, and the line that is named."""


@pytest.fixture(params=["with shellcheck", "without shellcheck"])
def _shellcheck(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if request.param == "without shellcheck":
        monkeypatch.setenv("PATH", str(tmp_path))


def found_in(text: str) -> list[tuple[str, int]]:
    return [(finding.rule, finding.line) for finding in lint_script(text)]


def read(file: Path) -> str:
    return file.read_bytes().decode()


def of(kind: str) -> list[Path]:
    return sorted((SCRIPTS / kind).glob("*.sh"))


@pytest.mark.usefixtures("_shellcheck")
@pytest.mark.parametrize("file", of("right"), ids=lambda file: file.stem)
def test_a_right_script_has_no_finding(file: Path) -> None:
    assert lint_script(read(file)) == []


@pytest.mark.usefixtures("_shellcheck")
@pytest.mark.parametrize("file", of("wrong"), ids=lambda file: file.stem)
def test_a_wrong_script_has_its_findings_only(file: Path) -> None:
    text = read(file)
    assert found_in(text) == [(rule, int(line)) for rule, line in re.findall(r"^# finding: (\S+) (\d+)", text, re.MULTILINE)]


@pytest.mark.parametrize("file", sorted((GOLDENS / "scripts").rglob("*.sh")), ids=lambda file: file.stem)
def test_golden_scripts_are_clean(file: Path) -> None:
    assert lint_script(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("rule", BROKEN_CONTRACT)
def test_what_the_worker_needs_is_asked_of_the_worker_only(rule: str) -> None:
    old, new, line = BROKEN_CONTRACT[rule]
    assert lint_script(WORKER) == []
    broken = WORKER.replace(old, new)
    assert found_in(broken) == [(rule, line)]
    assert found_in(broken.replace("-m hpcddp.worker", "train.py")) == []


@pytest.mark.parametrize(
    ("rule", "edits"),
    [
        ("stray-word", {"--job-name=mine": "-J my run"}),
        ("unknown-option", {"--job-name": "--partion"}),
        ("odd-character", {"--nodes=2": "--nodes=\u200b2"}),
        ("two-ranks-a-gpu", {"--gres=gpu:4": "--gpus=4"}),
        ("two-ranks-a-gpu", {"srun ": "srun --ntasks-per-node=8 "}),
        ("master-addr", {"-m hpcddp.worker": "train.py --dist-url tcp://127.0.0.1:0"}),
        ("master-addr", {'exec "$@"': 'export MASTER_ADDR=$HOSTNAME; exec "$@"'}),
        ("fixed-port", {"-m hpcddp.worker": "train.py --master-port 1234"}),
        ("fixed-port", {"MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))": "MASTER_PORT=${MASTER_PORT:-1234}"}),
        ("export", {"--kill-on-bad-exit=1": "--export NIL"}),
        ("no-wait", {'"that node\'s"': "x > log 2>&1 &"}),
        ("too-early", {'"that node\'s"': '"$SLURM_LOCALID"'}),
        ("too-early", {"export MASTER_ADDR": "export MASTER_ADDR LOCAL_RANK=${SLURM_LOCALID}"}),
        ("srun-size", {"--gres": "--cpus-per-task=8 --gres", "srun ": "srun -c 9 "}),
        ("srun-size", {"srun ": "srun --nodes 3 "}),
        ("no-srun", {"srun --kill-on-bad-exit=1 --output=/runs/%j_%t.out": "python train.py"}),
    ],
)
def test_other_faults_of_a_kind(rule: str, edits: dict[str, str]) -> None:
    text = WORKER
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new, 1)
    assert [found for found, _ in found_in(text)] == [rule]


@pytest.mark.parametrize(
    "line", ["srun bash -c 'x \\'", "#SBATCH -=3 -", "A='", 'srun "$(a (b (c (d', "srun bash -c '#'", "$A \\"]
)
def test_what_is_no_shell_is_no_error(line: str) -> None:
    assert isinstance(lint_script(f"#!/bin/bash\n{line}"), list)


def test_a_quote_that_is_not_closed_holds_one_word() -> None:
    broken = WORKER.replace("\n#SBATCH --nodes", '\n#SBATCH --comment="a run\n#SBATCH --nodes')
    assert found_in(broken) == [("stray-word", 3)]


@pytest.mark.parametrize("directive", ["--uenv=pytorch", "--exclus", "-Jmine", "--nodes 2 # two", "hetjob", "--mail-type=END"])
def test_what_sbatch_reads_is_no_fault(directive: str) -> None:
    assert found_in(WORKER.replace("\n\n", f"\n#SBATCH {directive}\n\n", 1)) == []


def test_shellcheck_speaks_with_its_own_numbers() -> None:
    assert found_in(WORKER.replace("# it's rank", "echo $(cat x)\n# it's rank")) == []
    found = found_in(WORKER.replace("# it's rank", "if [ -n x ]; then\n# it's rank"))
    assert found
    assert all(rule.startswith("SC") for rule, _ in found)


def test_steps_whose_options_are_known_later_are_left_to_the_script() -> None:
    added = (
        'GPUS=$(srun --ntasks=1 nvidia-smi -L)\nsrun --overlap sleep 1\nsrun hostname\nrun() { srun "${@:2}"; }\necho "$GPUS"\n'
    )
    assert found_in(WORKER.replace("# it's", f"{added}# it's")) == []


def test_a_script_of_another_language_has_a_header_only() -> None:
    assert found_in("#!/usr/bin/env python3\n#SBATCH --gpu-per-node=4\nprint('srun &')\n") == [("unknown-option", 2)]


def test_options_have_one_kind_each() -> None:
    """Those that both commands have, except wait: a number of seconds to srun."""
    assert [name for name in SBATCH if SRUN.get(name, SBATCH[name]) != SBATCH[name]] == ["wait"]
