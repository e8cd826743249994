"""The lock of a study: one command at a time changes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hpcddp.cluster.ownership import check_links, owner_of, trusted_gids
from hpcddp.core.errors import HpcddpError
from hpcddp.core.lock import HeldError, HeldLock, exclusive_lock
from hpcddp.core.records import not_for_others
from hpcddp.core.run_root import Study


@contextlib.contextmanager
def study_lock(study: Study, denied: str | None = None) -> Iterator[HeldLock]:
    """Holds the study's lock inside the block; HpcddpError says who else does, or that nothing can be written there: `denied`,
    with the reason in its braces, or else who may.
    """
    check_links(study)
    with contextlib.ExitStack() as stack:
        try:
            with not_for_others(trusted_gids()):
                study.submit_lock.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(exclusive_lock(study.submit_lock))
        except HeldError as error:
            raise HpcddpError(f"{study.folder}: another hpcddp is at work here: {error}. Try again when it is done") from error
        except OSError as error:
            words = denied or f"nothing can be changed there ({{}}); it belongs to {owner_of(study.folder)}"
            raise HpcddpError(f"{study.folder}: {words.format(error.strerror)}") from error
        yield held
