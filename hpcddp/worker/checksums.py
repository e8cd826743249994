"""What ranks compare instead of a model's tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from torch import Tensor

from hpcddp.data.source import to_bytes


def checksum(tensors: Iterable[Tensor]) -> str:
    """SHA-256 over all elements that this rank has, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for tensor in tensors:
        local = getattr(tensor, "to_local", None)  # of a tensor that is sharded over ranks
        digest.update(to_bytes(local() if local else tensor))
    return digest.hexdigest()[:16]
