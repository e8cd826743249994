"""The twins of a test session: booted when first asked for, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hpcddp.cluster.profile_file import load_profile
from tests.twin.twin import Twin


class Twins:
    """Keeps the last twin up, as the next test probably asks for the same one.

    new_folder: makes an empty folder from a name.
    """

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self._twin: Twin | None = None

    def get(self, cluster: str) -> Twin:
        """The twin of that profile, booted now unless it is up; another one goes down before."""
        if self._twin is None or self._twin.profile.name != cluster:
            self.close()
            self._twin = Twin(load_profile(cluster), self._new_folder(cluster)).__enter__()
        return self._twin

    def close(self) -> None:
        """Takes down the twin that is up, if any."""
        twin, self._twin = self._twin, None
        if twin is not None:
            twin.close()
