"""Which network interface gloo uses, as torch chooses it: the one named, or that of the host's own name, or the loopback."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Mapping

VARIABLE = "GLOO_SOCKET_IFNAME"

_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of netdevice(7)."""


def gloo_interface(env: Mapping[str, str]) -> tuple[str, ...]:
    """By name; empty where no interface has the address that the host's name stands for."""
    named = env.get(VARIABLE)
    if named:
        return tuple(named.split(","))
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return tuple(name for _, name in socket.if_nameindex() if _address(name) == address)
    return ("lo",)


def _address(interface: str) -> str | None:
    """None where it has no IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, contextlib.suppress(OSError):
        answer = fcntl.ioctl(any_socket.fileno(), _GET_ADDRESS, struct.pack("256s", interface.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return None
