"""What errors and logs that people met say of the cause: excerpts of threads, each under its address."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.attempt_records import AttemptEnd, Fault
from hpcddp.study.diagnosis import Reason, reason_of
from hpcddp.study.logs import LogLine, last_words
from hpcddp.worker.faults import fault_of
from hpcddp.worker.ranks import Rank

JOB = JobState(phase="failed", detail="FAILED", word="FAILED", nodes="gn02")
RANK = Rank(rank=1, local_rank=1, world=2, nodes=1, job="7", restart=0, host="gn02", master_addr="gn02", master_port=1)
BROKEN = "tell the administrators; exclude gn02 until it is repaired: --set slurm.exclude=gn02"
OWN_GPU, MEMLOCK, PORT, FILES, SHM = "one task per GPU", "LimitMEMLOCK", "MASTER_PORT", "ulimit -n", "/dev/shm"
BUILD, ROOM, COMPUTE, THREADS = "built for this GPU and driver", "quota -s", "fix `compute`", "ulimit -u"
NCCL = "NCCL error in: ../NCCLUtils.hpp:317, {} (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n{}Last error:\n"
MEMLOCKED, TAKEN = "its node's limit on locked memory is too low for InfiniBand", "port {} is in use on its node"
ECC, LOST, BUSY = (f"a GPU of its node is {words}" for words in ("broken (ECC error)", "lost", "busy or unavailable"))
OLD_DRIVER, FABRIC = (
    "the NVIDIA driver of its node is too old for its torch",
    "the fabric manager of its node's GPUs does not run",
)
OTHER_GPU, FULL = "its torch, or an extension, is not built for its node's GPU", "its node's /dev/shm is full"
MANY_FILES, MANY_THREADS = "it reached the limit of open files", "it reached the limit of processes and threads"
NOT_THERE, UNREACHED = "`{}` does not exist on its node", "its nodes cannot reach each other over the network"
CUT_OFF = "a checkpoint is incomplete: the disk or a quota is full"

BY_STEP: dict[str, list[tuple[str, str]]] = {
    OWN_GPU: [
        (
            NCCL.format("invalid usage", "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n")
            + "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10\n"
            "Exception raised from getNCCLComm at ProcessGroupNCCL.cpp (most recent call first):\nframe #0: c10::Error::Error",
            "ranks 1 and 0 use the same GPU",
        ),  # verl-project/verl#161, NVIDIA/nccl#1241
        ("smc:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0", "ranks 2 and 0 use the same GPU"),
        ("Last error: Duplicate GPU detected : rank 7 and rank 0 both on CUDA device f000", "ranks 7 and 0 use the same GPU"),
        ("CUDA error: invalid device ordinal", "a rank uses a GPU number that its node does not have"),
    ],
    MEMLOCK: [
        ("h:1:2 [0] ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", MEMLOCKED),
        (NCCL.format("system error", "") + "Call to ibv_create_cq failed with error Cannot allocate memory", MEMLOCKED),
        ("machine [0] misc/ibvwrap.cu:269 WARN Call to ibv_create_qp failed", MEMLOCKED),  # horovod/horovod#98
        ("UCX  ERROR ibv_reg_mr(address=0x2b, length=8448, access=0xf) failed: Cannot allocate memory", MEMLOCKED),
        ("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.", MEMLOCKED),
    ],
    PORT: [
        # vllm-project/vllm#39015, meta-llama/llama-models#210, dlrover#443, meta-pytorch/torchtune#1025
        ("port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use", TAKEN.format(29500)),
        ("useIpv6: 0, code: -48, name: EADDRINUSE, message: address already in use", "a required port is in use on its node"),
        ("The server socket has failed to bind to 0.0.0.0:44796 (errno: 98 - Address already in use).", TAKEN.format(44796)),
    ],
    BROKEN: [
        ("CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported", ECC),
        ("cuda runtime error (39) : uncorrectable ECC error encountered at THCCachingHostAllocator.cpp:265", ECC),
        (
            "  what():  [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error",
            ECC,
        ),  # of C++
        ("CUDA error: uncorrectable NVLink error detected during the execution", ECC.replace("ECC", "NVLink")),
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system", LOST),  # OWOD#81
        ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error", LOST),  # rwth-i6/returnn#1486
        ("Check failed: error == cudaSuccess (46 vs. 0)  all CUDA-capable devices are busy or unavailable", BUSY),  # DIGITS#2005
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", BUSY),  # NVIDIA/nccl-tests#369
        (
            NCCL.format("unhandled cuda error", "ncclUnhandledCudaError\n") + "Cuda failure 802 'system not yet initialized'",
            FABRIC,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "the GPU driver of its node does not match its libraries"),
        ("[Errno 116] Stale file handle: '/home/x'", "the file system of its node has failed"),
    ],
    "the Xid in the kernel's log": [
        ("CUDA error: unspecified launch failure", "a kernel failed on its GPU (unspecified launch failure)")
    ],
    BUILD: [
        ("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11000).", OLD_DRIVER),
        ("\nThe NVIDIA driver on your system is too old (found version 9000).\nPlease update", OLD_DRIVER),  # FastFCN#37
        ("cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version at Module.cpp:34", OLD_DRIVER),
        (
            "Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported",
            OLD_DRIVER,
        ),
        ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", OLD_DRIVER),
        ("A100-PCIE-40GB with CUDA capability sm_80 is not compatible with the current PyTorch installation.", OTHER_GPU),
        ("cuda runtime error (48) : no kernel image is available for execution on the device", OTHER_GPU),  # pytorch/pytorch#6515
    ],
    SHM: [
        ("unable to mmap 280 bytes from file </torch_59534_1208>: Cannot allocate memory (12)", FULL),  # SlowFast#473
        ("unable to open shared memory object </torch_16550_8763> in read-write mode", FULL),  # open-mmlab/mmaction2#218
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", FULL),
        ("gpu2:2143:2561 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device", FULL),
        (
            NCCL.format("unhandled system error", "")
            + "Error while creating shared memory segment /dev/shm/nccl-WU (size 9637888), error: No space left on device (28)",
            FULL,
        ),  # pytorch/ci-infra#490
        ("ubuntu:1:2 [6] misc/shmutils.cc:71 NCCL WARN Error: failed to extend /dev/shm/nccl-fjwOOB to 5967876 bytes", FULL),
    ],
    FILES: [
        ("received 0 items of ancdata", MANY_FILES),  # pytorch/pytorch#34768
        ("Too many open files. Communication with the workers is no longer possible. Please increase the limit", MANY_FILES),
        ("[Errno 24] Too many open files", MANY_FILES),
    ],
    ROOM: [
        ("[Errno 122] Disk quota exceeded: '/home/p/.cache/x-lock'", "the quota of its disk is used up: '/home/p/.cache/x-lock'"),
        ("cp: error writing '/home/u/x': Disk quota exceeded", "the quota of its disk is used up"),
        ("[Errno 28] No space left on device: '~/.cache/hub/models--x'", "its disk is full: '~/.cache/hub/models--x'"),
        (
            "[enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/3: file write failed",
            CUT_OFF,
        ),
        ("[enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598", CUT_OFF),  # meta-pytorch/torchforge#568
    ],
    COMPUTE: [
        ('FATAL:   "python": executable file not found in $PATH', "`python` does not exist in its container"),
        ("Error: crun: executable file `python` not found in $PATH: No such file", "`python` does not exist in its container"),
        ("srun: fatal: Can not execute /opt/conda/bin/python", NOT_THERE.format("/opt/conda/bin/python")),  # NVIDIA/pyxis#104
        ("slurmstepd: error: execve(): /usr/bin/ls: No such file or directory", NOT_THERE.format("/usr/bin/ls")),
        ("/bin/sh: 1: fastp: not found", NOT_THERE.format("fastp")),  # nf-core/sarek#1600
        ("ch-run[1]: error: can't execve(2): python3: No such file or directory", NOT_THERE.format("python3")),
        ("/usr/bin/env: \u2018python3\u2019: No such file or directory", NOT_THERE.format("python3")),
        ("FATAL:   could not open image /w/t.sif: lstat: no such file", "its node cannot open the container image /w/t.sif"),
        ("torch_cuda.so: undefined symbol: ncclCommX", "its libraries do not match (symbol ncclCommX is missing)"),  # nccl#1180
    ],
    THREADS: [
        ("OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily unavailable", MANY_THREADS),
        ("can't start new thread", MANY_THREADS),  # OpenMathLib/OpenBLAS#1767
        ("[Errno 11] Resource temporarily unavailable", MANY_THREADS),  # facebookresearch/detectron2#3900
        ("fork: retry: Resource temporarily unavailable", MANY_THREADS),
    ],
    "NCCL_SOCKET_IFNAME": [
        (
            NCCL.format("remote process exited or there was a network error", "")
            + "socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115(Operation now in progress)",
            UNREACHED,
        ),  # sgl-project/sglang#3820
        ("h800:1:2 [0] transport/net_ib.cc:1098 NCCL WARN NET/IB : Got completion from peer 10.0.0.2 with error 12", UNREACHED),
    ],
    "on the login node": [("<urlopen error [Errno -3] Temporary failure>", "its node cannot reach the server of a download")],
}

MET = [(text, cause, step) for step, rows in BY_STEP.items() for text, cause in rows]
LATE = "the missing rank"

WATCHED = (
    "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, "
)

IN_LOGS = [
    ("Cuda failure 2 'out of memory'", "memory ran out", "batch_per_gpu"),
    ("Timed out after 1801 seconds waiting for clients. 1/2 clients joined.", "a rank waited 1801 s for another one", LATE),
    (
        "[rank1]:"
        + WATCHED.format(1, 808)
        + "NumelIn=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.",
        "rank 1 waited 600 s for other ranks in ALLREDUCE number 808",
        LATE,
    ),  # XPixelGroup/BasicSR#737
    (
        WATCHED.format(3, 469508) + "Timeout(ms)=1800000) ran for 1802211 milliseconds before timing out.",
        "rank 3 waited 1802 s for other ranks in ALLREDUCE number 469508",
        LATE,
    ),  # OFA-Sys/OFA#271
    # the kernel's line; docs.nvidia.com/deploy/xid-errors
    ("NVRM: Xid (PCI:0000:0a:00): 79, pid=1, GPU has fallen off the bus.", "a GPU of its node is broken (Xid 79)", BROKEN),
    ("kernel: NVRM: Xid (PCI:0000:48:00): 63, Row Remapper: new row", "a GPU of its node is broken (Xid 63)", BROKEN),
]

WATCHDOG = IN_LOGS[2]

HARMLESS = [
    # NVIDIA/nccl#1231, #162, #1059, #1925, #1504, pytorch/pytorch#85604 (the second address of two), wbaopaul/scATAC-pro#47
    "h:1:1 [6] NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory",
    "Unable to load libnccl-net.so : libnccl-net.so: cannot open shared object file: No such file or directory",
    "h:1:1 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file",
    "h:1:1 [3] NCCL INFO NET/Plugin: Could not find: libnccl-net.so",
    "h:1:1 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file",
    "I cudart_stub.cc:29] Ignore above cudart dlerror (libcudart.so.11.0: cannot open shared object file)",  # spateo-release#120
    "[W socket.cpp:401] [c10d] The server socket has failed to bind to [::]:47531 (errno: 98 - Address already in use).",
    'WARN[0000] "/run/user/3" directory set by $XDG_RUNTIME_DIR does not exist.: stat /run/user/3: no such file or directory',
    # github.com/openucx/ucx and Slurm's, Python's, the loader's and the shell's of many a log
    "slurmstepd: error: couldn't chdir to `/scratch/u/run': No such file or directory: going to /tmp instead",
    "ERROR: ld.so: object 'libxalt.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
    "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8): No such file or directory",
    "UserWarning: Failed to load image Python extension: 'libpng16.so.16: cannot open shared object file'",
    "Exception ignored in: <function Pool.__del__>: OSError: [Errno 28] No space left on device",
    "[node:1] mca_base_component_repository_open: mca_pml_ucx: libucp.so.0: cannot open shared object file (ignored)",
    "rm: cannot remove '/tmp/x': No such file or directory",
    "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
    # what is a fault of the code, whatever GPU it runs on
    "NVRM: Xid (PCI:0000:0a:00): 13, pid=1, Graphics Engine Exception",
    "CUDA error: an illegal instruction was encountered",
    "/etc/profile.d/modules.sh: line 5: /opt/old/init/bash: No such file or directory",
]


def logged(text: str) -> Reason:
    """As study/logs.py gives it, the last line first, between others."""
    lines = ["srun: error: gn02: task 1: Exited with exit code 1", *reversed(text.splitlines()), "Traceback (most recent"]
    return reason_of(JOB, None, [LogLine("0_1_log.err", line) for line in lines if line])


@pytest.mark.parametrize(("text", "cause", "step"), [*MET, *IN_LOGS])
def test_a_log_names_the_cause(text: str, cause: str, step: str) -> None:
    reason = logged(text)
    assert reason.sentence == cause
    assert step in reason.next_step
    assert not reason.next_step.startswith("submit it again")
    assert "in the code; fix" not in reason.next_step


@pytest.mark.parametrize(("text", "cause", "step"), MET)
def test_a_record_names_the_same_cause(text: str, cause: str, step: str) -> None:
    fault = fault_of(RuntimeError(text), RANK)
    assert (fault.kind, fault.sentence) == ("error", f"rank 1 on gn02: {cause}")
    reason = reason_of(JOB, AttemptEnd(state="failed", reason=fault.sentence, fault=fault), [])
    assert (reason.sentence, step in reason.next_step) == (fault.sentence, True)
    assert reason.line is None or "\n" not in reason.line


@pytest.mark.parametrize(("text", "cause", "step"), MET[::5])
def test_a_record_of_an_older_version_names_it_too(text: str, cause: str, step: str) -> None:
    old = Fault(kind="contact", rank=1, host="gn02", sentence="rank 1 on gn02: lost contact with another rank", line=f"E: {text}")
    reason = reason_of(JOB, AttemptEnd(state="failed", reason=old.sentence, fault=old), [])
    assert reason.sentence == f"rank 1 on gn02: {cause}"
    assert step in reason.next_step


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_harmless_is_no_cause(line: str) -> None:
    assert logged(line).sentence == "FAILED; 0_1_log.err ends: srun: error: gn02: task 1: Exited with exit code 1"
    beside = logged(f"{line}\nCUDA error: uncorrectable ECC error encountered\n{line}")
    assert beside.sentence == ECC


def test_the_ranks_reason_is_found_among_harmless_lines(tmp_path: Path) -> None:
    lines = (HARMLESS[8], HARMLESS[2], WATCHDOG[0], "srun: error: n2: task 1: Aborted")
    (tmp_path / "0_0_log.err").write_text("\n".join(lines))
    reason = reason_of(JOB, None, last_words(tmp_path))
    assert (reason.sentence, reason.line) == (WATCHDOG[1], f"0_0_log.err: {WATCHDOG[0]}")


@pytest.mark.parametrize("kind", ["died", "contact", "time_out"])
def test_where_a_rank_is_only_missed_a_log_may_say_why(kind: str) -> None:
    lost = Fault(kind=kind, rank=0, host="gn01", sentence="rank 0 on gn01: lost contact")
    end = AttemptEnd(state="failed", reason=lost.sentence, fault=lost)
    lines = [LogLine("0_1_log.err", "  what():  CUDA error: uncorrectable ECC error encountered"), LogLine("0_1_log.err", "x")]
    reason = reason_of(JOB, end, lines)
    assert (reason.sentence, reason.next_step) == (f"{ECC}; {lost.sentence}", BROKEN)
    assert reason_of(JOB, end, [LogLine("batch.err", "cat: x: No such file or directory")]).sentence == lost.sentence


def test_what_nccls_watchdog_says_is_told_of_a_rank_that_it_ended() -> None:
    died = Fault(kind="died", rank=1, host="gn02", sentence="rank 1 on gn02 died without an error message")
    reason = reason_of(JOB, AttemptEnd(state="failed", reason=died.sentence, fault=died), [LogLine("0_1_log.err", WATCHDOG[0])])
    assert reason.sentence == f"{WATCHDOG[1]}; rank 1 on gn02 died without an error message"
    assert fault_of(RuntimeError(WATCHDOG[0]), RANK).kind == "time_out"


def test_why_torch_finds_no_gpu_stands_in_the_log() -> None:
    blind = Fault(kind="user", rank=0, host="gn02", sentence="rank 0 on gn02 finds no GPU (CUDA_VISIBLE_DEVICES 0)")
    end = AttemptEnd(state="failed", reason=blind.sentence, fault=blind)
    warning = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
    assert BUILD in reason_of(JOB, end, [LogLine("0_0_log.err", warning)]).next_step
    assert reason_of(JOB, end, []).next_step.endswith("--set slurm.exclude=gn02")


@pytest.mark.parametrize(
    ("number", "file"), [(errno.ENOSPC, "/dev/shm/torch_1"), (errno.EMFILE, "/data/x"), (errno.EIO, "/data/x")]
)
def test_errors_of_files_that_are_no_matter_of_room_where_the_runs_are(number: int, file: str) -> None:
    fault = fault_of(OSError(number, os.strerror(number), file), RANK)
    step = reason_of(JOB, AttemptEnd(state="failed", reason=fault.sentence, fault=fault), []).next_step
    assert {errno.ENOSPC: SHM, errno.EMFILE: FILES, errno.EIO: BROKEN}[number] in step
