from __future__ import annotations

import struct

import torch

from hpcddp.data.source import to_bytes


def test_elements_in_order_whatever_the_strides() -> None:
    """As they lie in memory once they are in order; a number alone and nothing at all, too."""
    assert to_bytes(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).t()) == b"\x01\x03\x02\x04"
    assert to_bytes(torch.nn.Parameter(torch.tensor([1.5, -2.0]))) == struct.pack("=2f", 1.5, -2.0)
    assert to_bytes(torch.tensor(7)) == struct.pack("=q", 7)
    assert to_bytes(torch.empty(0, 3)) == b""
