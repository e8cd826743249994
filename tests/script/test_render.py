from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec, spec_from_dict
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.script import templating
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.lint import lint_script
from hpcddp.script.render import ScriptLaunch, disk_folders, launch_by_hand, launch_command, removal, render
from hpcddp.script.resources import job_request
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests import check_golden
from tests.given_plan import allocation_plan, batch_of

SWEEPS = {"rcc": "rcc-bigmnist", "marconi100": "marconi100-resnet50"}
JOBS = Path(__file__).parents[2] / "jobs"
RCC = (JOBS.parent / "clusters" / "rcc.yaml").read_text()
AWKWARD = [
    *("two words", "quote's", 'double"quote', "$(touch /tmp/pwned)", "`id`"),
    *("back\\slash", "semi;colon", "*?[a]", "ünïcode", "-n"),
]


def parts(cluster: str, where: int = -1, user: User | None = None) -> tuple[ClusterProfile, Point, JobRequest]:
    source, profile = read_sweep(JOBS / f"{SWEEPS[cluster]}.yaml"), load_profile(cluster)
    point = expand(source, profile)[where].point
    return profile, point, job_request(profile, point, source.sweep.slurm, user or User(account="proj"))


def by_hand(profile: ClusterProfile, point: Point, run_root: str | None = None) -> ScriptLaunch:
    return launch_by_hand(profile, JobSpec(point=point, study="$HPCDDP_RUNS/adhoc"), run_root)


SUBMITTED = ScriptLaunch(
    command="python3 -u /runs/.code/abc/bootstrap.py /runs/.jobs/x", output="/runs/%j_%t_log.out", error="/runs/%j_%t_log.err"
)


def shellcheck(text: str) -> str:
    return subprocess.run(["shellcheck", "-"], input=text, text=True, capture_output=True, check=False).stdout


def allocation_script(plan: SubmissionPlan, folder: Path) -> str:
    """Of all the plan's runs in one job; neither lint nor shellcheck remarks on it."""
    prepare(folder / "job", batch_of(plan, folder))
    text = (folder / "job" / SCRIPT).read_text()
    assert lint_script(text) == []
    return text


@pytest.mark.parametrize("cluster", SWEEPS)
@pytest.mark.parametrize("form", ["by-hand", "submitted"])
def test_golden(cluster: str, form: str) -> None:
    profile, point, request = parts(cluster, 3)
    launch = by_hand(profile, point) if form == "by-hand" else SUBMITTED
    check_golden(f"scripts/{cluster}-{form}.sh", render(profile, point, request, launch))


@pytest.mark.parametrize("cluster", SWEEPS)
def test_submitted_differs_in_the_launch_block_only(cluster: str) -> None:
    profile, point, request = parts(cluster)
    texts = [render(profile, point, request, launch) for launch in (by_hand(profile, point), SUBMITTED)]
    outside = [re.sub(r"# --- launch ---.*\nrc=\$\?\n", "", text, flags=re.DOTALL) for text in texts]
    assert texts[0] != texts[1]
    assert outside[0] == outside[1]


@pytest.mark.parametrize("cluster", SWEEPS)
def test_a_run_that_resumes_is_warned_and_requeued(cluster: str) -> None:
    profile, point, request = parts(cluster)
    assert not re.search("USR2|requeue|REQUEUE", render(profile, point, request, SUBMITTED))
    point = replace(point, measure=replace(point.measure, resume=True))
    source = read_sweep(JOBS / f"{SWEEPS[cluster]}.yaml")
    for walltime_min, warning_s in ((60, 120), (4, 60)):
        slurm = replace(source.sweep.slurm, walltime_min=walltime_min, options=("--signal=USR2@90",))
        text = render(profile, point, job_request(profile, point, slurm, User(account="proj")), SUBMITTED)
        header = [line for line in text.splitlines() if line.startswith("#SBATCH --signal")]
        assert header == [f"#SBATCH --signal=USR2@{warning_s}", "#SBATCH --signal=USR2@90"]  # sbatch takes the last: the user's
        assert "#SBATCH --requeue\n" in text
        assert text.index('trap "" USR2') < text.index('exec "$@"') < text.index("\nsrun ") < text.index("scontrol requeue")
        assert shellcheck(text) == ""


TORCHRUN = [
    *("#SBATCH --ntasks-per-node=1", "#SBATCH --cpus-per-task={node_cpus}"),
    *("# Each node's torchrun starts here.", "# shellcheck disable=SC2317,SC2329", "start_rank() {"),
    "  export PET_NODE_RANK=$SLURM_PROCID PET_MASTER_ADDR=$MASTER_ADDR PET_MASTER_PORT=$MASTER_PORT",
    *('  exec "$@"', "}", "srun --kill-on-bad-exit=1 --unbuffered --cpus-per-task={node_cpus} \\"),
    '  bash -c "$(declare -f {rules}start_rank); start_rank \\"\\$@\\"" hpcddp \\',
    "  {python} -u -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --max-restarts=0 \\",
    "  --monitor-interval=0.1 -m hpcddp.worker",
]
"""Lines of a script that torchrun launches, 2 nodes with 4 ranks, beside those that name the point."""


@pytest.mark.parametrize("cluster", SWEEPS)
def test_torchrun(cluster: str) -> None:
    scripts = {}
    for launcher in ("direct", "torchrun"):
        source, profile = read_sweep(JOBS / f"{SWEEPS[cluster]}.yaml", [f"layout.launcher={launcher}"]), load_profile(cluster)
        points = (planned.point for planned in expand(source, profile))
        point = next(point for point in points if (point.layout.nodes, point.layout.gpus_per_node) == (2, 4))
        request = job_request(profile, point, source.sweep.slurm, User(account="proj"))
        text = render(profile, point, request, by_hand(profile, point))
        scripts[launcher] = re.sub("\n{\n.*?\n}\n", "\n", text.replace(point.label, "LABEL"), flags=re.DOTALL).splitlines()
    assert shellcheck(text) == ""
    cpus = 4 * (request.cpus_per_rank or 0)
    filled = {"{node_cpus}": str(cpus), "{python}": profile.compute.python, "{rules}": "rank_environment " * (cluster == "rcc")}
    expected = [functools.reduce(lambda text, key: text.replace(key, filled[key]), filled, line) for line in TORCHRUN]
    of_both = scripts["direct"] if cluster == "rcc" else []  # its ranks have a start function for the profile's rules
    added = [line for line in scripts["torchrun"] if line not in scripts["direct"]]
    assert added == [line for line in expected if line not in of_both]


@pytest.mark.parametrize("step", [0, 1, 7, 4_000_000])
def test_port_of_every_job_and_step(tmp_path: Path, step: int) -> None:
    """A step of its own has the job's; steps of one job, and lines of srun added to a command's script, have different ones."""
    command = render(*parts("rcc"), launch_command(["python", "train.py"], None))
    texts = render(*parts("rcc"), SUBMITTED), allocation_script(allocation_plan(tmp_path, "repeat=1"), tmp_path), command
    for text, steps in zip(texts, ([step], *2 * [[step, step + 1]]), strict=True):
        (formula,) = set(re.findall(r"MASTER_PORT=\$\(\((.*?)\)\)(?: #.*)?\n", text))
        ports = [
            int(subprocess.check_output(["bash", "-c", f"SLURM_JOB_ID={job} SLURM_STEP_ID={s}; echo $(({formula}))"]))
            for job in (1, 19_999, 67_043_328)
            for s in steps
        ]
        assert all(10_000 <= port < 30_000 for port in ports)
        assert len(set(ports)) == len(ports)


def stand_ins(tmp_path: Path, *, srun_exit: int = 0) -> dict[str, str]:
    """A folder of commands that record their arguments, first on PATH, for running a script without Slurm."""
    folder = tmp_path / "bin"
    write_commands(folder, {"scontrol": "echo host1", "srun": f'printf "%s\\n" "$@" > "$OUT"; exit {srun_exit}'})
    slurm = {"SLURM_JOB_NODELIST": "host1", "SLURM_SUBMIT_DIR": "/s"}
    return {"PATH": f"{folder}:/usr/bin:/bin", "OUT": str(tmp_path / "srun"), **slurm}


def write_commands(folder: Path, bodies: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)


def plain_profile(**compute: Any) -> tuple[ClusterProfile, Point, JobRequest]:
    """RCC without its modules, which this machine does not have."""
    profile, point, request = parts("rcc")
    environment = replace(profile.compute, **{"modules": (), **compute})
    return replace(profile, compute=environment), point, request


def run(text: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash"], input=text, env=env, text=True, capture_output=True, check=False)


def test_exit_code_survives(tmp_path: Path) -> None:
    profile, point, request = plain_profile()
    assert run(render(profile, point, request, SUBMITTED), stand_ins(tmp_path, srun_exit=7)).returncode == 7


@pytest.mark.parametrize("compute", [{"modules": ("nosuch/1.0",)}, {"activate": ("false",)}], ids=str)
def test_a_failing_setup_line_stops_the_job(tmp_path: Path, compute: dict[str, object]) -> None:
    profile, point, request = plain_profile(**compute)
    env = stand_ins(tmp_path)
    env["MODULEPATH"] = str(tmp_path)
    done = run(render(profile, point, request, SUBMITTED), env)
    assert done.returncode == 1
    assert "this line of the job script failed" in done.stderr or "no `module` command" in done.stderr
    assert not Path(env["OUT"]).exists()


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_names_and_values_of_a_profile_reach_the_job_unchanged(tmp_path: Path, name: str) -> None:
    profile, point, request = plain_profile(modules=(name,))
    launch = replace(SUBMITTED, output=f"/runs/{name}/%j.out", command=f"python3 {shlex.quote(name)}")
    env = stand_ins(tmp_path)
    srun = f'printf "%s" "$VALUE" > {tmp_path}/seen; printf "%s\\n" "$@" > "$OUT"'
    write_commands(tmp_path / "bin", {"module": f'printf "%s" "$2" > {tmp_path}/loaded', "srun": srun})
    text = render(replace(profile, env={"VALUE": name}), point, request, launch)
    assert not re.search(r"\((?:error|warning)\)", shellcheck(text))
    assert run(text, env).returncode == 0
    arguments = Path(env["OUT"]).read_text().splitlines()
    assert (f"--output=/runs/{name}/%j.out" in arguments, arguments[-1]) == (True, name)
    assert [(tmp_path / file).read_text() for file in ("loaded", "seen")] == [name, name]


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_run_roots_and_data_by_hand(tmp_path: Path, name: str) -> None:
    profile, point, request = plain_profile(python='printf "%s|%s" "$HPCDDP_RUNS" "$HPCDDP_SPEC" #')
    spec = JobSpec(point=point, study="$HPCDDP_RUNS/adhoc", data_root=name + "\n" + name)
    env = stand_ins(tmp_path)
    (tmp_path / "bin" / "srun").write_text('#!/bin/bash\nprintf "%s|%s" "$HPCDDP_RUNS" "$HPCDDP_SPEC"\n')
    done = run(render(profile, point, request, launch_by_hand(profile, spec, f"/r/{name}")), env)
    root, _, text = done.stdout.partition("|")
    assert root == f"/r/{name}"
    assert spec_from_dict(json.loads(text)) == spec


def test_mail() -> None:
    """It needs a type beside it: Slurm's default is none."""
    profile, point, request = parts("rcc", user=User(account="a", mail="me@x.org", reservation="r"))
    text = render(profile, point, request, SUBMITTED)
    assert shellcheck(text) == ""
    assert "#SBATCH --mail-user=me@x.org\n#SBATCH --mail-type=END,FAIL\n" in text
    assert "mail" not in render(*parts("rcc"), SUBMITTED)


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "nul\0"])
def test_line_breaks_are_refused(bad: str) -> None:
    profile, point, request = parts("rcc", user=User(account=bad))
    with pytest.raises(UsageError, match="cannot be in a job script"):
        render(profile, point, request, SUBMITTED)


@pytest.mark.parametrize("option", ["rm -rf /", "--qos x", "--", "-", "--x\ny"])
def test_job_options_must_be_options_and_are_quoted(option: str) -> None:
    profile, point, request = parts("rcc")
    with pytest.raises(UsageError, match="job option"):
        render(profile, point, replace(request, options=(option,)), SUBMITTED)
    text = render(profile, point, replace(request, options=("--comment=it's $(x)", "--requeue")), SUBMITTED)
    assert "#SBATCH --comment='it'\"'\"'s $(x)'\n#SBATCH --requeue\n" in text


EXTENDED = '{% extends "base.sh.j2" %}\n{% block teardown %}\nLINE\n{% endblock %}\n'


def rendered_with(folder: Path, text: str, template: str = "mine.sh.j2") -> str:
    """A script by a profile beside its own template, which says `text`."""
    (folder / template).parent.mkdir(exist_ok=True)
    (folder / template).write_text(text)
    _, point, request = parts("rcc")
    return render(load_profile(str(profile_with(folder, template))), point, request, SUBMITTED)


def profile_with(folder: Path, template: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(f"{RCC}template: {template}\n")
    return file


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "link.j2").symlink_to(tmp_path / "secret.txt")
    return tmp_path / "theirs"


def test_ones_own_template(tmp_path: Path) -> None:
    assert '\necho bye\nexit "$rc"\n' in rendered_with(tmp_path, EXTENDED.replace("LINE", "echo bye"))


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.popen('touch planted').read() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ point.__init__.__globals__ }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(point) }}",
        "{{ cluster.env.update({'LD_PRELOAD': 'x'}) }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_a_template_does_nothing_but_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"^{tmp_path}/mine\.sh\.j2:2: .*\. What a template may use is in "):
        rendered_with(tmp_path, f"#!/bin/bash\n{text}\n")
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("template", ["/etc/passwd", "../secret.txt", "link.j2"])
def test_a_template_lies_below_its_profile(theirs: Path, template: str) -> None:
    file = profile_with(theirs, template)
    line = len(file.read_text().splitlines())
    with pytest.raises(UsageError, match=rf"^{file}:{line}:1: `{template}` is in another folder. Move the template to"):
        load_profile(str(file))


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "link.j2"])
@pytest.mark.parametrize("tag", ['include "NAME"', 'extends "NAME"', 'import "NAME" as it'])
def test_a_template_includes_nothing_from_elsewhere(theirs: Path, name: str, tag: str) -> None:
    with pytest.raises(UsageError, match=r"mine\.sh\.j2:2: no template|link\.j2: a link to .*secret\.txt"):
        rendered_with(theirs, f"#\n{{% {tag.replace('NAME', name)} %}}\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#\n{% if %}\n", "2: Expected an expression"),
        ("#\n{{ 1 + 'a' }}\n", "2: unsupported operand"),
        ("#\n{{ 1 // 0 }}\n", "2: .*by zero"),
        ('#\n{% include "nosuch.j2" %}\n', r"2: no template `nosuch\.j2` in "),
        (EXTENDED.replace("LINE", "{{ cluster.nosuch }}"), "3: .* has no attribute 'nosuch'. What a template may use is in "),
    ],
)
def test_a_template_that_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=rf"mine\.sh\.j2:{says}"):
        rendered_with(tmp_path, text, "below/mine.sh.j2")


def compute_environments() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    return re.findall(r"^    compute: (\{.+\})$", page, re.MULTILINE)


@pytest.mark.parametrize("shown", compute_environments())
def test_the_environments_that_the_page_on_clusters_shows(tmp_path: Path, shown: str) -> None:
    compute = parse_yaml(shown, "clusters.md")
    before, _, rest = RCC.partition("compute:\n")
    (tmp_path / "mine.yaml").write_text(f"{before}compute: {shown}\n{rest[rest.index('env: {}') :]}")
    _, point, request = parts("rcc")
    mine = load_profile(str(tmp_path / "mine.yaml"))
    script = render(mine, point, request, replace(SUBMITTED, command=f"{mine.compute.python} -u x.py"))
    env = {**stand_ins(tmp_path), "WORK": "/w", "HOME": "/h", "SLURM_JOB_ID": "1"}
    commands = {"srun": 'echo "$@"', "module": 'echo "module $*"', "conda": 'echo "echo conda $*"', "apptainer": ""}
    write_commands(tmp_path / "bin", commands)
    done = run(script, env)
    assert done.returncode == 0
    python = compute.get("python", "python3").replace("$WORK", "/w").replace("$HOME", "/h")
    image = compute.get("container", {}).get("image", "").replace("$WORK", "/w")
    assert done.stdout.endswith(f" {f'{image} ' * (image != '' and 'pyxis' not in shown)}{python} -u x.py\n")
    assert image in done.stdout
    assert re.findall(r"^module load (.*)", done.stdout, re.MULTILINE) == compute.get("modules", [])


def test_there_is_an_example_of_each_kind() -> None:
    kinds = {parse_yaml(text, "clusters.md")["kind"] for text in compute_environments()}
    assert kinds == {"venv", "conda", "module", "container"}


def staged_point() -> Point:
    data = Data(name="bigmnist", root="/data", stage="tmpdir")
    return Point(cluster="rcc", workload=Workload(model="mnist-cnn", data=data), layout=Layout(node_type="v100"))


def with_disk(path: str | None, per_job: bool | None = None) -> ClusterProfile:
    profile = load_profile("rcc")
    node = replace(profile.node_types["v100"], local_disk_path=path, local_disk_per_job=per_job)
    return replace(profile, node_types={"v100": node})


@pytest.mark.parametrize(
    "disk_of",
    [(None, {"SLURM_TMPDIR": "DISK"}), (None, {"TMPDIR": "DISK"}), ("$MY_DISK/a 'b", {"MY_DISK": "DISK"})],
    ids=["slurm", "tmpdir", "profile"],
)
@pytest.mark.parametrize(
    ("job", "own", "others"),
    [
        ({"SLURM_JOB_ID": "12"}, ["12-gn01", "12-gn01.lock", "12+3-gn01"], ["123-gn01", "1-gn01", "11_12-gn01"]),
        (
            {"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "7"},
            ["12_7-gn01", "12_7-gn01.lock"],
            ["12_8-gn01", "12_71-gn01", "14-gn01", "12-gn01"],
        ),
    ],
    ids=["job", "task"],
)
def test_copies_of_the_job_are_removed_and_no_others(
    tmp_path: Path, disk_of: tuple[str | None, dict[str, str]], job: dict[str, str], own: list[str], others: list[str]
) -> None:
    """By its number: another job of the same user may have copies beside them."""
    disk, (path, env) = tmp_path / "a 'b", disk_of
    for name in [*own, *others]:
        (disk / f"hpcddp-stage-{os.getuid()}-{name}" / "deeper").mkdir(parents=True)
    given = {name: value.replace("DISK", str(tmp_path if path else disk)) for name, value in env.items()}
    text = removal(with_disk(path), staged_point())
    assert text is not None
    subprocess.run(["bash", "-euc", text], env={"PATH": os.environ["PATH"], **given, **job}, check=True)
    assert {each.name for each in disk.iterdir()} == {f"hpcddp-stage-{os.getuid()}-{name}" for name in others}


def test_where_copies_lie_and_which_go_with_the_job() -> None:
    assert removal(with_disk("/disk", per_job=True), staged_point()) is None
    assert removal(with_disk("/disk", per_job=False), staged_point()) == removal(with_disk("/disk"), staged_point())
    assert disk_folders(with_disk("/disk"), staged_point()) == ("/disk",)
    assert disk_folders(with_disk(None), staged_point()) == ("$SLURM_TMPDIR", "$TMPDIR")


def test_the_script_is_a_good_one() -> None:
    profile, plain, request = plain_profile()
    nodes = {name: replace(node, local_disk_per_job=None) for name, node in profile.node_types.items()}
    profile = replace(profile, node_types=nodes)
    staged = replace(plain, workload=replace(plain.workload, data=replace(plain.workload.data, stage="tmpdir")))
    text = render(profile, staged, request, SUBMITTED)
    assert lint_script(text) == []
    removed = [line for line in text.splitlines() if "hpcddp-stage" in line]
    assert [line.startswith('[ "$rc" = 0 ] || srun --nodes=') for line in removed] == [True]
    assert "hpcddp-stage" not in render(profile, plain, request, SUBMITTED)


@pytest.mark.parametrize("stage", ["none", "tmpdir"])
def test_runs_of_one_allocation_share_a_copy(tmp_path: Path, stage: str) -> None:
    """The script tells them to leave it, and removes it whatever became of them."""
    plan = allocation_plan(
        tmp_path, "repeat=1", "workload.data.name=bigmnist", "workload.data.root=/x", f"workload.data.stage={stage}"
    )
    nodes = {name: replace(node, local_disk_per_job=None) for name, node in plan.profile.node_types.items()}
    text = allocation_script(replace(plan, profile=replace(plan.profile, node_types=nodes)), tmp_path)
    assert ("export HPCDDP_KEEP_COPIES=1" in text) is (stage == "tmpdir")
    assert (re.search(r"^srun --nodes=4 .*hpcddp-stage", text, re.MULTILINE) is not None) is (stage == "tmpdir")


def test_compiled_templates_are_written_where_python_writes_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only there, only if Python may write it, and a script is the same by it."""
    folder, expected = tmp_path / "templates", render(*parts("rcc"), SUBMITTED)
    shutil.copytree(templating.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(templating, "FOLDER", folder)
    for is_there, dont_write, files in ((False, False, 0), (True, True, 0), (True, False, 1), (True, False, 1)):
        if is_there:
            (folder / "__pycache__").mkdir(exist_ok=True)
        monkeypatch.setattr(sys, "dont_write_bytecode", dont_write)
        templating._environment.cache_clear()
        assert render(*parts("rcc"), SUBMITTED) == expected
        assert len([*folder.glob("__pycache__/*")]) == files
    monkeypatch.setattr("jinja2.Environment.compile", lambda *_: pytest.fail("compiled again"))
    templating._environment.cache_clear()
    assert render(*parts("rcc"), SUBMITTED) == expected
    templating._environment.cache_clear()
