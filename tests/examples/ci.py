"""What the tests of the recipes for pipelines share: a job with its repository, and a proxy that fails on demand."""

import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gateway import ROOT, Gateway, until

RECIPES = ROOT / "examples" / "ci"
LOCK = "deploy:production"


class Job:
    """A recipe says by `argv` how its runner starts it, and by `variables` what that sets."""

    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.gateway.end)
        home = tempfile.TemporaryDirectory(prefix="latchgate-ci-")
        self.addCleanup(home.cleanup)
        self.repository = Path(home.name)
        (self.repository / "ci").mkdir()
        shutil.copy(RECIPES / "locked.sh", self.repository / "ci")
        self.temporary = self.repository / "tmp"
        self.temporary.mkdir()

    def start(self, deploy, url=None, lock=LOCK, several=False, shell=None, command="./deploy.sh", **variables):
        """Starts the job; `deploy` is the text of deploy.sh. `several`: the locks are named by a variable."""
        script = self.repository / "deploy.sh"
        script.write_text(f"#!/bin/sh\n{deploy}\n")
        script.chmod(0o755)
        environment = {
            "PATH": os.environ["PATH"], "TMPDIR": str(self.temporary), **self.variables(),
            "LATCHGATE_URL": url or self.gateway.url, "LOCK_TTL": "6", **variables,
        }
        own = {LOCK: lock, "./deploy.sh": command, "sh": shell or "sh"}
        argv = [own.get(argument, argument) for argument in self.argv() if not several or argument != LOCK]
        job = subprocess.Popen(
            argv, env=environment, cwd=self.repository, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        return job

    def lock(self):
        return self.gateway.call("GET", f"/locks/{LOCK}")[1]

    def held(self):
        return self.lock()["state"] == "held"

    def deploying(self):
        """The process group of the command, when it runs."""
        file = self.repository / "pid"
        return int(until("it deploys", lambda: file.exists() and file.read_text().strip()))

    def check_nothing_is_left(self):
        self.assertEqual(self.lock()["state"], "free")
        self.assertEqual(self.lock()["waiter_count"], 0)
        until("its files are gone", lambda: not list(self.temporary.iterdir()), 10)

    def check_command_is_gone(self, group):
        def gone():
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return True
            return False
        until("the command is gone", gone, 10)

    STAY = "echo $$ >pid; sleep 60 & wait"


class ShellJob(Job):
    """In a plain shell."""

    SHELL = "sh"

    def argv(self):
        return [self.SHELL, "ci/locked.sh", LOCK, "./deploy.sh"]

    def variables(self):
        return {}

    def cancel(self, job):
        job.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def wants_certificate(directory):
    """The port of a server over TLS for which no client has a certificate, and whose own certificate nobody trusts."""
    made = directory / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", made, "-out", made],
        check=True, capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.settimeout(10)
                with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                    tls.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


class Proxy:
    """Forwards to a gateway, until it is cut. Loses the answers to the next `lose` requests, holds the next one to a
    method back for the seconds in `delays`, and gives those to `answers_to` that are in `answers`, a status, a text and perhaps
    headers. Its log has the method and the idempotency key of each request, and when it was answered; `came` has when each came,
    and `bodies` what was sent, `paths` to where."""

    def __init__(self, gateway):
        self.lose = 0
        self.delays = {}
        self.answers = []
        self.answers_to = "POST"
        self.log = []
        self.came = []
        self.bodies = []
        self.paths = []
        self._cut = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                entry = [self.command, self.headers.get("Idempotency-Key"), None]
                proxy.log.append(entry)
                proxy.came.append((self.command, time.time()))
                proxy.bodies.append(body)
                proxy.paths.append((self.command, self.path))
                if proxy._cut.is_set():
                    time.sleep(30)
                    return
                if proxy.answers and self.command == proxy.answers_to:
                    status, text, *headers = proxy.answers.pop(0)
                    entry[2] = time.time()
                    self.answer(status, text.encode(), *headers)
                    return
                to = http.client.HTTPConnection(gateway.url.partition("//")[2], timeout=60)
                to.request(self.command, self.path, body, dict(self.headers))
                answer = to.getresponse()
                read = answer.read()
                to.close()
                if proxy.lose:
                    proxy.lose -= 1
                    self.close_connection = True
                    return
                time.sleep(proxy.delays.pop(self.command, 0))
                entry[2] = time.time()
                self.answer(answer.status, read)

            def answer(self, status, text, headers=()):
                self.send_response(status)
                for name, value in dict(headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                try:
                    self.wfile.write(text)
                except ConnectionError:
                    pass  # It was too long for who has asked.

            do_POST = do_PUT = do_DELETE = forward

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def cut(self):
        self._cut.set()
