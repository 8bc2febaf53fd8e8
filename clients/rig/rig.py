#!/usr/bin/env python3
"""What the tests of the clients run against: a Redis, two gateways on it, and a proxy that fails on demand.

    python3 clients/rig/rig.py [--program PATH] [--files DIR] -- COMMAND ARG..

starts all of it, runs COMMAND with `LATCHGATE_RIG=http://127.0.0.1:PORT` in its environment, stops all of it, and exits
with the code of COMMAND. At that address it answers in JSON, to pages of any origin:

    GET    /rig          {"a": URL, "b": URL, "proxy": URL, "nobody": URL}: the gateways, the proxy, a port where nobody listens
    POST   /rig/proxy    {"to": "a"|"b"}: where the proxy sends what comes
    POST   /rig/fault    {"kind": KIND, "count": 1, "method": "POST", "path": "/locks", ..}: what becomes of the next requests
                         with this method and this beginning of their path; both may be left out
    DELETE /rig/fault    no more faults
    GET    /rig/log      the requests to the proxy, preflights left out: [{"method", "path", "key", "token", "authorization",
                         "body", "status", "at_ms", "answered_at_ms", "sent"}]; `status` is null if none was answered;
                         `sent` is how many bytes of the body of a `flood` were taken
    DELETE /rig/log      forgets them
    POST   /rig/gateway  {"which": "a"|"b", "do": "stop"|"cont"|"kill"|"term"|"start", "env": {..}}: answered when it is done;
                         `env` are settings for this start
    POST   /rig/redis    {"do": "stop"|"cont"|"flush"}
    POST   /rig/reset    no faults, an empty log, the proxy before `a`, everything running with the settings of the beginning
    GET    /files/..     the files of DIR

The kinds of faults:

    lose-request  closed without being forwarded           lose-reply  forwarded, the answer is thrown away, closed
    hang          never forwarded, open until the client   hang-reply  forwarded, never answered, open until the client
                  closes it                                            closes it
    status        answered with a problem of this          unknown     forwarded, the answer replaced by a 504
                  `status`, `code`, `retry_after` (s),                 `outcome-unknown`
                  said in the `retry_after_in` "header" or
                  "body", or if that is left out in both
                  With `"bare": true` as a proxy does that is no gateway: with a page instead of the problem
    delay         forwarded, the answer held back for `ms`
    drip          forwarded, and each byte of the answer sent after a pause of `ms`, from the first one of its "head" or of
                  its "body" on, as `from` says
    flood         not forwarded, answered with a body of `bytes` bytes
    alter         forwarded, and the `fields` of the answer, a JSON document, set to these values

Every answer of the proxy ends its connection, so that no HTTP client repeats a request by itself. Nothing of what it
starts outlives it, even if it is killed.
"""

import argparse
import http.client
import http.server
import json
import mimetypes
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
START_DEADLINE = 60
STOP_DEADLINE = 60
HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
}
STATUS_OF_CODE = {
    "forbidden": 403, "rate-limited": 429, "too-many-waiters": 429, "internal": 500, "store-unavailable": 503,
    "draining": 503, "overloaded": 503, "outcome-unknown": 504,
}
FAULTS = {"lose-request", "lose-reply", "hang", "hang-reply", "status", "unknown", "delay", "drip", "flood", "alter"}
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "Retry-After, ETag, Location, Latchgate-Warning",
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": "*, Authorization, Content-Type",
    "Access-Control-Allow-Private-Network": "true",
}
mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("text/javascript", ".mjs")
mimetypes.add_type("application/wasm", ".wasm")


class RigError(Exception):
    """What was asked of the rig cannot be done."""


class Guardian:
    """A process that kills the process groups of the rig once the rig is gone."""

    def __init__(self):
        read, self._write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            os.close(self._write)
            self._watch(read)
            os._exit(0)
        os.close(read)

    @staticmethod
    def _watch(read):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Whoever reads the output of the rig waits for no guardian.
        with open(os.devnull, "r+b") as nothing:
            for descriptor in range(3):
                os.dup2(nothing.fileno(), descriptor)
        groups = set()
        with os.fdopen(read) as lines:
            for line in lines:
                (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
        for group in groups:
            kill_group(group)

    def spawn(self, arguments, **options):
        """A process with its own group, which the guardian knows of before the program begins: the rig may be killed at
        any moment, the one after the fork too."""
        tell = 'fd=$1; shift; echo "+$$" >&"$fd"; exec {fd}>&-; exec "$@"'
        return subprocess.Popen(
            ["bash", "-c", tell, "bash", str(self._write), *arguments],
            start_new_session=True, pass_fds=[self._write], **options,
        )

    def ended(self, group):
        os.write(self._write, f"-{group}\n".encode())


def kill_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def until(what, ask, deadline=START_DEADLINE):
    end = time.monotonic() + deadline
    while not ask():
        if time.monotonic() > end:
            raise RigError(f"not within {deadline} s: {what}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Program:
    """A process with its own group, which can be suspended."""

    def __init__(self, guardian, name):
        self._guardian = guardian
        self.name = name
        self.process = None

    def spawn(self, arguments, **options):
        if shutil.which(arguments[0]) is None:
            raise RigError(f"{self.name}: there is no {arguments[0]}")
        self.process = self._guardian.spawn(arguments, **options)

    @property
    def runs(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        if not self.runs:
            raise RigError(f"{self.name} does not run")
        self.process.send_signal(number)

    def stop(self):
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def cont(self):
        self.send(signal.SIGCONT)

    def kill(self):
        if self.process is None:
            return
        kill_group(self.process.pid)
        self._reap()

    def _reap(self):
        self.process.wait(STOP_DEADLINE)
        if self.process.stdout:
            self.process.stdout.close()
        self._guardian.ended(self.process.pid)


class Redis(Program):
    """In memory, on a free port."""

    def __init__(self, guardian, home):
        super().__init__(guardian, "redis-server")
        self.port = free_port()
        self.spawn(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", home],
            stdout=subprocess.DEVNULL,
        )
        until("redis-server listens", self._listens)
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def _listens(self):
        if not self.runs:
            raise RigError("redis-server ended")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def flush(self):
        with socket.create_connection(("127.0.0.1", self.port), START_DEADLINE) as connection:
            connection.sendall(b"FLUSHALL\r\n")
            if not connection.recv(100).startswith(b"+OK"):
                raise RigError("redis-server did not flush")


class Gateway(Program):
    """Keeps its port from one start to the next."""

    def __init__(self, guardian, name, program, home, settings):
        super().__init__(guardian, f"gateway {name}")
        self._program = program
        self._log = Path(home) / f"{name}.log"
        self._settings = {"PATH": os.environ["PATH"], **settings}
        self._listen = "127.0.0.1:0"
        self.changed = False
        self.start({})

    def start(self, env):
        if self.runs:
            raise RigError(f"{self.name} runs already")
        self.changed = bool(env)
        with self._log.open("ab") as log:
            self.spawn(
                [self._program, "serve", "--listen", self._listen],
                env={**self._settings, **env}, stdout=subprocess.PIPE, stderr=log, text=True,
            )
        for line in self.process.stdout:
            found = re.search(r"http://(127\.0\.0\.1:\d+)", line)
            if found:
                break
        else:
            raise RigError(f"{self.name} did not start: {self._log.read_text()}")
        # The rest is read, or the gateway would wait for somebody to.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self._listen = found[1]
        self.url = f"http://{self._listen}"

    @property
    def address(self):
        host, port = self._listen.split(":")
        return host, int(port)

    def term(self):
        self.send(signal.SIGTERM)
        try:
            self._reap()
        except subprocess.TimeoutExpired:
            raise RigError(f"{self.name} did not end within {STOP_DEADLINE} s") from None


class Faults:
    """What becomes of the next requests."""

    def __init__(self):
        self._lock = threading.Lock()
        self._faults = []

    def add(self, fault):
        if fault.get("kind") not in FAULTS:
            raise RigError(f"kind: expected one of {', '.join(sorted(FAULTS))}")
        with self._lock:
            self._faults.append({"count": 1, **fault})

    def clear(self):
        with self._lock:
            self._faults.clear()

    def take(self, method, path):
        """The first one that is meant for this request, or an empty one."""
        with self._lock:
            for fault in self._faults:
                if fault.get("method", method) == method and path.startswith(fault.get("path", "/")):
                    fault["count"] -= 1
                    if fault["count"] <= 0:
                        self._faults.remove(fault)
                    return fault
        return {"kind": None}


class Rig:
    """All of it."""

    def __init__(self, guardian, program, home, files):
        self.files = files
        self.faults = Faults()
        self.log = []
        self.to = "a"
        self._began = time.monotonic()
        self._control = serve(ControlHandler, self)
        self._proxy = serve(ProxyHandler, self)
        self.url = f"http://127.0.0.1:{self._control.server_port}"
        self.redis = Redis(guardian, home)
        settings = {"LATCHGATE_STORE": self.redis.url, "LATCHGATE_HTTP_ALLOWED_ORIGINS": self.url}
        self.gateways = {}
        for name in "ab":
            self.gateways[name] = Gateway(guardian, name, program, home, settings)
        # Bound and not listening: a connection is refused, and nobody else gets the port.
        self._nobody = socket.socket()
        self._nobody.bind(("127.0.0.1", 0))

    def describe(self):
        return {
            **{name: gateway.url for name, gateway in self.gateways.items()},
            "proxy": f"http://127.0.0.1:{self._proxy.server_port}",
            "nobody": f"http://127.0.0.1:{self._nobody.getsockname()[1]}",
        }

    def now_ms(self):
        return round((time.monotonic() - self._began) * 1000)

    def turn(self, to):
        if to not in self.gateways:
            raise RigError("to: expected a or b")
        self.to = to

    def gateway(self, which, do, env):
        if which not in self.gateways:
            raise RigError("which: expected a or b")
        gateway = self.gateways[which]
        if do == "start":
            gateway.start(env)
        elif do in ("stop", "cont", "kill", "term"):
            getattr(gateway, do)()
        else:
            raise RigError("do: expected stop, cont, kill, term or start")

    def do_to_redis(self, do):
        if do not in ("stop", "cont", "flush"):
            raise RigError("do: expected stop, cont or flush")
        getattr(self.redis, do)()

    def reset(self):
        self.faults.clear()
        self.log = []
        self.to = "a"
        self.redis.cont()
        for gateway in self.gateways.values():
            if gateway.runs:
                gateway.cont()
            if gateway.changed:
                gateway.kill()
            if not gateway.runs:
                gateway.start({})


def serve(handler, rig):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.rig = rig
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


class Handler(http.server.BaseHTTPRequestHandler):
    """Reads a request and answers it."""

    protocol_version = "HTTP/1.1"
    # Headers and body are two writes, of which the second would wait for an acknowledgement of the first.
    wbufsize = -1
    disable_nagle_algorithm = True

    @property
    def rig(self):
        return self.server.rig

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # The client hung up.

    def finish(self):
        try:
            super().finish()
        except OSError:
            pass  # So it did with something still to be sent.

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                parts.append(self.rfile.read(size))
                self.rfile.readline()
                if size == 0:
                    return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def answer_json(self, status, value, **headers):
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        self.answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **CORS, **named})


class ControlHandler(Handler):
    """What a test asks of the rig."""

    def do_OPTIONS(self):
        self.answer(204, b"", {**CORS, "Access-Control-Max-Age": "600"})

    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/rig":
            self.answer_json(200, self.rig.describe())
        elif path == "/rig/log":
            self.answer_json(200, self.rig.log)
        elif path.startswith("/files/"):
            self._file(unquote(path[len("/files/"):]))
        else:
            self.answer_json(404, {"error": f"there is no {path}"})

    def do_POST(self):
        self._change()

    def do_DELETE(self):
        self._change()

    def _change(self):
        rig = self.rig
        text = self.read_body()
        try:
            body = json.loads(text or "{}")
            verb = f"{self.command} {urlsplit(self.path).path}"
            if verb == "POST /rig/proxy":
                rig.turn(body.get("to"))
            elif verb == "POST /rig/fault":
                rig.faults.add(body)
            elif verb == "DELETE /rig/fault":
                rig.faults.clear()
            elif verb == "DELETE /rig/log":
                rig.log = []
            elif verb == "POST /rig/gateway":
                rig.gateway(body.get("which"), body.get("do"), body.get("env", {}))
            elif verb == "POST /rig/redis":
                rig.do_to_redis(body.get("do"))
            elif verb == "POST /rig/reset":
                rig.reset()
            else:
                self.answer_json(404, {"error": f"there is no {verb}"})
                return
        except (RigError, ValueError) as error:
            self.answer_json(400, {"error": str(error)})
            return
        self.answer_json(200, {})

    def _file(self, name):
        base = self.rig.files
        file = base and (base / name).resolve()
        if not file or base not in file.parents or not file.is_file():
            self.answer_json(404, {"error": f"there is no file {name}"})
            return
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if kind.startswith("text/"):
            kind += "; charset=utf-8"
        self.answer(200, file.read_bytes(), {"Content-Type": kind, "Cache-Control": "no-store", **CORS})


class ProxyHandler(Handler):
    """Forwards a request to the gateway that the proxy stands before, or does what the next fault says."""

    def handle_one_request(self):
        super().handle_one_request()
        self.close_connection = True

    def _request(self):
        body = self.read_body()
        if self.command == "OPTIONS":
            self._forward({"kind": None}, {}, body)
            return
        entry = {
            "method": self.command,
            "path": self.path,
            "key": self.headers.get("Idempotency-Key"),
            "token": self.headers.get("Lock-Token"),
            "authorization": self.headers.get("Authorization"),
            "body": parsed(body),
            "status": None,
            "at_ms": self.rig.now_ms(),
            "answered_at_ms": None,
            "sent": None,
        }
        self.rig.log.append(entry)
        fault = self.rig.faults.take(self.command, self.path)
        kind = fault["kind"]
        if kind == "lose-request":
            return
        if kind == "hang":
            self._await_client()
        elif kind == "status":
            self._answer_problem(entry, fault)
        elif kind == "flood":
            self._flood(entry, fault["bytes"])
        else:
            self._forward(fault, entry, body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _request

    def _await_client(self, seconds=None):
        """Returns when the client has hung up, or at the end of this time; whether it is still there."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if end is None else max(end - time.monotonic(), 0)
            if not select.select([self.connection], [], [], left)[0]:
                return True
            if self._client_is_gone():
                return False
            time.sleep(0.02)

    def _client_is_gone(self):
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _answered(self, entry, status):
        entry["status"] = status
        entry["answered_at_ms"] = self.rig.now_ms()

    def _answer_problem(self, entry, fault):
        code = fault.get("code", "outcome-unknown" if fault["kind"] == "unknown" else "overloaded")
        status = fault.get("status") or STATUS_OF_CODE.get(code, 503)
        if fault["kind"] == "unknown":
            status = 504
        problem = {
            "type": f"/problems/{code}", "title": "A fault of the rig", "status": status, "code": code,
            "detail": "the rig was told to answer so", "request_id": uuid.uuid4().hex,
        }
        headers = {"Connection": "close", "Content-Type": "application/problem+json"}
        if "retry_after" in fault:
            if fault.get("retry_after_in") != "body":
                headers["Retry_After"] = str(fault["retry_after"])
            if fault.get("retry_after_in") != "header":
                problem["retry_after_ms"] = round(fault["retry_after"] * 1000)
        self._answered(entry, status)
        if fault.get("bare"):
            named = {name.replace("_", "-"): text for name, text in headers.items()}
            self.answer(status, b"<h1>a proxy</h1>", {**CORS, **named, "Content-Type": "text/html"})
        else:
            self.answer_json(status, problem, **headers)

    def _flood(self, entry, size):
        part = b" " * 65536
        self.send_response_only(200)
        for name, text in {**CORS, "Content-Type": "application/json", "Content-Length": str(size), "Connection": "close"}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.flush()
        self._answered(entry, 200)
        entry["sent"] = 0
        while entry["sent"] < size:
            # The write fails when the client has hung up.
            self.connection.sendall(part)
            entry["sent"] += len(part)

    def _forward(self, fault, entry, body):
        try:
            gateway = socket.create_connection(self.rig.gateways[self.rig.to].address, 10)
        except OSError:
            return  # Nobody is there: the client sees its connection closed.
        with gateway:
            gateway.settimeout(None)
            gateway.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                gateway.sendall(self._request_bytes(body))
                if not self._gateway_answers(gateway):
                    return
                answer = http.client.HTTPResponse(gateway, method=self.command)
                answer.begin()
                if answer.headers.get_content_type() == "text/event-stream":
                    self._relay_stream(gateway, answer, entry)
                    return
                text = answer.read()
            except (OSError, http.client.HTTPException):
                return  # The gateway hung up.
        kind = fault["kind"]
        if kind == "lose-reply":
            return
        if kind == "hang-reply" or (kind == "delay" and not self._await_client(fault.get("ms", 0) / 1000)):
            self._await_client()
        elif kind == "unknown":
            self._answer_problem(entry, fault)
        else:
            if kind == "alter":
                text = json.dumps({**json.loads(text), **fault["fields"]}).encode()
            self._answered(entry, answer.status)
            self.send_response_only(answer.status, answer.reason)
            self._relay_headers(answer)
            if answer.status not in (204, 304):
                self.send_header("Content-Length", str(len(text)))
            slowly = fault["ms"] / 1000 if kind == "drip" else None
            if slowly and fault["from"] == "head":
                head = b"".join(self._headers_buffer) + b"\r\n"
                self._headers_buffer = []
                text = head + text
            else:
                self.end_headers()
            self._write(text, slowly)

    def _write(self, text, slowly):
        """At once, or each byte after a pause for as long as the client listens."""
        if slowly is None:
            self.wfile.write(text)
        self.wfile.flush()
        for byte in b"" if slowly is None else text:
            if not self._await_client(slowly):
                return
            self.connection.sendall(bytes([byte]))

    def _request_bytes(self, body):
        lines = [f"{self.command} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP | {"content-length"}]
        lines.append("Connection: close")
        if body or self.command in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def _gateway_answers(self, gateway):
        """Waits for the gateway. If the client hangs up meanwhile, so does the proxy, and the gateway sees it."""
        watched = [gateway, self.connection]
        while True:
            ready = select.select(watched, [], [])[0]
            if gateway in ready:
                return True
            if self._client_is_gone():
                return False
            # It has sent more, which nobody reads.
            watched = [gateway]

    def _relay_headers(self, answer):
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Connection", "close")

    def _relay_stream(self, gateway, answer, entry):
        self._answered(entry, answer.status)
        self.send_response_only(answer.status, answer.reason)
        self._relay_headers(answer)
        self.end_headers()
        self.wfile.flush()
        while self._gateway_answers(gateway):
            part = answer.read1(65536)
            if not part:
                return
            self.wfile.write(part)
            self.wfile.flush()


def parsed(body):
    """A body as JSON if it is some, else as a text; none if it is empty."""
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def run(arguments):
    guardian = Guardian()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    # As the command would have it from a shell.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    command = Program(guardian, "the command")
    rig = None
    with tempfile.TemporaryDirectory(prefix="latchgate-rig-") as home:
        started = []
        try:
            rig = Rig(guardian, arguments.program, home, arguments.files)
            started = [*rig.gateways.values(), rig.redis]
            command.spawn(arguments.command, env={**os.environ, "LATCHGATE_RIG": rig.url})
            code = command.process.wait()
            return 128 - code if code < 0 else code
        finally:
            for program in [command, *started]:
                program.kill()


def main():
    parser = argparse.ArgumentParser(usage="rig.py [--program PATH] [--files DIR] -- COMMAND ARG..")
    parser.add_argument("--program", default=str(ROOT / "target" / "debug" / "latchgate"))
    parser.add_argument("--files", type=lambda name: Path(name).resolve())
    parser.add_argument("command", nargs="+")
    try:
        return run(parser.parse_args())
    except RigError as error:
        print(f"rig.py: {error}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
