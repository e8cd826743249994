from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hpcddp
from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_words import limit_min
from hpcddp.core.attempt_records import AttemptEnd, Fault
from hpcddp.core.point import Data, Point, Workload
from hpcddp.study.diagnosis import BY_SENTENCE, reason_of, without_node
from hpcddp.study.logs import LogLine
from hpcddp.worker import memory_fit
from hpcddp.worker.faults import fault_of
from hpcddp.worker.ranks import Rank

CODE_1 = JobState(phase="failed", detail="exit code 1 (FAILED)", word="FAILED", nodes="gn01")
MORE_THAN_GIVEN, NO_MODULE = "it used more memory than Slurm gave it", "module `python/9` does not exist on its node"

NO_CODE = JobState(phase="failed", detail="FAILED", word="FAILED", nodes="gn01")
"""Of a cluster that keeps no accounts."""


def ended(word: str, **facts: Any) -> JobState:
    return JobState(phase="failed", detail=f"{word.lower()} ({word})", word=word, **facts)


def recorded(kind: str, sentence: str = "rank 1 on gn02: it failed", line: str | None = None) -> AttemptEnd:
    return failed(Fault(kind=kind, rank=1, host="gn02", sentence=sentence, line=line))


def failed(fault: Fault) -> AttemptEnd:
    return AttemptEnd(state="failed", reason=fault.sentence, fault=fault)


def log(*lines: str) -> list[LogLine]:
    return [LogLine("batch.err", line) for line in lines]


@pytest.mark.parametrize(
    ("job", "sentence", "next_step"),
    [
        (ended("CANCELLED", by="root"), "cancelled by root (CANCELLED)", "submit it again if that was not meant"),
        (ended("CANCELLED"), "cancelled (CANCELLED)", "submit it again if that was not meant"),
        (ended("TIMEOUT", time_limit="1-12:20:00"), "it reached its time limit of 2,180 min (TIMEOUT)", "above 2180"),
        (ended("TIMEOUT"), "it reached its time limit (TIMEOUT)", "raise slurm.walltime_min in the sweep, or"),
        (ended("NODE_FAIL", nodes="gn01"), "gn01 failed (NODE_FAIL)", "--set slurm.exclude=gn01"),
        (ended("BOOT_FAIL", nodes="gn01"), "gn01 did not boot (BOOT_FAIL)", "--set slurm.exclude=gn01"),
        (ended("OUT_OF_MEMORY"), "it used more memory than Slurm gave it (OUT_OF_MEMORY)", "slurm.mem_mb"),
        (ended("PREEMPTED"), "it was preempted by a job of higher priority (PREEMPTED)", "measure.resume: true"),
        (ended("DEADLINE"), "it did not finish before its deadline (DEADLINE)", "--deadline"),
    ],
)
def test_what_slurm_ended(job: JobState, sentence: str, next_step: str) -> None:
    reason = reason_of(job, None, ())
    assert reason.sentence == sentence
    assert next_step in reason.next_step


def test_a_time_limit_that_came_before_any_step_is_no_reason_for_a_longer_one() -> None:
    lines = log("slurmstepd: error: *** STEP 7.0 CANCELLED DUE TO TIME LIMIT ***", "failed to connect to gn09, retrying")
    stuck = reason_of(ended("TIMEOUT", time_limit="20:00"), None, lines, steps_done=0)
    assert stuck.sentence == "it reached its time limit of 20 min (TIMEOUT) before it made a step"
    assert stuck.next_step.startswith("find what the ranks waited for with `hpcddp logs`")
    assert "walltime" not in stuck.next_step
    assert stuck.line == "batch.err: failed to connect to gn09, retrying"
    for steps_done in (None, 3):
        assert "raise slurm.walltime_min" in reason_of(ended("TIMEOUT"), None, lines, steps_done=steps_done).next_step


def test_what_was_not_requeued_needs_more_time() -> None:
    sentence = "told to stop (SIGUSR2) as it began: each made one step, so the job is not requeued. The time limit comes too soon"
    reason = reason_of(JobState(phase="done"), AttemptEnd(state="interrupted", reason=sentence), ())
    assert (reason.sentence, reason.next_step[:27]) == (sentence, "raise slurm.walltime_min in")


def test_what_ranks_see_when_slurm_ends_them_is_no_cause() -> None:
    cancelled = ended("CANCELLED", by="alice")
    killed, hung = recorded("died", "rank 1 on gn02 was killed by SIGTERM"), recorded("hung", "rank 1 on gn02 hung")
    assert reason_of(cancelled, killed, ()).sentence == "cancelled by alice (CANCELLED)"
    assert reason_of(cancelled, hung, ()).sentence == "cancelled by alice (CANCELLED); rank 1 on gn02 hung"


def test_memory_beyond_the_jobs_names_the_rank_that_was_killed() -> None:
    killed = recorded("died", "rank 1 on gn02 was killed by SIGKILL")
    expected = "it used more memory than Slurm gave it (OUT_OF_MEMORY); rank 1 on gn02 was killed by SIGKILL"
    assert reason_of(ended("OUT_OF_MEMORY"), killed, ()).sentence == expected
    words = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    found = reason_of(CODE_1, killed, log("srun: error", words))
    assert found.sentence == "it used more memory than Slurm gave it; rank 1 on gn02 was killed by SIGKILL"
    assert found.line == f"batch.err: {words}"


@pytest.mark.parametrize(("end", "lines"), [(None, log("srun: error: Node failure on gn02")), (recorded("silent"), [])])
def test_the_node_that_failed_is_told_from_the_jobs_others(end: AttemptEnd | None, lines: list[LogLine]) -> None:
    reason = reason_of(ended("NODE_FAIL", nodes="gn[01-04]"), end, lines)
    assert reason.sentence.startswith("gn02 failed (NODE_FAIL)")
    assert reason.next_step.endswith("--set slurm.exclude=gn02")


@pytest.mark.parametrize("nodes", ["gn[01-04]", "gn01,gn07", None])
def test_where_the_node_is_not_known_none_is_kept_off(nodes: str | None) -> None:
    lost, bare = ended("NODE_FAIL", nodes=nodes), JobState(phase="failed", word="FAILED", nodes=nodes)
    assert reason_of(lost, None, ()).sentence == f"{f'one of {nodes}' if nodes else 'its node'} failed (NODE_FAIL)"
    assert reason_of(lost, None, ()).next_step == "submit it again"
    assert reason_of(bare, None, log("RuntimeError: No CUDA GPUs are available")).next_step == "submit it again"
    hung = Fault(kind="hung", rank=1, host="", sentence="rank 1 hung")
    assert reason_of(bare, failed(hung), ()).next_step == "check the place that it names, and `hpcddp logs`"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "it reached its time limit (TIMEOUT)"),
        ("CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***", "it was preempted"),
        ("CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", "its node failed"),
    ],
)
def test_a_forgotten_job_has_slurms_word_in_its_log(line: str, sentence: str) -> None:
    """Without accounting Slurm forgets jobs within minutes."""
    forgotten = JobState(phase="failed", detail="Slurm no longer lists this job")
    reason = reason_of(forgotten, None, log(line))
    assert reason.sentence.startswith(sentence)
    assert reason.line == f"batch.err: {line}"


def test_a_log_of_the_start_before_a_requeue_does_not_overrule_what_came_after() -> None:
    """Logs are appended to."""
    lost = log("slurmstepd: error: *** JOB 7 ON gn01 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***")
    assert reason_of(CODE_1, recorded("error"), lost).sentence == "rank 1 on gn02: it failed"
    assert reason_of(ended("TIMEOUT"), None, lost).sentence == "it reached its time limit (TIMEOUT)"


@pytest.mark.parametrize(
    ("kind", "next_step"),
    [
        ("died", "--set slurm.exclude=gn02"),
        ("silent", "--set slurm.exclude=gn02"),
        ("late", "fix the delay; if gn02 fails every time: --set slurm.exclude=gn02"),
        ("hung", "check the place that it names"),
        ("stuck", "ask the site to check the network"),
        ("out_of_memory", "set workload.batch_per_gpu lower"),
        ("disk", "free space"),
        ("loader", "lower workload.loader_workers_per_rank"),
        ("contact", "read each rank's log"),
        ("time_out", "read each rank's log"),
        ("user", "fix that"),
        ("interrupted", "submit it again"),
        ("error", "find the place in the code"),
        ("a kind of the future", "find the place in the code"),
    ],
)
def test_every_kind_of_fault_has_its_next_step(kind: str, next_step: str) -> None:
    reason = reason_of(CODE_1, recorded(kind), ())
    assert reason.sentence == "rank 1 on gn02: it failed"
    assert next_step in reason.next_step


@pytest.mark.parametrize(
    ("sentence", "next_step"),
    [
        ("`/scratch/x/1.jpg`: No such file or directory (in read, x.py line 3)", "where every node can read them"),
        ("no bigmnist in /scratch/x (no such folder on gn02): `hpcddp data prepare bigmnist`", "where every node can read them"),
        ("no data_batch_1.bin in /scratch/x: put it there: `hpcddp data fetch cifar10`", "where every node can read them"),
        ("finds no GPU (CUDA_VISIBLE_DEVICES 0). Check the job's GPU request", "slurm.exclude=gn02"),
        ("p has no torch. Add it to the modules or the python under `compute` of the profile.", "`compute`"),
    ],
)
def test_what_the_user_can_mend_has_a_step_of_its_own(sentence: str, next_step: str) -> None:
    kind = "error" if "1.jpg" in sentence else "user"
    assert next_step in reason_of(CODE_1, recorded(kind, f"rank 0 on gn02: {sentence}"), ()).next_step


def test_words_that_choose_a_step_are_those_that_jobs_record() -> None:
    rooms = (Path(hpcddp.__file__).parent / room for room in ("backends", "core", "data", "worker"))
    code = " ".join(re.sub(r'"\s+f?"', "", file.read_text(encoding="utf-8")) for room in rooms for file in room.rglob("*.py"))
    words = [part.replace("[vd]", r"\{option\}") for pattern, _ in BY_SENTENCE for part in pattern.pattern.split("|")]
    assert [part for part in words if part != "No such file" and not re.search(part, code)] == []  # the system's own words


def test_what_is_read_only_gets_no_larger() -> None:
    sentence = "rank 1 on gn02: `/home/x/end.json` cannot be written: Read-only file system"
    nothing = JobState(phase="failed", detail="its node cannot write the log of its job script (FAILED, 0:53)", word="FAILED")
    met = reason_of(CODE_1, recorded("disk", sentence), ())
    logged = reason_of(CODE_1, None, log("OSError: [Errno 30] Read-only file system: '/home/x/end.json'"))
    for reason in (met, logged, reason_of(nothing, None, ())):
        assert reason.next_step == "choose with --runs a folder that the compute nodes can write to; then submit it again"


def test_the_batch_that_fits_is_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=64))
    rank = Rank(rank=1, local_rank=0, world=2, nodes=2, job="7", restart=0, host="gn02", master_addr="gn01", master_port=1)
    error = MemoryError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 6442450944 bytes.")
    for memory, fits in ((memory_fit.Memory("memory of the node", 4 << 30, 10 << 30), 16), (None, 32)):
        monkeypatch.setattr(memory_fit, "_of_node", lambda *_, memory=memory: memory)
        reason = reason_of(CODE_1, failed(fault_of(error, rank, point)), ())
        assert reason.next_step.startswith(f"set workload.batch_per_gpu to {fits} in the sweep")


def test_a_line_that_the_sentence_has_is_not_told_twice() -> None:
    sentence = "rank 1 on gn02: no data (in f, x.py line 3)"
    assert reason_of(CODE_1, recorded("error", sentence, "ValueError: no data"), ()).line is None
    full = "rank 1 on gn02: a file cannot be written: No space left on device"
    assert reason_of(CODE_1, recorded("disk", full, "OSError: [Errno 28] No space left on device"), ()).line is None
    assert reason_of(CODE_1, recorded("error", sentence, "ValueError: other words"), ()).line == "ValueError: other words"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0.", MORE_THAN_GIVEN),
        ("slurmstepd-gn02: error: StepId=7.0 exceeded memory limit (433029120 > 1), being killed", MORE_THAN_GIVEN),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "memory ran out"),
        ("ERROR: Unable to locate a modulefile for 'python/9'", NO_MODULE),
        ('The following module(s) are unknown: "python/9"', NO_MODULE),
        ("hpcddp: this line of the job script failed with status 1: module load python/9", NO_MODULE),
        ("this line of the job script failed with status 1: . env/activate", "a line of its job script failed: . env/activate"),
        ("hpcddp: this node has no `module` command; the profile's module_init", "its node has no `module` command"),
        ("hpcddp: this node has no apptainer or singularity", "its node has no apptainer or singularity"),
        ("hpcddp: Slurm's address of n1 is 'n1', which is no number; the", "Slurm's address of n1 is `n1`, not numeric"),
        ("/var/spool/job7/slurm_script: line 9: conda: command not found", "`conda` does not exist on its node"),
        ("hpcddp: line 1: exec: python3: not found", "`python3` does not exist on its node"),
        ("ModuleNotFoundError: No module named 'torch'", "the Python of its node has no torch"),
        ("ModuleNotFoundError: No module named 'mymodels'", "the Python of its node has no module `mymodels`"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "the library libcudart.so.12 is missing on its node"),
        ("libc.so.6: version `GLIBC_2.34' not found", "its environment was built for another machine than its node"),
        ("RuntimeError: No CUDA GPUs are available", "its node shows torch no GPU"),
        ("OSError: [Errno 28] No space left on device", "its disk is full"),
        ("OSError: [Errno 30] Read-only file system: '/x'", "its file system is mounted read-only on its node"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/x'", "a file or folder is missing on its node"),
        ("PermissionError: [Errno 13] Permission denied: '/data/x'", "it has no permission for a file that it needs"),
        ("Bus error (core dumped)", "its node's /dev/shm is full"),
        ("srun: error: Node failure on gn02", "gn02 failed"),
        ("srun: error: gn02: tasks 0-1: Killed", "a process on gn02 died without an error message (tasks 0-1: Killed)"),
    ],
)
def test_without_a_record_the_logs_say_it(line: str, sentence: str) -> None:
    for job in (CODE_1, NO_CODE):
        reason = reason_of(job, None, log("srun: error: gn01: task 0: Exited with exit code 1", line))
        assert reason.sentence == sentence
        assert reason.line == f"batch.err: {line}"
        assert reason.next_step


def test_a_log_that_nobody_knows_ends_with_its_last_line() -> None:
    reason = reason_of(CODE_1, None, log("something odd", "before that"))
    assert reason.sentence == "exit code 1 (FAILED); batch.err ends: something odd"
    assert "hpcddp logs" in reason.next_step
    assert reason_of(CODE_1, None, ()).sentence == "exit code 1 (FAILED)"


def test_time_limits_are_read_as_slurm_writes_them() -> None:
    limits = ("00:20:00", "20:00", "1-00:00:00", "UNLIMITED", "Partition_Limit", None)
    assert [limit_min(text) for text in limits] == [20, 20, 1440, None, None, None]


@pytest.mark.parametrize("kind", ["died", "silent", "hung", "late", "out_of_memory", "error"])
def test_without_slurm_there_is_no_node_to_keep_off(kind: str) -> None:
    reason = reason_of(*without_node(JobState(phase="failed", detail="exit code 1", nodes="laptop"), recorded(kind)), ())
    assert "slurm." not in reason.next_step
    assert reason.next_step


def test_without_slurm_a_machine_without_a_gpu_is_not_kept_off() -> None:
    here = JobState(phase="failed", nodes="laptop")
    met = reason_of(*without_node(here, recorded("user", "rank 0 on laptop: finds no GPU")), ())
    logged = reason_of(*without_node(here, None), log("RuntimeError: No CUDA GPUs are available"))
    assert (met.next_step, logged.next_step) == ("submit it again", "submit it again")


def test_a_limit_of_the_process_is_not_the_memory_of_the_node() -> None:
    code = (
        "import resource; from pathlib import Path; from hpcddp.worker import memory_fit as fit\n"
        "limit = fit._own_status()['VmSize'] + 2**26; resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try: bytearray(2**30)\n"
        "except MemoryError as error: print(fit.out_of_memory(error, None, 0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert re.match(r"a limit of the process \(`ulimit -v`\) was reached: \d+ MiB of \d+ MiB were taken", done.stdout)
    reason = reason_of(CODE_1, recorded("out_of_memory", f"rank 1 on gn02: {done.stdout.strip()}"), ())
    assert reason.next_step.startswith("raise that limit where the ranks start")
