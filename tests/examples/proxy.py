"""A real proxy as a process of a test's own, and a server that writes down which requests reach it."""

import http.client
import os
import signal
import socket
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gateway import until

COMMANDS = {
    "nginx": ["nginx", "-e", "stderr", "-p", "{home}", "-c", "{home}/config"],
    "caddy": ["caddy", "run", "--config", "{home}/config", "--adapter", "caddyfile"],
    "haproxy": ["haproxy", "-db", "-f", "{home}/config"],
}
# What Debian's /etc/nginx/nginx.conf has around the files of conf.d, with nothing outside of the test's directory.
NGINX = (
    "daemon off; worker_processes 1; pid {home}/pid; error_log stderr; %s events {} http { access_log off; "
    + " ".join(f"{kind}_temp_path {{home}}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    + "\n%s}\n"
)


def changed(text, changes):
    """A configuration with other addresses, paths and times; each of those to be changed must be in it."""
    for old, new in changes.items():
        assert old in text, f"{old!r} is not in {text}"
        text = text.replace(old, new)
    return text


class Proxy:
    """Runs a program with a configuration, in which {port} is a free port and {home} is a directory of this process."""

    def __init__(self, program, config, **environment):
        self._directory = tempfile.TemporaryDirectory(prefix="latchgate-proxy-")
        self.home = Path(self._directory.name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        if program == "nginx":
            config = NGINX % ("user root;" if os.geteuid() == 0 else "", config)
        place = lambda text: text.replace("{home}", str(self.home)).replace("{port}", str(self.port))
        (self.home / "config").write_text(place(config))
        with (self.home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [place(word) for word in COMMANDS[program]], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.home,
                env={"PATH": os.environ["PATH"], "HOME": str(self.home), **environment}, start_new_session=True,
            )
        try:
            until(f"{program} listens", self._listens)
        except BaseException:
            self.end()
            raise

    def _listens(self):
        if self._process.poll() is not None:
            raise AssertionError(f"it does not run: {(self.home / 'log').read_text()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self):
        # nginx has workers, which live in the same session.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._directory.cleanup()

    def send(self, method, path, body=None, headers=()):
        """Sends a request whose path is not changed by this client: (status, headers, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


class Recorder:
    """A server that has in `seen` the method, the path and the headers of each request as they arrived. Passes the
    request on to `to`, an address such as 127.0.0.1:7420, or answers 204 if there is none."""

    def __init__(self, to=None):
        self.seen = []
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                target = self.raw_requestline.split()[1].decode()
                recorder.seen.append((self.command, target, self.headers, body))
                status, read, kind = (204, b"", None) if to is None else recorder._pass_on(to, self, target, body)
                self.send_response(status)
                if kind:
                    self.send_header("Content-Type", kind)
                if status != 204:
                    self.send_header("Content-Length", str(len(read)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(read)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        # A proxy resets connections when it ends, and when a body came too late.
        self._server.handle_error = lambda *_: None
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def _pass_on(to, request, target, body):
        connection = http.client.HTTPConnection(to, timeout=30)
        try:
            own = {"host", "connection", "content-length", "transfer-encoding"}
            headers = {name: value for name, value in request.headers.items() if name.lower() not in own}
            connection.request(request.command, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers["Content-Type"]
        finally:
            connection.close()

    def end(self):
        self._server.shutdown()
        self._server.server_close()
