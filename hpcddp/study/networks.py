"""Over which network a study's newest attempt exchanges, as its ranks' library said."""

from __future__ import annotations

from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from hpcddp.core.transport_record import TransportRecord, transport_words
from hpcddp.study.study_records import read_record


def newest_network_words(study: Study) -> str | None:
    """`network: NCCL 2.28.9 over InfiniBand (IB), 4 adapters a node, GPUDirect RDMA`; None where none is recorded, or it is the
    loopback of one node.
    """
    files = sorted(study.folder.glob("n*/r*/*/transport.json"), key=lambda file: file.lstat().st_mtime_ns)
    try:
        record = read_record(TransportRecord, files[-1]) if files else None
    except (HpcddpError, OSError):
        return None
    if record is None or (record.library == "gloo" and len(record.nodes) < 2):
        return None
    return f"network: {transport_words(record)}"
