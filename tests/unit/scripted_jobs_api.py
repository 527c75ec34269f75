"""The part of Ray's dashboard that takes packages and jobs, played by a server of this process."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from rayside.ray.state import Dashboard

_PACKAGES, _JOBS = "/api/packages/gcs/", "/api/jobs/"

_ROW: dict[str, Any] = {
    **{"type": "SUBMISSION", "job_id": None, "driver_info": None, "driver_exit_code": None, "start_time": 1},
    **{"entrypoint": "true", "metadata": {}, "runtime_env": {}},
}


@dataclass
class JobsApi:
    """What it was given; `refusals` are the status and the text with which it answers a method.

    `pause`: seconds before it reads what it is sent.
    """

    url: str = ""
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    failure: str = ""
    pause: float = 0.0
    packages: dict[str, bytes] = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)

    def dashboard(self) -> Dashboard:
        return Dashboard(self.url, "token")

    def listed(self) -> list[dict[str, Any]]:
        """Returns the rows of the jobs; with `failure` each of them ended before it began."""
        status = {"status": "FAILED" if self.failure else "PENDING", "message": self.failure}
        return [{**_ROW, **status, "submission_id": job["submission_id"]} for job in self.jobs]

    def names(self, address: str) -> list[str]:
        """Returns the names in the package of that address."""
        return zipfile.ZipFile(self.file(address)).namelist()

    def file(self, address: str) -> io.BytesIO:
        return io.BytesIO(self.packages[address.removeprefix("gcs://")])


@contextmanager
def jobs_api() -> Iterator[JobsApi]:
    """Yields it, listening; anything else that it is asked is a 500."""
    api = JobsApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == _JOBS:
                self._answer(200, json.dumps(api.listed()))
                return
            name = self._package()
            self._answer(*api.refusals.get("GET", (200 if name in api.packages else 404, "")))

        def do_PUT(self) -> None:
            name, data = self._package(), self._body()
            api.uploads.append(name)
            if "PUT" not in api.refusals:
                api.packages[name] = data
            self._answer(*api.refusals.get("PUT", (200, "")))

        def do_POST(self) -> None:
            body = json.loads(self._body())
            assert self.path == _JOBS
            if "POST" not in api.refusals:
                api.jobs.append(body)
            ids = dict.fromkeys(("job_id", "submission_id"), body["submission_id"])
            self._answer(*api.refusals.get("POST", (200, json.dumps(ids))))

        def _package(self) -> str:
            assert self.path.startswith(_PACKAGES)
            return unquote(self.path.removeprefix(_PACKAGES))

        def _body(self) -> bytes:
            api.tokens.add(self.headers["Authorization"])
            time.sleep(api.pause)
            return self.rfile.read(int(self.headers["Content-Length"]))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        api.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
