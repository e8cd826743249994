"""The network adapters of a node that are up, with their speeds, from /sys."""

from __future__ import annotations

from pathlib import Path

from hpcddp.core.survey_record import Adapter


def read_adapters(sys: Path = Path("/sys")) -> tuple[Adapter, ...]:
    """Ports that RDMA uses, and behind them the physical interfaces; those of one adapter stand in both."""
    ports = sorted(sys.glob("class/infiniband/*/ports/*"))
    return tuple(
        [_port(port) for port in ports if _text(port / "state").endswith("ACTIVE")]
        + [_interface(link) for link in sorted(sys.glob("class/net/*")) if _is_up(link)]
    )


def _port(port: Path) -> Adapter:
    """Its rate is written `200 Gb/sec (4X HDR)`."""
    rate, number = _text(port / "rate").partition(" ")[0], port.name
    kind = "InfiniBand" if _text(port / "link_layer") == "InfiniBand" else "RoCE"
    name = port.parents[1].name if number == "1" else f"{port.parents[1].name}:{number}"
    return Adapter(name=name, gbps=_number(rate), kind=kind, gids=_gids(port) if kind == "RoCE" else {})


def _gids(port: Path) -> dict[str, str]:
    found = {}
    for gid in sorted(port.glob("gids/*"), key=lambda file: int(file.name)):
        if _text(gid).replace(":", "").strip("0"):
            found[gid.name] = _text(port / "gid_attrs" / "types" / gid.name) or "unknown"
    return found


def _is_up(link: Path) -> bool:
    """Of a device, and no bridge, loopback or virtual interface."""
    return (link / "device").exists() and _text(link / "operstate") == "up"


def _interface(link: Path) -> Adapter:
    """Its speed is in Mb/s, -1 where it has none."""
    speed = _number(_text(link / "speed"))
    kind = "Slingshot" if link.name.startswith("hsn") else "Ethernet"
    return Adapter(name=link.name, gbps=speed / 1000 if speed and speed > 0 else None, kind=kind)


def _text(file: Path) -> str:
    """Empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
