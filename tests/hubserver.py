"""A Hugging Face hub on 127.0.0.1 that can be told to misbehave."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

HTML = b"<!DOCTYPE html>\n<html>\n<body>Please log in to this network.</body>\n</html>\n"
PLACES = ("list", "head", "file")
FAULTS = (
    "hang",
    "hang in the body",
    "close",
    "html",
    "html as json",
    "redirect loop",
    "redirect elsewhere",
    "cut body",
    "too long",
    "empty",
    "no json",
    "other json",
    "odd headers",
    "status 401",
    "status 404",
    "status 429",
    "status 500",
    "status 503",
)


class Hub(ThreadingHTTPServer):
    """Repositories by name: branches with their commits, commits with the contents of their files.

    Attributes:
        fault: one of FAULTS, or None.
        places: where it misbehaves, of PLACES.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.branches, self.commits, self.fault, self.places = {}, {}, None, PLACES
        self.listed, self.stopped = 0, threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def push(self, repo, files, branch="main"):
        """Makes a commit and moves the branch to it."""
        commit = hashlib.sha1(repr((repo, sorted(files.items()))).encode()).hexdigest()
        self.commits[repo, commit] = files
        self.branches[repo, branch] = commit
        return commit

    def handle_error(self, request, client_address):
        """Clients that hang up are expected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._answer(has_body=False)

    def do_GET(self):
        self._answer(has_body=True)

    def _answer(self, has_body):
        self.close_connection = True
        path = unquote(self.path.partition("?")[0]).strip("/")
        listing = path.startswith("api/models/")
        place = "list" if listing else ("file" if has_body else "head")
        if self.server.fault is not None and place in self.server.places and self._misbehave(listing, has_body):
            return
        headers, body = self._listing(path) if listing else self._file(path)
        if headers is None:
            return self._send(404, {"X-Error-Code": "RepoNotFound"}, b"", has_body)
        self._send(200, headers, body, has_body)

    def _listing(self, path):
        self.server.listed += 1
        repo, _, revision = path.removeprefix("api/models/").partition("/revision/")
        commit = self.server.branches.get((repo, revision or "main"), revision)
        files = self.server.commits.get((repo, commit))
        if files is None:
            return None, b""
        found = {"id": repo, "modelId": repo, "sha": commit, "private": False, "tags": [], "downloads": 0}
        found["siblings"] = [{"rfilename": name} for name in files]
        return {"Content-Type": "application/json"}, json.dumps(found).encode()

    def _file(self, path):
        repo, _, rest = path.partition("/resolve/")
        commit, _, name = rest.partition("/")
        content = self.server.commits.get((repo, commit), {}).get(name)
        if content is None:
            return None, b""
        etag = hashlib.sha1(content).hexdigest()
        return {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "Content-Type": "application/octet-stream"}, content

    def _send(self, status, headers, body, has_body, length=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Connection", "close")
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def _misbehave(self, listing, has_body):
        """Answers with a fault; returns False where it has none for this request."""
        fault = self.server.fault
        path = unquote(self.path.partition("?")[0]).strip("/")
        headers, body = self._listing(path) if listing else self._file(path)
        headers = headers or {}
        if fault == "hang":
            self.server.stopped.wait()
        elif fault == "hang in the body":
            self._send(200, headers, body[: len(body) // 2], has_body, len(body))
            self.server.stopped.wait(None if has_body else 0)
        elif fault == "close":
            self.connection.close()
        elif fault == "html":
            self._send(200, {"Content-Type": "text/html"}, HTML, has_body)
        elif fault == "html as json":
            self._send(200, {**headers, "Content-Type": "application/json"}, HTML, has_body)
        elif fault == "redirect loop":
            self._send(302, {"Location": self.path}, b"", has_body)
        elif fault == "redirect elsewhere":
            self._send(302, {"Location": "http://127.0.0.1:9/nothing"}, b"", has_body)
        elif fault == "cut body":
            self._send(200, headers, body[: len(body) // 2], has_body, len(body))
        elif fault == "too long":
            self._send(200, headers, body, has_body, len(body) + 100)
        elif fault == "empty":
            self._send(200, headers, b"", has_body)
        elif fault == "no json":
            self._send(200, headers, b"\x00\xff" * 50, has_body)
        elif fault == "other json":
            self._send(200, headers, b'{"sha": "../../x", "siblings": 3}', has_body)
        elif fault == "odd headers":
            self._send(200, {"X-Repo-Commit": "../../x", "ETag": '"../../../x"', "X-Linked-Size": "-5"}, body, has_body)
        else:
            self._send(int(fault.removeprefix("status ")), {}, HTML, has_body)
        return True


@contextmanager
def serving():
    """A running hub."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.stopped.set()
        hub.shutdown()
        hub.server_close()


@contextmanager
def used(hub, cache, seconds=1):
    """Makes huggingface_hub and rido take everything from this hub, with short patience."""
    from unittest.mock import patch

    from huggingface_hub import constants

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
    changes = dict(ENDPOINT=hub.url, HUGGINGFACE_CO_URL_TEMPLATE=template, HF_HUB_CACHE=str(cache))
    changes |= dict(HF_HUB_DOWNLOAD_TIMEOUT=seconds, HF_HUB_OFFLINE=False, HF_HUB_DISABLE_PROGRESS_BARS=True)
    with patch.multiple(constants, **changes), patch("rido.policies.hub._SECONDS", seconds, create=True):
        yield
