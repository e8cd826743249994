"""Which kind of fault an error is."""

from __future__ import annotations

import errno
import os

import pytest
import torch

from hpcddp.core.errors import HpcddpError
from hpcddp.study.diagnosis import BY_SENTENCE
from hpcddp.worker import memory_fit
from hpcddp.worker.faults import fault_of
from hpcddp.worker.ranks import Rank

RANK = Rank(
    rank=1, local_rank=0, world=2, nodes=2, job="7", restart=0, host="gn02", master_addr="gn01", master_port=1
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, "disk"),
        (errno.EDQUOT, "disk"),
        (errno.EROFS, "disk"),
        (errno.EIO, "disk"),
        (errno.EFBIG, "disk"),
        (errno.ESTALE, "disk"),
        (errno.ENOMEM, "out_of_memory"),
        (errno.ENOENT, "error"),
        (errno.EACCES, "error"),
    ],
)
def test_not_every_error_of_the_system_is_the_disks(number: int, kind: str) -> None:
    """A file that is missing, or another's, is no matter of room on the disk, nor is memory that a process could not be given."""
    fault = fault_of(OSError(number, os.strerror(number), "/scratch/x"), RANK)
    assert fault.kind == kind
    assert kind == "out_of_memory" or "`/scratch/x`" in fault.sentence


@pytest.mark.parametrize(
    ("words", "kind"),
    [("could not restore the optimizer", "error"), ("wait for key in TCPStore", "contact"), ("store->get() failed", "contact")],
)
def test_the_store_is_where_ranks_meet(words: str, kind: str) -> None:
    """A word that only ends as it does tells of no other rank."""
    assert fault_of(RuntimeError(words), RANK).kind == kind


def test_the_disk_may_be_the_cause_of_an_error_in_our_words() -> None:
    """As of a checkpoint that could not be written: what the user did not do, the user cannot mend."""
    for number, kind in ((errno.EIO, "disk"), (errno.ENOENT, "user")):
        error = HpcddpError("the checkpoint could not be written")
        error.__cause__ = OSError(number, os.strerror(number))
        assert fault_of(error, RANK).kind == kind


@pytest.mark.parametrize("words", ["FIND was unable to find an engine to execute", "Unable to find a valid cuDNN algorithm"])
@pytest.mark.parametrize("ooms", [0, 2])
def test_a_convolution_that_cudnn_cannot_compute(monkeypatch: pytest.MonkeyPatch, words: str, ooms: int) -> None:
    """cuDNN says the same where its workspaces find no memory and where the GPU lacks the precision: torch's counter tells."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda gpu: {"num_ooms": ooms})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda gpu: (2**30, 16 * 2**30))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda gpu: "Tesla V100")
    for name in ("memory_reserved", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda gpu: 15 * 2**30)
    fault = fault_of(RuntimeError(words), RANK)
    if ooms:
        assert fault.kind == "out_of_memory"
        assert "memory of GPU 0 (Tesla V100) ran out: 15.0 GiB of 16.0 GiB were taken" in fault.sentence
    else:
        assert fault.kind == "user"
        assert "bf16" in fault.sentence


@pytest.mark.parametrize("words", ["rank 1 on gn02 finds no GPU", "finds no GPU"])
def test_a_rank_is_named_once(words: str) -> None:
    """Also where the error names it."""
    assert fault_of(HpcddpError(words), RANK).sentence in ("rank 1 on gn02 finds no GPU", "rank 1 on gn02: finds no GPU")


@pytest.mark.parametrize(
    "words",
    ["[Errno 12] Cannot allocate memory", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."],
)
@pytest.mark.parametrize("free", [1, 500])
def test_memory_that_was_there_did_not_run_out(monkeypatch: pytest.MonkeyPatch, words: str, free: int) -> None:
    """Of a node with most of its memory free: the figures stand there, and no batch is named that would fit."""
    monkeypatch.setattr(memory_fit, "_of_process", lambda wanted: None)
    monkeypatch.setattr(memory_fit, "_of_node", lambda *_: memory_fit.Memory("memory of the node", (free + 2) << 30, 2 << 30))
    sentence = fault_of(RuntimeError(words), RANK).sentence
    part = "memory could not be allocated, though only 2.0 GiB of" if free == 500 else "memory of the node ran out: 2.0 GiB of"
    assert part in sentence
    assert any(pattern.search(sentence) for pattern, _ in BY_SENTENCE) == (free == 500)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            "NCCL error in: x.cpp:1, unhandled system error\nncclSystemError: System call\nLast error:\nCall to recv failed",
            "Call to",
        ),
        (
            "NCCL error in: x.cpp:1, remote process exited\nLast error:\nException raised from f\nframe #0: x",
            "NCCL error in: x.cpp:1",
        ),
        ("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.1.1]:3456", "Connection closed by peer"),
    ],
)
def test_the_line_of_a_message_that_tells_is_quoted(words: str, part: str) -> None:
    """NCCL's last error stands below what it says of itself."""
    assert f"lost contact with another rank ({part}" in fault_of(RuntimeError(words), RANK).sentence
