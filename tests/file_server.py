"""A web server on this machine that sends what a test gives it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

Answer = Callable[[BaseHTTPRequestHandler], None]


class FileServer(NamedTuple):
    """`answers` by path, each list's first one taken off while it has more than one; `requests` in the order they came."""

    address: str
    answers: dict[str, list[Answer]]
    requests: list[str]


def file_answer(content: bytes, *, promised: int | None = None, status: int = 200) -> Answer:
    """An answer of `content`; with another length `promised` it ends before or after that."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content) if promised is None else promised))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


@contextlib.contextmanager
def file_server() -> Iterator[FileServer]:
    """Up inside the block, on a port of its own."""
    answers: dict[str, list[Answer]] = {}
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            found = answers.get(self.path)
            if not found:
                self.send_error(404)
                return
            with contextlib.suppress(ConnectionError):  # who had enough has hung up
                (found.pop(0) if len(found) > 1 else found[0])(self)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield FileServer(f"http://127.0.0.1:{server.server_port}/", answers, requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
