"""The container that a script starts ranks in: what it shows them, beside stand-ins that print how they are called."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import pytest
import tomllib

from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from hpcddp.cluster.environment import Container, EnvRule, When
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.errors import UsageError
from hpcddp.script.lint import lint_script
from hpcddp.script.render import ScriptLaunch, launch_command, render
from tests.given_one_allocation import batch_of, submission_plan
from tests.script.test_render import AWKWARD, SUBMITTED, by_hand, plain_profile, stand_ins

Runtime = Literal["apptainer", "pyxis", "podman-hpc", "cscs", "charliecloud"]
RUNTIMES = get_args(get_type_hints(Container)["runtime"])

SRUN = """\
#!/bin/bash
while [ "$1" != bash ]; do [[ $1 != --container* && $1 != --environment* ]] || printf '%s\\n' "$1"; shift; done
shift 4
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
    """As each runtime's own pages have them."""
    words = called(tmp_path, contained(runtime, gpus=gpus, binds=("/usr", "/bin:/opt/bin")), launch_on(str(tmp_path)))
    image, here = f"{tmp_path}/torch.sif", str(tmp_path)
    shown = [f"{here}:{here}", "/usr:/usr", "/bin:/opt/bin"]
    python = ["python3", "-c", "pass"]
    names = "MASTER_ADDR,OMP_NUM_THREADS,PYTHONUNBUFFERED"
    if runtime == "apptainer":
        start = [f"{here}/bin/apptainer", "exec", *{"nvidia": ["--nv"], "amd": ["--rocm"]}.get(gpus, [])]
        assert words == [*start, "--pwd", here, *(f"--bind={each}" for each in shown), image, *python]
    elif runtime == "charliecloud":
        assert words == ["ch-run", f"--cd={here}", *(f"--bind={each}" for each in shown), image, "--", *python]
    elif runtime == "podman-hpc":
        devices = {"nvidia": ["--gpu", "--nccl"], "amd": ["--device=/dev/kfd", "--device=/dev/dri"]}.get(gpus, [])
        start = ["podman-hpc", "run", "--rm", "--network=host", "--ipc=host", *devices, f"--workdir={here}"]
        assert [word for word in words if not word.startswith("--env=")] == [
            *start,
            *(f"--volume={each}" for each in shown),
            image,
            *python,
        ]
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
    """They are shown as they are, and nothing in them is run."""
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
    """A folder may begin with a variable; one that leads nowhere is not shown, and never the root folder in its place."""
    (tmp_path / "data").mkdir()
    words = called(tmp_path, contained("apptainer"), launch_on("$HOME/data", "~/data", "${NOWHERE}", "$NOWHERE/data", "/no/such"))
    assert [word for word in words if word.startswith("--bind=")] == [f"--bind={tmp_path}/data:{tmp_path}/data"] * 2


@pytest.mark.parametrize("runtime", ["apptainer", "charliecloud", "podman-hpc"])
def test_a_node_without_the_runtime(tmp_path: Path, runtime: Runtime) -> None:
    """The job says so and ends, before any rank starts."""
    _, point, request = plain_profile()
    env = {**stand_ins(tmp_path), "PATH": f"{tmp_path}/bin"}
    for name in ("head", "id", "bash"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    text = render(contained(runtime), point, request, launch_on("/runs"))
    done = subprocess.run(["/bin/bash"], input=text, env=env, text=True, capture_output=True, check=False)
    assert (done.returncode, "hpcddp: this node has n" in done.stderr, Path(env["OUT"]).exists()) == (1, True, False)


@pytest.mark.parametrize("path", ["/data:2", "/a,b", "/a\nb"])
def test_a_folder_that_no_runtime_can_show(path: str) -> None:
    """It says why."""
    _, point, request = plain_profile()
    with pytest.raises(UsageError, match="cannot be shown in a container"):
        render(contained("apptainer"), point, request, launch_on(path))


@pytest.mark.parametrize("runtime", ["podman-hpc", "apptainer"])
def test_a_command_has_its_ranks_variables(tmp_path: Path, runtime: Runtime) -> None:
    """podman-hpc hands on what it is given by name, apptainer everything."""
    launch = launch_command(["python3", "train.py"], str(tmp_path))
    words = called(tmp_path, contained(runtime), launch)
    names = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    assert words[-2:] == ["python3", "train.py"]
    assert names & {word.removeprefix("--env=") for word in words} == (names if runtime == "podman-hpc" else set())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_studys_variables_reach_the_ranks_inside(tmp_path: Path, runtime: Runtime) -> None:
    """By name where the runtime is given names; where srun starts the container they are set in it."""
    _, point, request = plain_profile()
    request = dataclasses.replace(request, env=(("WANDB_MODE", "off line"),))
    text = render(contained(runtime), point, request, launch_on("/runs"))
    assert "\nexport HPCDDP_RANK_ENV='export WANDB_MODE='\"'\"'off line'\"'\"''\n" in text
    handed_on = {"apptainer": r"for name in [\w ]* WANDB_MODE[ ;]", "podman-hpc": r"\n  [\w ]* WANDB_MODE; do container"}
    assert re.search(handed_on.get(runtime, "bash -c 'eval"), text)


def test_a_script_by_hand(tmp_path: Path) -> None:
    """It shows the folder of its records, which is made before, and the one that it was submitted in."""
    profile = contained("charliecloud")
    _, point, _ = plain_profile()
    words = called(tmp_path, profile, by_hand(profile, point, f"{tmp_path}/my runs"))
    assert words[2:4] == [f"--bind={tmp_path}/my runs:{tmp_path}/my runs", f"--bind={tmp_path}:{tmp_path}"]
    assert (tmp_path / "my runs").is_dir()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_torch_is_asked_inside(runtime: Runtime) -> None:
    """The NCCL that counts is the image's."""
    rule = EnvRule(name="NCCL_X", value="1", when=When(nccl="<2.21"), source="jobs")
    _, point, request = plain_profile()
    text = render(dataclasses.replace(contained(runtime), env_rules=(rule,)), point, request, launch_on("/runs"))
    assert lint_script(text) == []
    by_srun = "srun --nodes=1 --ntasks=1 " if runtime in ("pyxis", "cscs") else ""
    assert f"""timeout 300 {by_srun}"${{container[@]}}" python3 -c '""" in text
    assert text.index("\ncontainer=(") < text.index("HPCDDP_NCCL=") < text.index("\nsrun ")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_step_of_one_allocation(tmp_path: Path, runtime: Runtime) -> None:
    """That of preflight, too, and none of the probes whether a node lives."""
    plan = dataclasses.replace(submission_plan(tmp_path, axes="{layout.nodes: [1, 2]}"), profile=contained(runtime))
    prepare(tmp_path / "job", batch_of(plan, tmp_path))
    text = (tmp_path / "job" / SCRIPT).read_text()
    assert lint_script(text) == []
    assert text.count(' "${container[@]}" \\\n') == 5
    assert text.count(f'show "{os.fspath(tmp_path)}"\n') == 1
