"""One command at a time changes a study: two submissions at once would submit everything twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hpcddp.cluster.ownership import check_links, not_for_others, owner_of, trusted_gids
from hpcddp.core.errors import HpcddpError
from hpcddp.core.run_root import Study
from hpcddp.study.lock import Held, HeldError, only_one


@contextlib.contextmanager
def alone(study: Study, denied: str | None = None) -> Iterator[Held]:
    """Holds the study's lock meanwhile; HpcddpError says who else does, or that nothing can be written there: `denied`, with the
    reason in its braces, or else who may.
    """
    check_links(study)
    with contextlib.ExitStack() as stack:
        try:
            with not_for_others(trusted_gids()):
                study.submit_lock.mkdir(parents=True, exist_ok=True)
            held = stack.enter_context(only_one(study.submit_lock))
        except HeldError as error:
            text = f"{study.folder}: another hpcddp is at work here: {error}. Try again when it is done"
            raise HpcddpError(text) from error
        except OSError as error:
            words = denied or f"nothing can be changed there ({{}}); it belongs to {owner_of(study.folder)}"
            raise HpcddpError(f"{study.folder}: {words.format(error.strerror)}") from error
        yield held
