from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread

import pytest

from hpcddp.core.errors import HpcddpError, UsageError
from hpcddp.core.official_files import OfficialFile, OfficialSet
from hpcddp.data.writing import fetch as fetching
from hpcddp.data.writing.fetch import fetch_official
from hpcddp.data.writing.folder import LOCK_FOLDER, root_lock
from tests.file_server import FileServer, file_answer, file_server
from tests.machine import CHECKOUT, small_disk

CONTENTS = {"digits.gz": bytes(range(256)) * 9000, "labels.gz": b"0123456789"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """Sends both files as they should be; nobody waits before asking again."""
    monkeypatch.setattr(fetching, "PAUSE_S", 0.0)
    with file_server() as found:
        found.answers.update({f"/{name}": [file_answer(content)] for name, content in CONTENTS.items()})
        yield found


def official(*sites: str) -> OfficialSet:
    files = (OfficialFile(name, len(content), hashlib.md5(content).hexdigest()) for name, content in CONTENTS.items())
    return OfficialSet(tuple(files), (), sites)


def fetched(root: Path, *sites: str, mirror: str | None = None) -> list[str]:
    found = fetch_official(official(*sites), root, mirror=mirror, progress=lambda *_: None, remark=lambda _: None)
    return [file.name for file in found]


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.name != LOCK_FOLDER}


def test_files_come_once(server: FileServer, tmp_path: Path) -> None:
    root = tmp_path / "not" / "there"
    assert fetched(root, server.address) == list(CONTENTS)
    assert contents(root) == CONTENTS
    assert fetched(root, server.address) == []
    assert server.requests == ["/digits.gz", "/labels.gz"]


CUT = CONTENTS["digits.gz"][:-1]
FLIPPED = bytes([255]) + CONTENTS["digits.gz"][1:]
TORN = {
    "cut": (file_answer(CUT), "2,303,999 bytes were received, but the file has 2,304,000"),
    "cut, and the length of the rest promised": (file_answer(CUT, promised=len(CUT) + 1), "2,303,999 bytes were received"),
    "other bytes": (file_answer(FLIPPED), "MD5 is [0-9a-f]{32}, but [0-9a-f]{32} is expected"),
    "too long": (file_answer(FLIPPED + bytes(10)), "bytes or more were received, but the file has 2,304,000"),
    "nothing": (file_answer(b""), "0 bytes were received"),
}


@pytest.mark.parametrize("torn", TORN)
def test_what_comes_torn_is_fetched_again(server: FileServer, tmp_path: Path, torn: str) -> None:
    """Where nothing else comes the error says what did, and nothing is there under the file's name or any other."""
    answer, reason = TORN[torn]
    server.answers["/digits.gz"] = [answer]
    with pytest.raises(HpcddpError, match=rf"digits.gz could not be fetched: {server.address}digits.gz: .*{reason}"):
        fetched(tmp_path, server.address)
    assert contents(tmp_path) == {}
    server.requests.clear()
    server.answers["/digits.gz"] = [answer, answer, file_answer(CONTENTS["digits.gz"])]
    fetched(tmp_path, server.address)
    assert contents(tmp_path) == CONTENTS
    assert server.requests == ["/digits.gz"] * 3 + ["/labels.gz"]


def test_a_torn_file_under_its_name_is_replaced(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "digits.gz").write_bytes(CUT)
    (tmp_path / "labels.gz").write_bytes(CONTENTS["labels.gz"])
    assert fetched(tmp_path, server.address) == ["digits.gz"]
    assert contents(tmp_path) == CONTENTS


def test_the_next_site_stands_in(server: FileServer, tmp_path: Path) -> None:
    fetched(tmp_path, f"{server.address}elsewhere/", f"http://127.0.0.1:{unused_port()}/", server.address)
    assert contents(tmp_path) == CONTENTS
    assert server.requests.count("/elsewhere/digits.gz") == 1


def test_a_mirror_takes_the_sites_place(server: FileServer, tmp_path: Path) -> None:
    fetched(tmp_path, "http://127.0.0.1:9/", mirror=server.address.rstrip("/"))
    assert contents(tmp_path) == CONTENTS


@pytest.mark.parametrize("mirror", ["file:///etc/", "mirror.example.org", "http://", "http://[::1/"])
def test_what_is_no_address_is_refused(tmp_path: Path, mirror: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        fetched(tmp_path / "root", mirror=mirror)
    assert not (tmp_path / "root").exists()


def test_without_a_network_it_says_what_to_do(tmp_path: Path) -> None:
    site = f"http://127.0.0.1:{unused_port()}/"
    with pytest.raises(HpcddpError, match=r"refused.*Try a login node.* or copy the file .MD5 [0-9a-f]{32}. to .*--mirror"):
        fetched(tmp_path, site)


def unused_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_a_full_disk_is_said_before_anything_is_asked_for(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=1_000_000))
    with pytest.raises(HpcddpError, match=r"fetching needs 2.3 MB more in .*, where 1 MB are free: 1.3 MB are missing"):
        fetched(tmp_path, server.address)
    assert server.requests == []


def test_a_disk_that_fills_leaves_nothing_torn(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
    with small_disk(tmp_path) as disk:
        with pytest.raises(
            HpcddpError,
            match=r"cannot write files into .*No space left.*; 2.3 MB are still to be written there",
        ):
            fetched(disk, server.address)
        assert contents(disk) == {}
    assert server.requests == ["/digits.gz"]


def test_two_at_once_fetch_once(server: FileServer, tmp_path: Path) -> None:
    remarks: list[str] = []
    with root_lock(tmp_path, remarks.append):
        second = Thread(
            target=lambda: fetch_official(official(server.address), tmp_path, progress=lambda *_: None, remark=remarks.append)
        )
        second.start()
        while not remarks:
            time.sleep(0.01)
        for name, content in CONTENTS.items():
            (tmp_path / name).write_bytes(content)
    second.join()
    assert server.requests == []
    assert remarks == [f"{tmp_path}: process {os.getpid()} on {os.uname().nodename} writes there; waiting until it has finished"]


FETCHING = """
import sys
from pathlib import Path
from tests.data.test_fetch import fetched
fetched(Path(sys.argv[1]), sys.argv[2])
"""


def test_a_killed_one_leaves_nothing_that_is_used(server: FileServer, tmp_path: Path) -> None:
    half_sent, go_on = Event(), Event()

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        content = CONTENTS["digits.gz"]
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        half_sent.set()
        go_on.wait()

    server.answers["/digits.gz"] = [slowly, file_answer(CONTENTS["digits.gz"])]
    process = subprocess.Popen([sys.executable, "-c", FETCHING, tmp_path, server.address], cwd=CHECKOUT)
    try:
        half_sent.wait()
        while not any(part.stat().st_size for part in tmp_path.glob(".digits.gz.*.part")):
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
        go_on.set()
    assert len(contents(tmp_path)) == 1
    fetched(tmp_path, server.address)
    assert contents(tmp_path) == CONTENTS


def test_fetching_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys; import hpcddp.data.writing.fetch, hpcddp.commands.data; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, check=True)
