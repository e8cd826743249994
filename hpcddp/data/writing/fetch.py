"""Official files fetched from their sites: written aside, checked, and only then given their name.

Standard library only, Python 3.10, and no torch: a login node may have none.
"""

from __future__ import annotations

import hashlib
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.official_files import READ_BYTES, OfficialFile, OfficialSet, is_official
from hpcddp.core.text import thousands
from hpcddp.data.writing.folder import OnProgress, check_space, counted, remove_parts, root_lock, write_error, written_aside

TIMEOUT_S = 30.0
"""Without an answer, or without a further byte: a firewall that swallows packets says nothing."""

ATTEMPTS = 3
"""Of each site, for what comes torn or with another checksum."""

PAUSE_S = 1.0
"""Before the second attempt; twice as long before the third."""

Advance = Callable[[int], None]
"""Called with how many bytes came, and less than 0 where they are dropped."""


class UnreachableError(Exception):
    """A site does not answer, or not with a file."""


class TornError(Exception):
    """What a site sent is not the file, or not all of it."""


def fetch_official(
    official: OfficialSet, root: Path, *, mirror: str | None = None, progress: OnProgress, remark: Callable[[str], None]
) -> list[OfficialFile]:
    """Puts the files of `official` into `root` that are not there with their checksums; those that were fetched.

    From `mirror`, an address below which they lie, or from their own sites. One process at a time: another waits, with a
    remark, and then finds the files there. `progress` is told of fewer bytes than before where what came is dropped.
    UsageError where `mirror` is no address, HpcddpError where no site sends the files or `root` cannot hold them.
    """
    sites = official.sites if mirror is None else (_checked_site(mirror),)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with root_lock(root, remark):
            remove_parts(root)
            return _fetch_missing(official, root, sites, progress)
    except OSError as error:
        raise write_error(error, root, "files", lambda: _size(_missing(official, root))) from error


def _fetch_missing(official: OfficialSet, root: Path, sites: Sequence[str], progress: OnProgress) -> list[OfficialFile]:
    missing, total = _missing(official, root), _size(official.files)
    check_space(root, _size(missing), "fetching", "choose another folder")
    advance = counted(total - _size(missing), total, progress)
    for file in missing:
        _fetch_file(file, root, sites, advance)
    return missing


def _missing(official: OfficialSet, root: Path) -> list[OfficialFile]:
    return [file for file in official.files if not is_official(root / file.name, file)]


def _size(files: Sequence[OfficialFile]) -> int:
    return sum(file.size_bytes for file in files)


def read_instead(official: OfficialSet, root: Path) -> list[Path]:
    """Unpacked files in `root` that are read in place of the packed ones, and are not the official ones."""
    places = ((file, root / folder / file.name) for folder in official.folders for file in official.unpacked)
    return [path for file, path in places if path.is_file() and not is_official(path, file)]


def _checked_site(mirror: str) -> str:
    try:
        parts = urllib.parse.urlsplit(mirror)
    except ValueError as error:
        raise UsageError(f"--mirror {mirror} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--mirror {mirror} is not an address such as https://mirror.example.org/mnist")
    return f"{mirror.rstrip('/')}/"


def _fetch_file(file: OfficialFile, root: Path, sites: Sequence[str], advance: Advance) -> None:
    """From the first site that sends the file as it should be; HpcddpError with what each did instead."""
    failures = []
    for site in sites:
        url = f"{site}{file.name}"
        try:
            _fetch_with_retries(file, url, root, advance)
        except (UnreachableError, TornError) as error:
            failures.append(f"{url}: {error}")
        else:
            return
    raise HpcddpError(
        f"{file.name} could not be fetched: {'; '.join(failures)}. Try a login node, as compute nodes often have no network; "
        f"or copy the file ({file.algorithm.upper()} {file.digest}) to {root}, or choose another server with --mirror."
    )


def _fetch_with_retries(file: OfficialFile, url: str, root: Path, advance: Advance) -> None:
    """A site that is not reached or refuses is not asked again; what comes torn is."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with written_aside(root / file.name) as part:
                _download(file, url, part, advance)
        except TornError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(PAUSE_S * attempt)
        else:
            return


def _download(file: OfficialFile, url: str, part: BinaryIO, advance: Advance) -> None:
    """Writes what `url` sends into `part`; TornError where it is not the file."""
    digest, received_bytes = hashlib.new(file.algorithm, usedforsecurity=False), 0
    try:
        for block in _blocks(url):
            part.write(block)
            digest.update(block)
            received_bytes += len(block)
            advance(len(block))
            if received_bytes > file.size_bytes:
                break
        if received_bytes != file.size_bytes:
            more = " or more" if received_bytes > file.size_bytes else ""
            raise TornError(
                f"{thousands(received_bytes)} bytes{more} were received, but the file has {thousands(file.size_bytes)}"
            )
        if digest.hexdigest() != file.digest:
            raise TornError(f"{file.algorithm.upper()} is {digest.hexdigest()}, but {file.digest} is expected")
    except TornError:
        advance(-received_bytes)
        raise


def _blocks(url: str) -> Iterator[bytes]:
    """What `url` sends, as it comes; an error of the network is never one of the disk."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            while block := response.read(READ_BYTES):
                yield block
    except urllib.error.URLError as error:
        raise UnreachableError(str(error if isinstance(error, urllib.error.HTTPError) else error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise TornError(f"{type(error).__name__}: {error}") from error
