"""The twins of a test session: booted when first asked for, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hpcddp.cluster.profile_file import load_profile
from tests.twin.accounting import site_accounts
from tests.twin.controllers import Controllers
from tests.twin.shape import Site
from tests.twin.twin import Twin


class Twins:
    """Keeps the last twin up, as the next test probably asks for the same one.

    new_folder: makes an empty folder from a name.
    """

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self._twin: Twin | None = None
        self._controllers: Controllers | None = None

    def get(self, cluster: str) -> Twin:
        """The twin of that profile, booted now unless it is up; another one goes down before."""
        if self._twin is None or self._twin.profile.name != cluster:
            self.close()
            profile = load_profile(cluster)
            self._twin = Twin(profile, self._new_folder(cluster), site=Site(accounts=site_accounts(profile))).__enter__()
        return self._twin

    def controllers(self) -> Controllers:
        """Controllers of any profiles, without nodes; a twin that is up goes down before."""
        if self._controllers is None:
            self.close()
            self._controllers = Controllers(self._new_folder("controllers")).__enter__()
        return self._controllers

    def close(self) -> None:
        """Takes down what is up, if anything."""
        up, self._twin, self._controllers = self._twin or self._controllers, None, None
        if up is not None:
            up.close()
