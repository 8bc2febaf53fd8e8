"""Each function takes the lock, sends the fencing token, releases, waits its turn, and stops with the lease."""

import http.client
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from gateway import ROOT, Gateway, until

FUNCTIONS = ROOT / "examples" / "serverless"
LOCK = "invoices:anna"
#: Where npm has installed workerd.
NODE_MODULES = Path(os.environ.get("LATCHGATE_NODE_MODULES", ROOT / "target" / "serverless" / "node_modules"))


class Ledger:
    """What the lock protects. It takes `seconds` for a settlement, and refuses a fencing token that is too small."""

    def __init__(self):
        self.seconds = 0
        self.settled = []
        self.cut = 0
        self.within = 0
        self.most = 0
        ledger = self
        guard = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                token = int(self.headers["Fencing-Token"])
                with guard:
                    refused = bool(ledger.settled) and token < ledger.settled[-1]
                    ledger.within += 1
                    ledger.most = max(ledger.most, ledger.within)
                    if not refused:
                        ledger.settled.append(token)
                self.connection.settimeout(ledger.seconds or None)
                try:
                    # Whoever gives up closes the connection.
                    if ledger.seconds and not self.connection.recv(1):
                        ledger.cut += 1
                except TimeoutError:
                    pass
                finally:
                    with guard:
                        ledger.within -= 1
                self.connection.settimeout(None)
                self.send_response(409 if refused else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self):
        self._server.shutdown()
        self._server.server_close()


class Function:
    """What every function does. `call` calls one and says (status, answer)."""

    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.gateway.end)
        self.ledger = Ledger()
        self.addCleanup(self.ledger.end)
        home = tempfile.TemporaryDirectory(prefix="latchgate-serverless-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        self.begin()

    def lock(self):
        return self.gateway.call("GET", f"/locks/{LOCK}")[1]

    def in_background(self):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.call()), daemon=True)
        thread.start()
        return thread, answers

    def test_it_settles_under_the_lock_and_releases(self):
        answer = self.call()
        self.assertEqual(answer["state"], "done", answer)
        self.assertEqual(self.ledger.settled, [answer.get("fencingToken") or answer["fencing_token"]])
        self.assertEqual(self.lock()["state"], "free")

    def test_it_waits_its_turn(self):
        lease = self.gateway.acquire(LOCK, ttl_ms=60_000)
        thread, answers = self.in_background()
        until("it waits", lambda: self.lock()["waiter_count"] == 1)
        self.gateway.call("DELETE", f"/locks/{LOCK}", headers={"Lock-Token": lease["token"]})
        thread.join(20)
        self.assertEqual(answers[0]["state"], "done", answers)

    def test_calls_settle_one_after_the_other(self):
        self.ledger.seconds = 0.3
        calls = [self.in_background() for _ in range(3)]
        for thread, _ in calls:
            thread.join(30)
        self.assertEqual([answers[0]["state"] for _, answers in calls], ["done"] * 3)
        self.assertEqual((self.ledger.most, len(self.ledger.settled)), (1, 3))
        self.assertEqual(self.ledger.settled, sorted(self.ledger.settled))

    def test_it_comes_back_if_its_turn_does_not_come(self):
        self.gateway.acquire(LOCK, ttl_ms=60_000)
        self.assertEqual(self.call(short=True)["state"], "again")
        self.assertEqual(self.ledger.settled, [])
        self.assertEqual(self.lock()["waiter_count"], 0)


class JavaScript(Function):
    """A function that is served over HTTP."""

    def serve(self, *command, **environment):
        process = subprocess.Popen(
            command, cwd=self.home, env={"PATH": os.environ["PATH"], **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def copy(self, name, client):
        """The function, with the wait of ten seconds, and beside it one that waits for a second."""
        text = (FUNCTIONS / name).read_text()
        self.assertEqual(text.count("wait: '10s'"), 1)
        (self.home / name).write_text(text)
        (self.home / f"short-{name}").write_text(text.replace("wait: '10s'", "wait: '1s'"))
        client.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / "clients" / "js", client)

    def call(self, short=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[short], timeout=30)
        try:
            connection.request("GET", "/?customer=anna")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def test_work_stops_when_the_lease_is_broken(self):
        self.ledger.seconds = 20
        thread, answers = self.in_background()
        until("it settles", lambda: self.ledger.settled)
        self.gateway.call("POST", f"/locks/{LOCK}/break", {"reason": "test", "all": True})
        until("the work is cut", lambda: self.ledger.cut == 1, 10)
        thread.join(10)
        self.assertEqual(answers[0]["state"], "failed", answers)


class NodeHandler(JavaScript, unittest.TestCase):
    SERVE = """
        import { createServer } from 'node:http';
        for (const name of process.argv.slice(1)) {
          const { handler } = await import(`./${name}`);
          const server = createServer(handler).listen(0, '127.0.0.1', () => console.log(server.address().port));
          await new Promise((resolve) => server.on('listening', resolve));
        }
    """

    def begin(self):
        self.copy("node_handler.mjs", self.home / "node_modules" / "@latchgate" / "client")
        node = self.serve(
            "node", "--input-type=module", "--eval", self.SERVE, "node_handler.mjs", "short-node_handler.mjs",
            LATCHGATE_URL=self.gateway.url, LEDGER_URL=self.ledger.url,
        )
        self.ports = {short: int(node.stdout.readline()) for short in (False, True)}

    def test_a_caller_that_hangs_up_gives_its_place_up(self):
        self.gateway.acquire(LOCK, ttl_ms=60_000)
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[False])
        connection.request("GET", "/?customer=anna")
        until("it waits", lambda: self.lock()["waiter_count"] == 1)
        connection.close()
        until("its place is given up", lambda: self.lock()["waiter_count"] == 0, 3)


class CloudflareWorker(JavaScript, unittest.TestCase):
    def begin(self):
        workerd = NODE_MODULES / ".bin" / "workerd"
        self.assertTrue(workerd.exists(), f"npm install --prefix {NODE_MODULES.parent} workerd")
        self.copy("cloudflare_worker.mjs", self.home / "client")
        (self.home / "index.mjs").write_text("export * from '../client/src/index.js';\n")
        client = sorted(path.relative_to(self.home) for path in (self.home / "client" / "src").glob("*.js"))
        modules = "".join(f', (name = "{path}", esModule = embed "{path}")' for path in client)

        def worker(file):
            return f"""(
                modules = [(name = "{file}", esModule = embed "{file}"),
                    (name = "@latchgate/client", esModule = embed "index.mjs"){modules}],
                compatibilityDate = "2025-01-01",
                globalOutbound = "out",
                bindings = [
                    (name = "LATCHGATE_URL", text = "{self.gateway.url}"),
                    (name = "LEDGER_URL", text = "{self.ledger.url}"),
                ],
            )"""

        (self.home / "config.capnp").write_text(f"""
            using Workerd = import "/workerd/workerd.capnp";
            const config :Workerd.Config = (
                services = [
                    (name = "long", worker = {worker("cloudflare_worker.mjs")}),
                    (name = "short", worker = {worker("short-cloudflare_worker.mjs")}),
                    (name = "out", network = (allow = ["private", "public"])),
                ],
                sockets = [
                    (name = "long", address = "127.0.0.1:0", http = (), service = "long"),
                    (name = "short", address = "127.0.0.1:0", http = (), service = "short"),
                ],
            );
        """)
        process = self.serve(str(workerd), "serve", "--control-fd=1", "config.capnp")
        self.ports = {}
        lines = []
        while len(self.ports) < 2:
            line = process.stdout.readline()
            self.assertTrue(line, lines)
            lines.append(line)
            if line.startswith("{"):
                said = json.loads(line)
                if said.get("event") == "listen":
                    self.ports[said["socket"] == "short"] = said["port"]
        threading.Thread(target=process.stdout.read, daemon=True).start()


class Lambda(Function, unittest.TestCase):
    def begin(self):
        source = str(ROOT / "clients" / "python" / "src")
        environment = {"LATCHGATE_URL": self.gateway.url, "LEDGER_URL": self.ledger.url}
        for patch in (mock.patch.object(sys, "path", [source, *sys.path]), mock.patch.dict(os.environ, environment)):
            patch.start()
            self.addCleanup(patch.stop)
        specification = importlib.util.spec_from_file_location("aws_lambda", FUNCTIONS / "aws_lambda.py")
        self.function = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(self.function)

    def call(self, short=False):
        end = time.monotonic() + (self.function.WORK_MS + self.function.RELEASE_MS) / 1000 + (1 if short else 15)
        context = SimpleNamespace(
            aws_request_id="request-of-this-test",
            get_remaining_time_in_millis=lambda: int((end - time.monotonic()) * 1000),
        )
        return self.function.handler({"customer": "anna"}, context)

    def test_the_wait_leaves_time_for_the_work_and_the_release(self):
        waits = []

        def held(name, wait, **_):
            waits.append(wait)
            raise self.function.LockHeld("held", problem={"status": 423, "code": "locked"})

        with mock.patch.object(self.function, "locks", held):
            for left in (30_000, 14_000, 3_000):
                context = SimpleNamespace(aws_request_id="one", get_remaining_time_in_millis=lambda left=left: left)
                self.assertEqual(self.function.handler({"customer": "anna"}, context), {"state": "again"})
        self.assertEqual(waits, [16_000, 0, 0])
        # The work gives up in its time, and a release is sent a second time in its own.
        self.assertGreaterEqual(self.function.RELEASE_MS, 5_000)

    def test_people_see_which_call_holds_the_lock(self):
        self.ledger.seconds = 1
        thread, _ = self.in_background()
        until("it settles", lambda: self.ledger.settled)
        self.assertEqual(self.lock()["holders"][0]["owner"], "request-of-this-test")
        thread.join(10)


class Page(unittest.TestCase):
    def test_the_page_shows_every_function_as_it_is_tested(self):
        page = (ROOT / "docs" / "serverless.md").read_text()
        shown = re.findall(r"(?ms)^```(?:python|js)\n(.*?)^```$", page)
        self.assertEqual(sorted(shown), sorted(path.read_text() for path in FUNCTIONS.iterdir()))


if __name__ == "__main__":
    unittest.main()
