"""What is made of a Slurm that answers, or does not; and what `sbatch --test-only` takes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hpcddp.backends.slurm_commands import UnansweredError
from hpcddp.cli import main
from hpcddp.cluster.profile_file import read_profile
from hpcddp.detect.check import check_cluster
from hpcddp.detect.detect import Detected, detect_cluster
from hpcddp.detect.trial import Names, Trial, TrialVerdict, try_requests
from tests.detect.given_live import DENIED, NODES, answers
from tests.fake_slurm import Say, stand_ins

COMMANDS = ("scontrol", "sinfo", "sacctmgr", "sbatch")


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Slurm's commands, which answer; sbatch takes GPUs by node only, and wants an account."""
    found = stand_ins(tmp_path, monkeypatch, COMMANDS, "exit 1")
    for command, script in answers(tmp_path).items():
        found(command, script)
    return found


def read(detected: Detected, folder: Path) -> Any:
    """The profile that was written."""
    file = folder / "mine.yaml"
    file.write_text(detected.text, encoding="utf-8")
    return read_profile(file)


def test_what_is_answered_is_a_profile(say: Say, tmp_path: Path) -> None:
    profile = read(detect_cluster(None), tmp_path)
    assert list(profile.node_types) == ["a100", "cpu"]
    assert profile.default_node_type == "a100"
    assert profile.slurm.partitions["gpu"].max_walltime_min == 1440
    assert profile.slurm.partitions["gpu"].max_mb_per_core == 8192
    assert [name for name, each in profile.slurm.partitions.items() if each.default] == ["cpu"]
    assert (profile.slurm.gpu_request, profile.slurm.account_required) == ("gpus-per-node", True)
    assert [rule.name for rule in profile.slurm.qos] == [None, "long"]
    assert (profile.name, profile.slurm.max_array_size) == ("one", 1001)
    assert check_cluster(profile).of("differs") == []
    assert "1 drained: c1 (bad DIMM)" in profile.facts["node_types.cpu.count"].note
    assert "sinfo" not in (tmp_path / "log").read_text()  # it is denied on MareNostrum 5, and scontrol says the same


HALF = """case "$*" in *nodes) printf 'NodeNam';; *) exit 1;; esac"""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for what may take half a minute."""
    monkeypatch.setattr("hpcddp.detect.detect.READING_S", 0.7)
    monkeypatch.setattr("hpcddp.detect.detect.TIME_LIMIT_S", 1.4)
    monkeypatch.setattr("hpcddp.detect.check.READING_S", 0.7)
    monkeypatch.setattr("hpcddp.detect.check.TIME_LIMIT_S", 1.4)


@pytest.mark.parametrize(
    ("command", "script", "named", "known"),
    [
        ("scontrol", DENIED, ("nodes:", "partitions:", "configuration:"), ["qos"]),
        ("scontrol", HALF, ("nodes:", "partitions:", "configuration:"), ["qos"]),
        ("sacctmgr", DENIED, ("QOS:", "accounts:"), ["node_types", "partitions"]),
        ("sacctmgr", "exec sleep 60", ("QOS:", "accounts:"), ["node_types", "partitions"]),
        ("sbatch", "exec sleep 60", ("`sbatch --test-only`",), ["node_types", "partitions", "qos"]),
        ("sbatch", DENIED, ("`sbatch --test-only`",), ["node_types", "partitions", "qos"]),
    ],
)
def test_what_fails_is_named(  # noqa: PLR0913, PLR0917 - two fixtures and a table of four columns
    say: Say, hurried: None, tmp_path: Path, command: str, script: str, named: tuple[str, ...], known: list[str]
) -> None:
    say(command, script)
    start_s = time.monotonic()
    found = detect_cluster("mine")
    assert time.monotonic() - start_s < 5
    profile = read(found, tmp_path)
    for start in named:
        assert any(text.startswith(start) for text in found.remarks), found.remarks
    assert bool(profile.node_types) == ("node_types" in known)
    assert bool(profile.slurm.partitions) == ("partitions" in known)
    assert (len(profile.slurm.qos) > 1) == ("qos" in known)
    check_cluster(profile)


def test_missing_commands(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sacctmgr", "sbatch"):
        (tmp_path / "bin" / name).unlink()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    if any((Path("/bin") / name).exists() for name in COMMANDS):
        (tmp_path / "tools").mkdir()
        for tool in ("bash", "cat", "basename"):
            (tmp_path / "tools" / tool).symlink_to(f"/bin/{tool}")
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'tools'}")
    found = detect_cluster(None)
    assert any("This machine has no `sacctmgr`" in text for text in found.remarks)
    assert read(found, tmp_path).node_types["a100"].gpus == 4
    for name in ("scontrol", "sinfo"):
        (tmp_path / "bin" / name).unlink()
    with pytest.raises(UnansweredError, match="This machine has no `scontrol`"):
        detect_cluster(None)


AWAY = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


@pytest.mark.parametrize("script", [AWAY, "exec sleep 60"])
def test_without_its_controller_nothing_is_written(say: Say, hurried: None, tmp_path: Path, script: str) -> None:
    for command in ("scontrol", "sinfo", "sbatch"):
        say(command, script)
    file = tmp_path / "mine.yaml"
    for arguments in (("detect", "-o", file), ("check", "rcc")):
        ended = run("clusters", *arguments)
        assert (ended.exit_code, file.exists()) == (5, False)
        assert ended.stderr.startswith("Slurm did not answer:\n  nodes: `scontrol")


@pytest.mark.parametrize("kind", ["(null)", "accounting_storage/none"])
def test_without_accounting_nobody_is_asked_for_it(say: Say, tmp_path: Path, kind: str) -> None:
    config = tmp_path / "answer-config"
    config.write_text(config.read_text().replace("accounting_storage/slurmdbd", kind))
    say("sacctmgr", "echo 'You are not running a supported accounting_storage plugin' >&2; exit 1")
    found = detect_cluster(None)
    assert not any(text.startswith(("QOS", "accounts")) for text in found.remarks)
    assert read(found, tmp_path).slurm.account_required is False


SLICED = "NodeName=g{n} CoresPerSocket=8 CPUTot=16 Gres={gres} RealMemory=360000 Sockets=2 ThreadsPerCore=1 Partitions=gpu"


@pytest.mark.parametrize(
    ("gres", "default", "remark"),
    [
        (["gpu:a100:2,gpu:a100_1g.5gb:14(S:0)"], "a100", "a100 also has 14 MIG slices of type a100_1g.5gb"),
        (["gpu:1g.10gb:7", "gpu:1g.10gb:7", "gpu:h100:1"], "h100", "GPUs of 1g-10gb are MIG slices"),
        (["gpu:nvidia_a100_3g.20gb:8", "(null)"], "cpu", "GPUs of a100-3g-20gb are MIG slices"),
        (["gpu:a100_mig:28"], None, "GPUs of a100-mig are MIG slices"),
    ],
)
def test_slices_are_never_the_default(say: Say, tmp_path: Path, gres: list[str], default: str | None, remark: str) -> None:
    (tmp_path / "nodes").write_text("\n".join(SLICED.format(n=n, gres=text) for n, text in enumerate(gres)))
    show = " ".join(f"*{name}) cat {tmp_path / file};;" for name, file in {"nodes": "nodes", "config": "answer-config"}.items())
    say("scontrol", f'case "$*" in {show} *) exit 1;; esac')
    found = detect_cluster(None)
    assert read(found, tmp_path).default_node_type == default
    assert any(text.startswith(remark) for text in found.remarks), found.remarks


def test_text_of_an_older_slurm(say: Say, tmp_path: Path) -> None:
    node = (
        "NodeName=g1 CoresPerSocket=24 CPUEfctv=48 CPUTot=48 AvailableFeatures=(null) Gres=gpu:v100:4 RealMemory=360000 Sockets=2"
        " State=IDLE+DRAIN ThreadsPerCore=1 Partitions=gpu Reason=Gres=gpu:9 broke [root@2026-11-23T14:59:28]"
    )
    (tmp_path / "answer-nodes").write_text(node)
    (tmp_path / "answer-qos").write_text("normal||cpu=8,node=2||1-00:00:00||0|1.000000")
    found = detect_cluster(None)
    profile = read(found, tmp_path)
    assert (profile.node_types["v100"].gpus, profile.node_types["v100"].physical_cores) == (4, 48)
    assert profile.slurm.qos[0].max_walltime_min == 1440
    assert any("g1 (Gres=gpu:9 broke)" in text for text in found.remarks)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_commands(say: Say, tmp_path: Path) -> None:
    printed = run("clusters", "detect", "--name", "mine")
    assert printed.exit_code == 0
    assert printed.stdout.startswith("schema: 1\nname: mine\n")
    assert "1 drained" in printed.stderr
    file = tmp_path / "mine.yaml"
    assert run("clusters", "detect", "--name", "mine", "-o", file).stdout == ""
    assert file.read_text(encoding="utf-8") == printed.stdout
    again = run("clusters", "detect", "-o", file)
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    assert run("clusters", "check", "local").exit_code == 2  # it has no Slurm
    assert run("clusters", "check", file).exit_code == 0
    file.write_text(printed.stdout.replace("{value: 510904,", "{value: 515000,"), encoding="utf-8")
    drift = run("clusters", "check", file)
    assert drift.exit_code == 4
    assert "node_types.a100.memory_mb  515000   510904" in drift.stdout
    plain = json.loads(run("clusters", "check", file, "--format", "json").stdout)
    assert plain["differ"] == [{"field": "node_types.a100.memory_mb", "profile": 515000, "slurm": 510904}]
    for command in COMMANDS:
        say(command, DENIED)
    silent = run("clusters", "check", file)
    assert silent.exit_code == 5
    assert "Access/permission denied" in silent.stderr


def test_a_file_in_the_settings_folder_has_its_own_name(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "hpcddp" / "clusters"
    folder.mkdir(parents=True)
    assert run("clusters", "detect", "-o", folder / "site7.yaml").exit_code == 0
    assert run("clusters", "check", "site7").exit_code == 0


def test_a_thousand_nodes(say: Say, tmp_path: Path) -> None:
    """Their own part takes less than 2 s; `python -m tests.bench.cli_latency` has the time of the command."""
    gpu, cpu = NODES.splitlines()
    many = [(gpu if i % 3 else cpu).replace("NodeName=", f"NodeName=n{i}-") for i in range(1000)]
    (tmp_path / "answer-nodes").write_text("\n".join(many), encoding="utf-8")
    start_s = time.process_time()
    found = detect_cluster("mine")
    assert time.process_time() - start_s < 2
    assert [kind.count for kind in read(found, tmp_path).node_types.values()] == [666, 334]


TRIAL = Trial(partition="gpu", constraint=None, gres_type="a100", gpus=4)
NAMES = Names(accounts=("bio", "proj"), qos=(None, "dear", "usual"))


@pytest.fixture
def say_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """An sbatch that takes everything."""
    return stand_ins(tmp_path, monkeypatch, ["sbatch"], "exit 0")


def refusing(*refused: str) -> str:
    """An sbatch that refuses what fits one of these patterns of the shell, with the words behind it."""
    cases = "\n".join(f"{pattern}) echo '{words}' >&2; exit 1;;" for pattern, words in (text.split(": ") for text in refused))
    return f'case "$* " in\n{cases}\n*) exit 0;; esac'


def verdict(seconds: float = 20.0) -> TrialVerdict:
    return try_requests(TRIAL, ("gres", "gpus-per-node", "none"), NAMES, time.monotonic() + seconds)


@pytest.mark.parametrize(
    ("script", "option"),
    [
        (refusing(), "free"),
        (refusing("*--mem=*: not --mem here"), "forbidden"),
        (refusing("*--mem=0M*: not all the memory"), "nonzero"),
        (refusing("*--mem=1*: 1", "*--mem=0*: 0"), "forbidden"),
        ('case "$*" in *--mem=1000M*) exit 0;; *) echo "--mem must be given" >&2; exit 1;; esac', "required"),
    ],
)
def test_memory(say_sbatch: Say, script: str, option: str) -> None:
    say_sbatch("sbatch", script)
    assert (verdict().gpu_request, verdict().memory_option) == ("gres", option)


def test_the_first_way_that_is_taken(say_sbatch: Say) -> None:
    cases = "*--gres*) echo no GRES >&2; exit 1;; *--account=proj*) exit 0;; *) echo Invalid account >&2; exit 1;;"
    say_sbatch("sbatch", f'case "$*" in {cases} esac')
    found = verdict()
    assert (found.gpu_request, found.accounts, found.account_required) == ("gpus-per-node", ("proj",), True)


def test_a_qos_that_must_be_named(say_sbatch: Say) -> None:
    say_sbatch("sbatch", 'case "$*" in *--qos=usual*) exit 0;; *) echo "Invalid qos specification" >&2; exit 1;; esac')
    assert verdict().qos == "usual"
    say_sbatch("sbatch", "echo 'Requested node configuration is not available' >&2; exit 1")
    found = verdict()
    assert (found.gpu_request, found.why) == (None, "Requested node configuration is not available")


def test_no_answer_is_no_refusal(say_sbatch: Say) -> None:
    """A controller that is silent has refused nothing, so that nothing is known."""
    say_sbatch("sbatch", 'case "$*" in *--gres*) echo "Unable to contact slurm controller" >&2; exit 1;; *) exit 0;; esac')
    assert verdict().gpu_request is None
    say_sbatch("sbatch", "exec sleep 60")
    start_s = time.monotonic()
    assert "did not answer" in str(verdict(0.3).why)
    assert time.monotonic() - start_s < 5
