"""The container that ranks are started in, and their variables, beside stand-ins that print how they are called."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import pytest
import tomllib

from hpcddp.cluster.environment import Container, EnvRule, When
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.script.lint import lint_script
from hpcddp.script.render import ScriptLaunch, launch_command, render
from tests.given_plan import allocation_plan
from tests.script.test_render import AWKWARD, SUBMITTED, allocation_script, by_hand, plain_profile, stand_ins
from tests.script.test_resources import requested

Runtime = Literal["apptainer", "pyxis", "podman-hpc", "cscs", "charliecloud"]
RUNTIMES = get_args(get_type_hints(Container)["runtime"])

SRUN = """\
#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 != --container* && $1 != --environment* ]] || printf '%s\\n' "$1"; shift; done
[ "$1" != bash ] || shift 4
printf '%s\\n' "$@"
"""


def contained(runtime: Any, **facts: Any) -> ClusterProfile:
    profile, _, _ = plain_profile(container=Container(**{"image": "$HOME/torch.sif", "runtime": runtime, **facts}))
    return dataclasses.replace(profile, env_rules=())


def called(tmp_path: Path, profile: ClusterProfile, launch: ScriptLaunch) -> list[str]:
    """Words that start the ranks: srun's options for a container, then what each task runs."""
    _, point, request = plain_profile()
    text = render(profile, point, request, launch)
    assert lint_script(text) == []
    env = {**stand_ins(tmp_path), "HOME": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_JOB_ACCOUNT": "proj"}
    (tmp_path / "bin" / "srun").write_text(SRUN)
    for name in ("apptainer", "ch-run", "podman-hpc"):
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    done = subprocess.run(["bash"], input=text, env=env, cwd=tmp_path, text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def launch_on(*folders: str) -> ScriptLaunch:
    return dataclasses.replace(SUBMITTED, command="python3 -c pass", folders=folders)


@pytest.mark.parametrize("gpus", ["nvidia", "amd", "none"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_command_lines(tmp_path: Path, runtime: Runtime, gpus: str) -> None:
    words = called(tmp_path, contained(runtime, gpus=gpus, binds=("/usr", "/bin:/opt/bin")), launch_on(str(tmp_path)))
    image, here = f"{tmp_path}/torch.sif", str(tmp_path)
    shown = [f"{here}:{here}", "/usr:/usr", "/bin:/opt/bin"]
    python = ["python3", "-c", "pass"]
    names = "MASTER_ADDR,MASTER_PORT,OMP_NUM_THREADS,PYTHONUNBUFFERED"
    if runtime == "apptainer":
        start = [f"{here}/bin/apptainer", "exec", *{"nvidia": ["--nv"], "amd": ["--rocm"]}.get(gpus, [])]
        assert words == [*start, "--pwd", here, *(f"--bind={each}" for each in shown), image, *python]
    elif runtime == "charliecloud":
        assert words == ["ch-run", f"--cd={here}", *(f"--bind={each}" for each in shown), image, "--", *python]
    elif runtime == "podman-hpc":
        devices = {"nvidia": ["--gpu", "--nccl"], "amd": ["--device=/dev/kfd", "--device=/dev/dri"]}.get(gpus, [])
        start = ["podman-hpc", "run", "--rm", "--network=host", "--ipc=host", *devices, f"--workdir={here}"]
        start += [f"--volume={each}" for each in shown]
        assert [word for word in words if not word.startswith("--env=")] == [*start, image, *python]
        assert {"--env=SLURM_*", "--env=HPCDDP_*", "--env=MASTER_ADDR", "--env=OMP_NUM_THREADS"} <= set(words)
    elif runtime == "pyxis":
        more = ",NVIDIA_VISIBLE_DEVICES,MELLANOX_VISIBLE_DEVICES" if gpus == "nvidia" else ""
        mounts = f"--container-mounts={','.join(shown)}"
        options = [f"--container-image={image}", mounts, f"--container-workdir={here}", f"--container-env={names}{more}"]
        assert words == [*options, *python]
    else:
        assert words == [f"--environment={here}/container.7.toml", *python]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_awkward_folders(tmp_path: Path, runtime: Runtime) -> None:
    folders = [tmp_path / f"a {name}" for name in AWKWARD]
    for folder in folders:
        folder.mkdir(parents=True)
    words = called(tmp_path, contained(runtime), launch_on(*map(str, folders)))
    shown = [f"{folder}:{folder}" for folder in folders]
    if runtime == "cscs":
        assert tomllib.loads((tmp_path / "container.7.toml").read_text())["mounts"] == shown
    elif runtime == "pyxis":
        assert f"--container-mounts={','.join(shown)}" in words
    else:
        assert [word.partition("=")[2] for word in words if word.startswith(("--bind=", "--volume="))] == shown


def test_variables_and_what_is_not_there(tmp_path: Path) -> None:
    """One that leads nowhere is not shown, and never the root folder in its place."""
    (tmp_path / "data").mkdir()
    words = called(tmp_path, contained("apptainer"), launch_on("$HOME/data", "~/data", "${NOWHERE}", "$NOWHERE/data", "/no/such"))
    assert [word for word in words if word.startswith("--bind=")] == [f"--bind={tmp_path}/data:{tmp_path}/data"] * 2


@pytest.mark.parametrize("runtime", ["apptainer", "charliecloud", "podman-hpc"])
def test_a_node_without_the_runtime(tmp_path: Path, runtime: Runtime) -> None:
    _, point, request = plain_profile()
    env = {**stand_ins(tmp_path), "PATH": f"{tmp_path}/bin"}
    for name in ("head", "id", "bash"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    text = render(contained(runtime), point, request, launch_on("/runs"))
    done = subprocess.run(["/bin/bash"], input=text, env=env, text=True, capture_output=True, check=False)
    assert (done.returncode, "hpcddp: this node has n" in done.stderr, Path(env["OUT"]).exists()) == (1, True, False)


@pytest.mark.parametrize("path", ["/data:2", "/a,b", "/a\nb"])
def test_a_folder_that_no_runtime_can_show(path: str) -> None:
    _, point, request = plain_profile()
    with pytest.raises(UsageError, match="cannot be mounted in a container"):
        render(contained("apptainer"), point, request, launch_on(path))


@pytest.mark.parametrize("runtime", ["podman-hpc", "apptainer"])
def test_a_command_has_its_ranks_variables(tmp_path: Path, runtime: Runtime) -> None:
    launch = launch_command(["python3", "train.py"], str(tmp_path))
    words = called(tmp_path, contained(runtime), launch)
    names = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    assert words[-2:] == ["python3", "train.py"]
    assert names & {word.removeprefix("--env=") for word in words} == (names if runtime == "podman-hpc" else set())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_studys_variables_reach_the_ranks_inside(tmp_path: Path, runtime: Runtime) -> None:
    _, point, request = plain_profile()
    request = dataclasses.replace(request, env=(("WANDB_MODE", "off line"),))
    text = render(contained(runtime), point, request, launch_on("/runs"))
    assert "\nrank_environment() {\n  export WANDB_MODE='off line'\n}\n" in text
    handed_on = {"apptainer": r"for name in [\w ]* WANDB_MODE[ ;]", "podman-hpc": r"\n  [\w ]* WANDB_MODE; do container"}
    assert re.search(handed_on.get(runtime, "declare -f rank_environment start_rank"), text)


def test_a_script_by_hand(tmp_path: Path) -> None:
    profile = contained("charliecloud")
    _, point, _ = plain_profile()
    words = called(tmp_path, profile, by_hand(profile, point, f"{tmp_path}/my runs"))
    assert words[2:4] == [f"--bind={tmp_path}/my runs:{tmp_path}/my runs", f"--bind={tmp_path}:{tmp_path}"]
    assert (tmp_path / "my runs").is_dir()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_torch_is_asked_inside(runtime: Runtime) -> None:
    rule = EnvRule(name="NCCL_X", value="1", when=When(nccl="<2.21"), source="jobs")
    _, point, request = plain_profile()
    text = render(dataclasses.replace(contained(runtime), env_rules=(rule,)), point, request, launch_on("/runs"))
    assert lint_script(text) == []
    by_srun = "srun --nodes=1 --ntasks=1 " if runtime in ("pyxis", "cscs") else ""
    assert f"""timeout 300 {by_srun}"${{container[@]}}" python3 -c '""" in text
    assert text.index("\ncontainer=(") < text.index("HPCDDP_NCCL=") < text.index("\nsrun ")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_step_of_one_allocation(tmp_path: Path, runtime: Runtime) -> None:
    plan = allocation_plan(tmp_path, axes="{layout.nodes: [1, 2]}", profile=contained(runtime))
    text = allocation_script(plan, tmp_path)
    assert text.count(' "${container[@]}" \\\n') == 5
    assert text.count(f'show "{os.fspath(tmp_path)}"\n') == 1


SHOW = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
"""What a rank is here: it prints what it was given."""

TORCH = "class cuda:\n    class nccl:\n        @staticmethod\n        def version(): VERSION\n"


def rcc(*rules: EnvRule, python: str = "python3") -> ClusterProfile:
    profile = load_profile("rcc")
    return dataclasses.replace(
        profile, env_rules=rules, compute=dataclasses.replace(profile.compute, modules=(), module_init=(), python=python)
    )


def rule(name: str, value: str | None = "set", command: str | None = None, **when: Any) -> EnvRule:
    return EnvRule(name=name, value=None if command else value, command=command, when=When(**when), source="jobs")


def script(profile: ClusterProfile, *settings: str) -> str:
    text = render(profile, *requested(profile, settings), dataclasses.replace(SUBMITTED, command=SHOW))
    assert lint_script(text) == []
    return text


def rank_environment(tmp_path: Path, text: str, version: str = "raise RuntimeError('no NCCL')") -> tuple[dict[str, str], str]:
    """What a rank of the job finds in its environment, where torch has that NCCL, and what the job says besides."""
    env = {**stand_ins(tmp_path), "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "PYTHONPATH": str(tmp_path / "site")}
    (tmp_path / "bin" / "srun").write_text('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done; exec "$@"\n')
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "torch.py").write_text(TORCH.replace("VERSION", version))
    done = subprocess.run(["bash"], input=text, env=env, text=True, capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found, done.stderr


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({}, True),
        ({"fabric": "roce"}, True),
        ({"fabric": "Slingshot"}, False),
        ({"nodes": ">1"}, True),
        ({"nodes": "1"}, False),
        ({"nodes": "<=2"}, True),
        ({"node_type": ("a40", "v100")}, True),
        ({"node_type": ("a40",)}, False),
        ({"fabric": "RoCE", "nodes": ">2"}, False),
    ],
)
def test_what_is_known_when_the_script_is_rendered(when: dict[str, Any], fits: bool) -> None:
    text = script(rcc(rule("NCCL_NET", "AWS Libfabric", **when)), "layout.nodes=2")
    assert ("\nexport NCCL_NET='AWS Libfabric'\n" in text) is fits
    assert text.count("NCCL") == fits
    assert "NCCL" not in script(rcc(rule("NCCL_X", nccl="<2.21")), "device=cpu")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("return (2, 20, 5)", "old"),
        ("return (2, 21, 5)", None),
        ("return (2, 27, 3, 'rc1')", "new"),
        ("return (2, 30, 7)", "new"),
    ],
)
def test_what_hangs_on_nccls_version(tmp_path: Path, version: str, expected: str | None) -> None:
    """torch is asked in the job: 2.27 is `>=2.27` whatever its third number."""
    rules = (rule("NCCL_X", "old", nccl="<2.21"), rule("NCCL_X", "new", nccl=">= 2.27"))
    found, said = rank_environment(tmp_path, script(rcc(*rules)), version)
    assert (found.get("NCCL_X"), said) == (expected, "")


def test_torch_that_does_not_say(tmp_path: Path) -> None:
    rules = (rule("NCCL_X", nccl="<2.21"), rule("NCCL_Y", nodes="1"))
    found, said = rank_environment(tmp_path, script(rcc(*rules)))
    assert ("NCCL_X" in found, found["NCCL_Y"]) == (False, "set")
    assert said.splitlines()[-1].endswith("so these variables of the profile are not set: NCCL_X")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo it''s $((1 + 2))", "its 3"),
        ("true", None),
        ("echo lost; false", "lost"),
        ("echo 4 # a comment", "4"),
        ("for x in a b; do\n  echo $x\ndone | tail -n 1\n", "b"),
        ("set -- x; echo 'two  words'", "two  words"),
    ],
)
def test_what_a_command_prints(tmp_path: Path, command: str, expected: str | None) -> None:
    found, said = rank_environment(tmp_path, script(rcc(rule("NCCL_X", command=command, nodes="1"))))
    assert (found.get("NCCL_X"), said) == (expected, "")


def test_a_later_rule_of_the_same_name_wins(tmp_path: Path) -> None:
    rules = (rule("NCCL_X", "first"), rule("NCCL_X", "second", nodes="1"), rule("NCCL_X", command="echo third", nodes="2"))
    assert rank_environment(tmp_path, script(rcc(*rules)))[0]["NCCL_X"] == "second"
    (tmp_path / "two").mkdir()
    assert rank_environment(tmp_path / "two", script(rcc(*rules), "layout.nodes=2"))[0]["NCCL_X"] == "third"


@pytest.mark.parametrize("value", ["Ring", 'it\'s "$HOME" `id`', "", "a;b #c", "\\\\n"])
def test_a_studys_own_variables(tmp_path: Path, value: str) -> None:
    rules = (rule("NCCL_X"), rule("NCCL_Y", command="echo profile"))
    profile = dataclasses.replace(rcc(*rules), env={"NCCL_Z": "profile"})
    found, said = rank_environment(tmp_path, script(profile, *(f"env.NCCL_{name}={json.dumps(value)}" for name in "XYZ")))
    assert ([found[f"NCCL_{name}"] for name in "XYZ"], said) == ([value] * 3, "")


def test_variables_of_points_in_one_job(tmp_path: Path) -> None:
    plan = allocation_plan(tmp_path, "repeat=1", axes="{env.NCCL_ALGO: [null, Ring, Tree]}")
    shapes = {dataclasses.replace(request, name="") for request in plan.requests.values()}
    found = steps_environments(allocation_script(plan, tmp_path))
    assert (len(shapes), [re.findall(r"NCCL_ALGO=(\w+)", words) for words, _ in found]) == (3, [[], ["Ring"], ["Tree"]])


def steps_environments(text: str) -> list[tuple[str, int]]:
    """Of each run of one allocation the rules that its ranks start with, and its nodes."""
    found, written = list[tuple[str, int]](), ""
    for part in re.split(r"\n(?=rank_environment\(\)|run_step \d)", text):
        written = part.partition("{\n")[2].partition("\n}")[0] if part.startswith("rank_environment()") else written
        if part.startswith("run_step"):
            found.append((written * ("declare -f rank_environment" in part), int(part.split()[3])))
    return found


def test_rules_in_steps_of_one_allocation(tmp_path: Path) -> None:
    rules = (rule("NCCL_NET", "AWS Libfabric", nodes=">1"), rule("NCCL_CROSS_NIC", "1", fabric="RoCE"))
    plan = allocation_plan(tmp_path, "repeat=1", axes="{layout.nodes: [1, 2]}", profile=rcc(*rules))
    text = allocation_script(plan, tmp_path)
    assert steps_environments(text) == [("  export NCCL_NET='AWS Libfabric'", 2), ("", 1)]
    counted = ("NCCL_NET=", "export NCCL_CROSS_NIC=1\n")
    assert [text.count(words) for words in counted] == [1, 1]


def gid_command() -> str:
    (found,) = [rule for rule in load_profile("rcc").env_rules if rule.name == "NCCL_IB_GID_INDEX"]
    assert found.when == When(fabric="RoCE", nccl="<2.21", nodes=">1")
    return str(found.command)


def adapter(tree: Path, name: str, gids: dict[int, tuple[str, str]], state: str = "4: ACTIVE") -> None:
    """A port as the kernel shows it: index -> type and address."""
    port = tree / name / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    (port / "gid_attrs" / "types").mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    for index, (kind, gid) in gids.items():
        (port / "gids" / str(index)).write_text(f"{gid}\n")
        (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")


LOCAL, IPV4 = "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "0000:0000:0000:0000:0000:ffff:0a01:0203"
ROCE = {0: ("IB/RoCE v1", LOCAL), 1: ("RoCE v2", LOCAL), 2: ("IB/RoCE v1", IPV4), 3: ("RoCE v2", IPV4)}


@pytest.mark.parametrize(
    ("adapters", "expected"),
    [
        ([], ""),
        ([(ROCE, "4: ACTIVE")], "3"),
        ([(ROCE, "4: ACTIVE"), (ROCE, "4: ACTIVE")], "3"),
        ([(ROCE, "4: ACTIVE"), ({5: ROCE[3]}, "1: DOWN")], "3"),
        ([(ROCE, "4: ACTIVE"), ({5: ROCE[3]}, "4: ACTIVE")], ""),
        ([({0: ("IB/RoCE v1", LOCAL)}, "4: ACTIVE")], ""),
        ([({2: ROCE[3], 10: ROCE[3]}, "4: ACTIVE")], "2"),
    ],
)
def test_the_rocev2_address_of_rcc(tmp_path: Path, adapters: list[Any], expected: str) -> None:
    """The index that all ports in use agree on, of version 2 and with an IPv4 address; else NCCL's own choice stays."""
    for number, (gids, state) in enumerate(adapters):
        adapter(tmp_path, f"mlx5_{number}", gids, state)
    command = gid_command().replace("/sys/class/infiniband", str(tmp_path))
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.stdout.strip(), done.stderr) == (expected, "")
