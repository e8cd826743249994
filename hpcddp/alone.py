"""One command at a time changes a study: two submissions at once would submit everything twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hpcddp.errors import HpcddpError
from hpcddp.lock import Held, HeldError, only_one
from hpcddp.runroot import Study


@contextlib.contextmanager
def alone(study: Study) -> Iterator[Held]:
    """Holds the study's lock meanwhile; HpcddpError says who else does, or that nothing can be written there."""
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(only_one(study.submit_lock))
        except HeldError as error:
            text = f"{study.folder}: another hpcddp is at work here: {error}. Try again when it is done"
            raise HpcddpError(text) from error
        except OSError as error:
            text = f"{study.folder}: runs cannot go there ({error.strerror}); give another folder with --runs"
            raise HpcddpError(text) from error
        yield held
