"""The processor's name, from what Linux says of it."""

from __future__ import annotations

import pytest

from hpcddp.worker.launch_record import cpu_name

X86 = "processor\t: {n}\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon(R) Gold 6248\ncpu MHz\t\t: 2500\n\n"
POWER = "processor\t: {n}\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n\n"
ARM = "processor\t: {n}\nCPU implementer\t: %s\nCPU variant\t: 0x0\nCPU part\t: %s\nCPU revision\t: 0\n\n"


@pytest.mark.parametrize(
    ("core", "name"),
    [
        (X86, "Intel(R) Xeon(R) Gold 6248"),
        (POWER, "POWER9, altivec supported"),
        (ARM % ("0x41", "0xd4f"), "Neoverse-V2"),
        (ARM % ("0x41", "0xd0c"), "Neoverse-N1"),
        (ARM % ("0x46", "0x001"), "A64FX"),
        (ARM % ("0xc0", "0xac3"), "CPU implementer 0xc0, part 0xac3"),
        ("processor\t: {n}\nisa\t: rv64imafdc\n\n", None),
    ],
)
def test_each_architecture_has_a_name(core: str, name: str | None) -> None:
    """Arm has numbers: those of a core that is not in the table stand for its name."""
    assert cpu_name("".join(core.format(n=n) for n in range(2))) == name
