"""What a job script may not do, each rule with a script that breaks it; every golden script keeps them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.script.findings import Rule
from hpcddp.script.lint import RULES, lint_script
from hpcddp.script.lint_environment import HARMFUL
from hpcddp.script.shell_text import Script
from tests.golden import FOLDER

GOOD = """\
#!/bin/bash
#SBATCH --job-name=mine
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --time=30
#SBATCH --open-mode=append

export SUBMITIT_EXECUTOR=slurm
module load pytorch || exit 1
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR

# it's rank by rank # shellcheck disable=SC2016
# shellcheck disable=SC2016
srun --nodes=2 --ntasks-per-node=4 --cpus-per-task=8 \\
  --kill-on-bad-exit=1 --output=/runs/%j_%t.out --error=/runs/%j_%t.err \\
  bash -c 'export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)); exec "$@"' mine \\
  python3 train.py --rank-of "that node's" # a comment's apostrophe
rc=$?
exit "$rc"
"""

HEADER = "#SBATCH --job-name=mine\n"

BAD: dict[str, list[tuple[str, str, int]]] = {
    "shebang": [("#!/bin/bash\n", "\n", 1)],
    "no-nodes": [("#SBATCH --nodes=2\n", "", 2)],
    "no-ntasks-per-node": [("#SBATCH --ntasks-per-node=4\n", "", 2)],
    "no-time": [("#SBATCH --time=30\n", "", 2)],
    "no-open-mode": [("#SBATCH --open-mode=append\n", "", 2), ("=append", "=truncate", 8)],
    "late-option": [("MASTER_ADDR=$(", "#SBATCH --qos=dev\nMASTER_ADDR=$(", 12)],
    "empty-option": [(HEADER, f"{HEADER}#SBATCH --{each}\n", 3) for each in ("qos=None", "exclusive=False", "account=")],
    "repeated-option": [(HEADER, f"{HEADER}#SBATCH -J other\n", 3)],
    "time-minutes": [("--time=30", "--time=00:30:00", 7), ("--time=30", "-t 1-0", 7)],
    "ntasks-twice": [(HEADER, f"{HEADER}#SBATCH -n 8\n", 3)],
    "no-gpus": [
        ("--gres=gpu:4", f"--{each}", 6) for each in ("gres=gpu:", "gres=gpu:0", "gpus-per-node=", "gpus-per-node=v100:0")
    ],
    "gpus-twice": [(HEADER, f"{HEADER}#SBATCH --gpus-per-node=4\n", 7)],
    "hint-twice": [(HEADER, f"{HEADER}#SBATCH --hint=nomultithread\n#SBATCH --threads-per-core=1\n", 4)],
    "signal-usr1": [(HEADER, f"{HEADER}#SBATCH --signal=USR1@90\n", 3)],
    "signal-batch": [(HEADER, f"{HEADER}#SBATCH --signal=B:USR2@90\n", 3)],
    "no-srun": [("srun", "mpirun", 1)],
    "second-srun": [("rc=$?", "rc=$?\nsrun --nodes=2 --ntasks-per-node=4 python3 more.py", 22)],
    "srun-nodes": [("srun --nodes=2", "srun", 17), ("srun --nodes=2", "srun -N1", 17)],
    "srun-ntasks-per-node": [("srun --nodes=2 --ntasks-per-node=4", "srun --nodes=2", 17)],
    "srun-ntasks": [("srun ", "srun -n 7 ", 17)],
    "srun-cpus-per-task": [(" --cpus-per-task=8 \\\n", " \\\n", 17)],
    "kill-on-bad-exit": [("--kill-on-bad-exit=1", "--unbuffered", 17), ("--kill-on-bad-exit=1", "-K0", 17)],
    "cpu-bind-space": [("--kill-on", "--cpu-bind none --kill-on", 17)],
    "cpu-bind-rank": [("--kill-on", "--cpu-bind=rank --kill-on", 17)],
    "hint-cpu-bind": [("--kill-on", "--hint=nomultithread --cpu-bind=cores --kill-on", 17)],
    "gpus-per-task": [("--gres=gpu:4", "--gpus-per-task=1", 17)],
    "half-logs": [(" --error=/runs/%j_%t.err", "", 17), (" --output=/runs/%j_%t.out", "", 17)],
    "shared-log": [("%j_%t.out", "%j.out", 17)],
    "unchecked-setup": [(" || exit 1", "", 11), ("module load pytorch || exit 1", ". venv/bin/activate", 11)],
    "exit-code": [("rc=$?\n", "echo done\n", 17), ('exit "$rc"', "exit 0", 22), ('exit "$rc"', "rm -f x", 22)],
    "fixed-port": [("=$((10000 + SLURM_JOB_ID % 20000))", "=29500", 17), ("export MASTER_ADDR", "export MASTER_PORT=29500", 13)],
    "launch-node": [('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "$SLURM_LAUNCH_NODE_IPADDR", 12)],
    "too-early": [
        ("export MASTER_ADDR", "export RANK=$SLURM_PROCID", 13),
        ("bash -c '", 'bash -c "echo ${SLURM_LOCALID}" \'', 17),
    ],
    "executor": [("export SUBMITIT_EXECUTOR=slurm\n", "\n", 17), ("EXECUTOR=slurm", "EXECUTOR=local", 17)],
    "export-none": [(HEADER, f"{HEADER}#SBATCH --export=NONE\n", 18)],
}
"""Rule -> edits of the good script that break it, each with the line that is named."""

HARM = {
    "NCCL_IB_HCA": "mlx5_0,mlx5_1",
    "NCCL_PROTO": "Simple",
    "NCCL_ALGO": "Ring",
    "NCCL_NET_GDR_LEVEL": "3",
    "NCCL_DEBUG": "INFO",
    "NCCL_SOCKET_IFNAME": "eth0",
}
"""A harmful value; of the other variables 1 is one."""


def rules_broken(text: str) -> list[tuple[str, int]]:
    """By our own rules."""
    return [(finding.rule, finding.line) for finding in lint_script(text) if not finding.rule.startswith("SC")]


def edited(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_script_has_no_findings() -> None:
    """Comments, quotes in quotes and continued lines are read as the shell does."""
    assert lint_script(GOOD) == []


@pytest.mark.parametrize("file", sorted((FOLDER / "scripts").rglob("*.sh")), ids=lambda file: file.stem)
def test_golden_scripts_are_clean(file: Path) -> None:
    """Every one of them."""
    assert lint_script(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("rule", "old", "new", "line"),
    [(rule, *edit) for rule, edits in BAD.items() for edit in edits],
    ids=lambda each: repr(each)[:30],
)
def test_each_rule_finds_its_bad_example(rule: str, old: str, new: str, line: int) -> None:
    """At its line."""
    assert (rule, line) in rules_broken(edited(old, new))


@pytest.mark.parametrize("name", HARMFUL)
def test_each_harmful_variable_is_found(name: str) -> None:
    """Wherever it is set; where the comment above says its source, it is what a site documents."""
    value = HARM.get(name, "1")
    setting = f"export {name}={value}"
    assert (name, 13) in rules_broken(edited("export MASTER_ADDR", setting))
    assert (name, 17) in rules_broken(edited("bash -c '", f"bash -c '{setting}; "))
    commented = edited("export MASTER_ADDR", f"# source: docs.site.org/network\n{setting}")
    assert name not in [rule for rule, _ in rules_broken(commented)]


@pytest.mark.parametrize(
    "setting", ["NCCL_NET_GDR_LEVEL=PHB", "NCCL_DEBUG=VERSION", "NCCL_IB_HCA=^mlx5_bond_0", "NCCL_PROTO=^LL128"]
)
def test_harmless_values_are_not_found(setting: str) -> None:
    """Words in place of numbers, what leaves something out, and few words of NCCL's."""
    assert rules_broken(edited("export MASTER_ADDR", f"export {setting}")) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_rule_is_without_a_bad_example(rule: Rule) -> None:
    """Those above; each rule is one function."""
    edits = [edit for edits in BAD.values() for edit in edits]
    texts = [edited(old, new) for old, new, _ in edits] + [edited("export MASTER_ADDR", "export NCCL_P2P_DISABLE=1")]
    assert any(list(rule(Script(text=text))) for text in texts)


def test_shellcheck_speaks_with_its_own_numbers() -> None:
    """At its line, and with its words."""
    found = lint_script(edited("export MASTER_ADDR", 'export MASTER_ADDR\necho $(cat "a b")'))
    assert [(finding.rule, finding.line) for finding in found] == [("SC2005", 14), ("SC2046", 14)]


def test_steps_whose_options_are_known_later_are_left_to_the_script() -> None:
    """And so is what only asks something."""
    added = (
        'GPUS=$(srun --ntasks=1 nvidia-smi -L)\nsrun --overlap sleep 1\nsrun hostname\nrun() { srun "${@:2}"; }\necho "$GPUS"\n'
    )
    assert rules_broken(edited("# it's", f"{added}# it's")) == []
