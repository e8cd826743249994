"""How ranks come to run on a real Slurm: in containers, one GPU each, from frozen code, with data on the nodes' own disks."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.data.files import write_mnist
from tests.fake_slurm import wait_for
from tests.machine import CHECKOUT, cannot_run, copy_checkout
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User, read, without_torch

COMMON = """\
#!/bin/bash
export USER=root # ch-run needs it
binds=() cwd=/ image=''
refuse() { echo "stand-in: $*" >&2; exit 90; }
bind() {
  [[ $1 == /*:/* ]] || refuse "$1 is no OUTSIDE:INSIDE"
  [ -e "${1%%:*}" ] || refuse "${1%%:*} is not there"
  mkdir -p "$IMAGE/${1#*:}"
  binds+=(--bind="$1")
}
entered() { [ "$image" = "$IMAGE" ] || refuse "$image is no image"; inside=(ch-run --cd="$cwd" "${binds[@]}" "$image" --); }
"""
"""IMAGE is in the environment of the one who submits."""

APPTAINER = """\
[ "$1" = exec ] || refuse "$1"
shift
while [[ $1 == -* ]]; do
  case $1 in --nv | --rocm) ;; --pwd) cwd=$2; shift ;; --bind=*) bind "${1#*=}" ;; *) refuse "$1" ;; esac
  shift
done
image=$1
entered
unset LD_LIBRARY_PATH
[ "$APPTAINERENV_MASTER_ADDR" = "$MASTER_ADDR" ] || refuse "an image may set MASTER_ADDR"
export APPTAINER_NAME=apptainer
exec "${inside[@]}" "${@:2}"
"""

PODMAN_HPC = """\
[ "$1" = run ] || refuse "$1"
shift
names=() handed=()
while [[ $1 == -* ]]; do
  case $1 in
    --rm | --network=host | --ipc=host | --gpu | --nccl) ;;
    --workdir=*) cwd=${1#*=} ;; --volume=*) bind "${1#*=}" ;; --env=*) names+=("${1#*=}") ;; *) refuse "$1" ;;
  esac
  shift
done
image=$1
entered
while IFS= read -r -d '' variable; do
  # shellcheck disable=SC2053
  for name in "${names[@]}"; do [[ ${variable%%=*} != $name ]] || handed+=("$variable"); done
done < <(env -0)
exec env -i PATH="$PATH" USER=root "${handed[@]}" APPTAINER_NAME=podman-hpc "${inside[@]}" "${@:2}"
"""

SRUN = """\
own=()
while [ $# -gt 0 ] && [ "$1" != bash ]; do
  case $1 in
    --container-image=*) image=${1#*=} kind=pyxis ;;
    --container-mounts=*) while IFS= read -r -d, each; do bind "$each"; done <<<"${1#*=}," ;;
    --container-workdir=*) cwd=${1#*=} ;;
    --container-env=*) for name in ${1//[=,]/ }; do [[ $name == --* || -n ${!name+set} ]] || refuse "$name is not set"; done ;;
    --environment=*) kind=cscs; eval "$(python3 - "${1#*=}" <<<"$EDF")" ;;
    *) own+=("$1") ;;
  esac
  shift
done
[ -n "$kind" ] || exec /usr/bin/srun "${own[@]}" "$@"
entered
exec /usr/bin/srun "${own[@]}" env APPTAINER_NAME="$kind" "${inside[@]}" "$@"
"""

EDF = """\
import shlex, sys, tomllib
edf = tomllib.load(open(sys.argv[1], "rb"))
for mount in edf.pop("mounts"):
    print("bind", shlex.quote(mount))
print("image=" + shlex.quote(edf.pop("base_environment")))
print("cwd=" + shlex.quote(edf.pop("workdir")))
for name, value in edf.pop("env").items():
    print("export", name + "=" + shlex.quote(value))
assert not edf
"""


def write_standins(folder: Path) -> None:
    """The commands, in a folder that is to be first in PATH."""
    folder.mkdir()
    with_edf = f"EDF=$(cat <<'END'\n{EDF}END\n)\n{SRUN}"
    for name, text in {"apptainer": APPTAINER, "podman-hpc": PODMAN_HPC, "srun": with_edf}.items():
        (folder / name).write_text(COMMON + text)
        (folder / name).chmod(0o755)


SWEEP = """
schema: 1
cluster: {name}.yaml
device: cpu
workload: {{model: mnist-cnn, data: {data}, batch_per_gpu: 8, loader_workers_per_rank: 0}}
layout: {{nodes: {nodes}, gpus_per_node: {ranks}, physical_cores_per_rank: 1, exclusive: false, launcher: {launcher}}}
baselines: false
measure: {{warmup_steps: 1, steps: 3, telemetry_hz: 0}}
slurm: {{walltime_min: 5, mem_mb: 3000}}
"""

RUNTIMES = ("charliecloud", "apptainer", "podman-hpc", "pyxis", "cscs")

SITES: Mapping[str, dict[str, Any]] = {
    **{runtime: {"nodes": 1} for runtime in RUNTIMES},
    "charliecloud": {"nodes": 2},
    "suffix": {"nodes": 2, "launcher": "torchrun", "facts": {"rendezvous": {"master_suffix": "-ib"}}},
    "by-task": {
        "ranks": 2,
        "facts": {"slurm": {"gpu_request": "gpus-per-task", "local_device": "zero", "one_thread_per_core": "threads-per-core"}},
    },
}
"""By the name of a profile: what its sweep asks for, and how it differs from rcc."""

TRIED = ("charliecloud", "by-task")
"""Sites at which `make test` has a run; `make soak` has one at each."""


def image_in(folder: Path) -> Path:
    """A root file system with nothing in it: places for what a container shows, and links as Debian has them."""
    for name in ("usr", "dev", "proc", "sys", "tmp", "etc", "root", "home"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (folder / "etc" / name).touch()
    return folder


def profile_of(name: str, image: Path) -> dict[str, Any]:
    """It extends rcc by what the site is here for."""
    facts = SITES[name].get("facts", {})
    compute: dict[str, Any] = {"python": sys.executable}
    if name in RUNTIMES:
        binds = ["/usr", sys.prefix, sys.base_prefix]
        compute["container"] = {"image": str(image), "runtime": name, "binds": binds, "gpus": "none"}
    return {"schema": 1, "name": name, "title": name, "extends": "rcc", "compute": compute, **facts}


@pytest.fixture(scope="module")
def user(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """Has submitted a run at each of TRIED, which have ended."""
    if shutil.which("ch-run") is None:
        cannot_run("no Charliecloud: apt-get install charliecloud-runtime")
    home = tmp_path_factory.mktemp("user")
    image = image_in(home / "image")
    write_standins(home / "bin")
    with (rcc_twin.folder / "hosts").open("a") as hosts:
        hosts.write("".join(f"127.0.0.1 {node.name}-ib\n" for node in rcc_twin.shape.nodes))
    user = User(rcc_twin, home, {"PATH": f"{home}/bin:{os.environ['PATH']}", "IMAGE": str(image)})
    write_mnist(home / "my data", train=1000)
    run_at(user, TRIED)
    return user


@pytest.fixture(scope="module")
def everywhere(user: User) -> User:
    """The same, and at the other sites."""
    run_at(user, [name for name in SITES if name not in TRIED])
    return user


def run_at(user: User, sites: Iterable[str]) -> None:
    bare = without_torch(user)
    for name in sites:
        site, home = SITES[name], user.home
        (home / f"{name}.yaml").write_text(json.dumps(profile_of(name, home / "image")))
        data = f"{{name: mnist, root: {home}/my data}}" if name in RUNTIMES else "{name: synthetic-mnist}"
        sweep = {"nodes": 1, "ranks": 1, "launcher": "direct", "data": data} | {key: site[key] for key in site if key != "facts"}
        (home / f"at-{name}.yaml").write_text(SWEEP.format(name=name, **sweep))
        (bare if name == "by-task" else user).hpcddp("submit", f"at-{name}.yaml", "-y")
    user.twin.wait_jobs(300)
    assert user.failures() == {}


def records(user: User, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """launch.json and end.json of the site's only run."""
    (attempt,) = (user.home / f"at-{name}").glob("*/r1/*.0")
    return read(attempt / "launch.json"), read(attempt / "end.json")


def test_ranks_in_a_container(user: User) -> None:
    """They find code, data and each other in it, and leave their records where a bare run does."""
    as_in_a_bare_run(user, "charliecloud")


@pytest.mark.soak
@pytest.mark.parametrize("runtime", RUNTIMES[1:])
def test_ranks_in_other_containers(everywhere: User, runtime: str) -> None:
    as_in_a_bare_run(everywhere, runtime)


def as_in_a_bare_run(user: User, runtime: str) -> None:
    launch, end = records(user, runtime)
    own = launch["environment"]
    assert (own.get("APPTAINER_NAME") or "charliecloud", "CH_RUNNING" in own) == (runtime, True)
    assert (end["state"], len(end["ranks"])) == ("done", SITES[runtime]["nodes"])
    assert all(gate["passed"] for gate in end["gates"])
    assert launch["profile"]["compute"]["container"]["runtime"] == runtime
    assert own["OMP_NUM_THREADS"] == "1"


@pytest.mark.soak
def test_torchrun_at_a_name_that_is_no_hosts(everywhere: User) -> None:
    """Its own host check does not decide who listens: the node's number does."""
    launch, end = records(everywhere, "suffix")
    assert launch["environment"]["MASTER_ADDR"] == f"{launch['hosts'][0]}-ib"
    assert (launch["launcher"], end["state"], len(end["ranks"])) == ("torchrun", "done", 2)


def test_gpus_by_task(user: User) -> None:
    """Slurm gives two tasks two GPUs; without a second thread on their cores."""
    launch, end = records(user, "by-task")
    own = launch["environment"]
    assert (own["SLURM_GPUS_PER_TASK"], own["SLURM_GPUS_ON_NODE"], own["SLURM_CPUS_ON_NODE"]) == ("v100:1", "2", "2")
    assert (launch["profile"]["slurm"]["local_device"], end["state"], len(end["ranks"])) == ("zero", "done", 2)


@pytest.mark.soak
def test_by_hand_and_in_one_allocation(user: User) -> None:
    """As submitted: the script finds its hpcddp in the image, here by a bind, and each step starts a container of its own."""
    profile = profile_of("charliecloud", user.home / "image")
    profile["compute"]["container"]["binds"].append(str(CHECKOUT))
    (user.home / "charliecloud.yaml").write_text(json.dumps(profile))
    sweep = SWEEP.format(name="charliecloud", nodes=1, ranks=1, launcher="direct", data="{name: synthetic-mnist}")
    (user.home / "both.yaml").write_text(f"{sweep}points: {{nodes: {{layout.nodes: [1, 2]}}}}\n")
    user.hpcddp("submit", "both.yaml", "--one-allocation", "-y")
    (user.home / "by hand").mkdir()
    script = user.hpcddp("render", "both.yaml", "--where", "layout.nodes == 2", "--set", "account=proj").stdout
    user.twin.run(["sbatch"], text=script, cwd=user.home / "by hand")
    user.twin.wait_jobs(200)
    assert user.failures() == {}
    assert "2 runs: 2 done" in user.hpcddp("status", "both").stdout
    assert "1 of 1 runs pass" in user.hpcddp("analyze", "by hand/jobs/adhoc").stdout


PROJECT = (
    "hpcddp",
    "__editable__",
    "submitit",
    "cloudpickle",
    "click",
    "jinja2",
    "yaml",
    "_yaml",
    "pandas",
    "matplotlib",
    "pytest",
)

FROZEN = """
schema: 1
cluster: torch-only.yaml
device: cpu
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
layout: {nodes: 1, gpus_per_node: 1, physical_cores_per_rank: 1}
measure: {warmup_steps: 2, steps: 5}
"""


def torch_only(folder: Path) -> Path:
    """An environment whose Python finds torch and what torch needs; nothing that hpcddp is made of."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(PROJECT) and not entry.name.endswith(".pth"):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture
def in_checkout(rcc_twin: Twin, tmp_path: Path) -> User:
    """Stands in a checkout of hpcddp, where `-m hpcddp` is that checkout, and has a profile with the bare environment."""
    checkout = copy_checkout(tmp_path / "checkout")
    python = torch_only(tmp_path / "bare")
    profile = (checkout / "clusters" / "rcc.yaml").read_text(encoding="utf-8")
    before, after = profile.split("  modules: ")
    bare = f"{before}  python: {python}\n  {after.partition(chr(10) + '  ')[2]}"
    (checkout / "torch-only.yaml").write_text(bare, encoding="utf-8")
    (checkout / "study.yaml").write_text(FROZEN, encoding="utf-8")
    return User(rcc_twin, checkout)


def test_an_upgrade_while_the_job_waits_changes_nothing(in_checkout: User) -> None:
    """Submitted from a checkout that breaks before the job starts: it runs to its end, on what was taken along."""
    user = in_checkout
    job = user.hpcddp("submit", "study.yaml", "-J", "--hold", "-y").stdout.split()[-1]
    for file in (user.home / "hpcddp" / "worker").glob("*.py"):
        file.write_text("raise SystemExit('this is the changed checkout')\n", encoding="utf-8")
    user.twin.run(["scontrol", "release", job])
    user.twin.wait_jobs(120)
    assert user.failures() == {}
    assert [row["JobID"] for row in user.jobs()] == [job]
    (study,) = user.json("status", "study")["studies"]
    assert [run["phase"] for run in study["runs"]] == ["done"]


STAGED = (
    SMALL.replace("cluster: rcc", "cluster: disks.yaml").replace(
        "name: synthetic-mnist", "name: mnist, root: ROOT, stage: tmpdir"
    )
    + """
layout: {nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1, exclusive: false}
baselines: false
measure: {warmup_steps: 1, steps: STEPS, telemetry_hz: 0}
slurm: {walltime_min: 5, mem_mb: 2000, nodelist: "gn[01-02]"}
"""
)


def study(user: User, name: str, steps: int, model: str = "mnist-cnn") -> Path:
    sweep = user.home / f"{name}.yaml"
    text = STAGED.replace("ROOT", str(user.home / "data")).replace("STEPS", str(steps)).replace("mnist-cnn", model)
    sweep.write_text(text)
    return sweep


def copies(user: User) -> list[str]:
    return sorted(path.name for path in (user.home / "disk").iterdir())


@pytest.mark.soak
def test_no_copy_outlives_its_run(rcc_twin: Twin, tmp_path: Path) -> None:
    """What a cancelled run leaves, on a disk that is not the job's own, goes with the next run there."""
    user = User(rcc_twin, tmp_path)
    (tmp_path / "disk").mkdir()
    shutil.copy(CHECKOUT / "tests" / "twin" / "troubled.py", tmp_path)
    write_mnist(tmp_path / "data", train=2000)
    profile = {"schema": 1, "name": "disks", "title": "disks", "extends": "rcc"}
    disk = {"local_disk_path": str(tmp_path / "disk"), "local_disk_per_job": False}
    facts = {"node_types": dict.fromkeys(rcc_twin.profile.node_types, disk)}
    (tmp_path / "disks.yaml").write_text(json.dumps({**profile, **facts}))

    cancelled = study(user, "cancelled", steps=100_000)
    user.hpcddp("submit", cancelled, "-y")
    wait_for(lambda: copies(user))
    user.hpcddp("cancel", cancelled, "-y")

    failing = study(user, "failing", steps=100, model="troubled:died")
    user.hpcddp("submit", failing, "-y", "--wait", exit_code=1)
    assert copies(user) == []

    done = study(user, "done", steps=10)
    user.hpcddp("submit", done, "-y", "--wait")
    (launch,) = (read(file) for file in (tmp_path / "done").glob("n02*/r1/*/launch.json"))
    nodes = launch["data"]["staging"]["nodes"]
    assert sorted(node["host"] for node in nodes) == sorted(launch["hosts"])
    assert len(set(node["folder"] for node in nodes)) == 2
    assert copies(user) == []
