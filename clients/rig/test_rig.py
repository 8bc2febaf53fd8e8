"""The rig keeps what it promises: each kind of fault, the processes, and that nothing is left behind.

    LATCHGATE_PROGRAM=PATH python3 -m unittest discover clients/rig
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
PROGRAM = os.environ.get("LATCHGATE_PROGRAM", str(HERE.parents[1] / "target" / "debug" / "latchgate"))
KEY = "a-key-of-more-than-22-characters"


def start_rig(*command, files=None):
    where = ["--files", str(files)] if files else []
    arguments = [sys.executable, str(HERE / "rig.py"), "--program", PROGRAM, *where, "--", *command]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def call(base, method, path, body=None, headers=None, timeout=10):
    """(status, JSON or text, headers) of a request; OSError or HTTPException if it is not answered."""
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=timeout)
    try:
        text = None if body is None else json.dumps(body)
        typed = {"Content-Type": "application/json"} if text else {}
        connection.request(method, path, text, {**typed, **(headers or {})})
        answer = connection.getresponse()
        read = answer.read().decode()
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(read) if is_json else read, answer.headers
    finally:
        connection.close()


def alive(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class RigCase(unittest.TestCase):
    """One rig for all tests of a class; its command prints the address and waits."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        files = Path(cls.directory.name)
        (files / "module.mjs").write_text("export const one = 1;\n")
        cls.process = start_rig("sh", "-c", "echo $LATCHGATE_RIG; exec sleep 600", files=files)
        cls.addClassCleanup(cls.process.stdout.close)
        cls.addClassCleanup(cls.process.wait)
        cls.addClassCleanup(cls.process.terminate)
        cls.url = cls.process.stdout.readline().strip()
        cls.urls = call(cls.url, "GET", "/rig")[1]
        cls.proxy = cls.urls["proxy"]

    def setUp(self):
        self.tell("/rig/reset")
        self.lock = f"/locks/{self.id().rsplit('.', 1)[1]}"

    def tell(self, resource, verb="POST", **body):
        status, answer, _ = call(self.url, verb, resource, body, timeout=60)
        self.assertEqual(status, 200, answer)

    def acquire(self, base=None, headers=None, timeout=10, **body):
        return call(base or self.proxy, "POST", self.lock, body, {"Idempotency-Key": KEY, **(headers or {})}, timeout)

    def state(self, base=None):
        return call(base or self.urls["b"], "GET", self.lock)[1]["state"]

    def log(self):
        return call(self.url, "GET", "/rig/log")[1]

    def assert_unanswered(self, timeout=1, **body):
        with self.assertRaises((OSError, http.client.HTTPException)) as caught:
            self.acquire(timeout=timeout, **body)
        return caught.exception


class Proxy(RigCase):
    def test_it_forwards_and_keeps_a_log(self):
        status, lease, headers = self.acquire(headers={"Authorization": "Bearer abc"}, ttl_ms=5_000)
        self.assertEqual((status, headers["Connection"]), (201, "close"))
        self.assertEqual(call(self.proxy, "DELETE", self.lock, headers={"Lock-Token": lease["token"]})[0], 204)
        acquired, released = self.log()
        self.assertEqual(
            [acquired[field] for field in ("method", "path", "key", "authorization", "body", "status")],
            ["POST", self.lock, KEY, "Bearer abc", {"ttl_ms": 5_000}, 201],
        )
        self.assertEqual((released["token"], released["status"], released["body"]), (lease["token"], 204, None))
        self.assertLessEqual(acquired["answered_at_ms"], released["at_ms"])
        self.tell("/rig/log", "DELETE")
        self.assertEqual(self.log(), [])

    def test_it_is_turned_to_the_other_gateway(self):
        self.tell("/rig/gateway", which="a", do="kill")
        self.assert_unanswered()
        self.tell("/rig/proxy", to="b")
        self.assertEqual(self.acquire()[0], 201)

    def test_a_client_that_hangs_up_leaves_the_queue(self):
        self.acquire(base=self.urls["b"], headers={"Idempotency-Key": KEY + "-of-the-holder"})
        with self.assertRaises(TimeoutError):
            call(self.proxy, "POST", self.lock, {"wait_ms": 30_000}, timeout=0.5)
        end = time.monotonic() + 5
        while call(self.urls["b"], "GET", self.lock)[1]["waiter_count"]:
            self.assertLess(time.monotonic(), end, "still in the queue")
            time.sleep(0.05)

    def test_a_page_of_the_rig_may_ask(self):
        origin = {"Origin": self.url, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        status, _, headers = call(self.proxy, "OPTIONS", self.lock, headers=origin)
        self.assertIn(status, (200, 204))
        self.assertEqual(headers["Access-Control-Allow-Origin"], self.url)
        self.assertEqual(self.acquire(headers={"Origin": self.url})[0], 201)
        self.assertEqual(len(self.log()), 1, "a preflight is not in the log")

    def test_nobody_listens_where_nobody_should(self):
        with self.assertRaises(ConnectionRefusedError):
            call(self.urls["nobody"], "GET", "/")


class Faults(RigCase):
    def fault(self, kind, **more):
        self.tell("/rig/fault", kind=kind, method="POST", path=self.lock, **more)

    def test_a_lost_request_does_not_arrive(self):
        self.fault("lose-request")
        self.assert_unanswered()
        self.assertEqual(self.state(), "free")

    def test_a_lost_reply_was_carried_out(self):
        self.fault("lose-reply")
        self.assertNotIsInstance(self.assert_unanswered(), TimeoutError)
        self.assertEqual(self.state(), "held")
        self.assertEqual(self.acquire()[0], 200)
        self.assertEqual([entry["status"] for entry in self.log()], [None, 200])

    def test_a_request_that_hangs_does_not_arrive(self):
        self.fault("hang")
        self.assertIsInstance(self.assert_unanswered(), TimeoutError)
        self.assertEqual(self.state(), "free")

    def test_a_reply_that_hangs_was_carried_out(self):
        self.fault("hang-reply")
        self.assertIsInstance(self.assert_unanswered(), TimeoutError)
        self.assertEqual(self.state(), "held")

    def test_a_status_is_a_problem_that_a_page_can_read(self):
        self.fault("status", status=429, code="rate-limited", retry_after=2)
        status, problem, headers = self.acquire()
        self.assertEqual((status, problem["status"], problem["code"]), (429, 429, "rate-limited"))
        self.assertEqual((headers["Retry-After"], headers["Content-Type"]), ("2", "application/problem+json"))
        self.assertEqual(headers["Access-Control-Allow-Origin"], "*")
        self.assertIn("Retry-After", headers["Access-Control-Expose-Headers"])
        self.assertEqual(self.state(), "free")

    def test_a_pause_is_told_in_the_header_or_the_body_or_both(self):
        for where, told in ((None, (True, True)), ("header", (True, False)), ("body", (False, True))):
            self.fault("status", status=503, retry_after=2, retry_after_in=where)
            _, problem, headers = self.acquire()
            self.assertEqual(("Retry-After" in headers, "retry_after_ms" in problem), told, where)

    def test_an_unknown_outcome_was_carried_out(self):
        self.fault("unknown", count=2)
        answers = [self.acquire() for _ in range(3)]
        self.assertEqual([status for status, _, _ in answers], [504, 504, 200])
        self.assertEqual(answers[0][1]["code"], "outcome-unknown")

    def test_a_delayed_answer_comes_late(self):
        self.fault("delay", ms=400)
        began = time.monotonic()
        self.assertEqual(self.acquire()[0], 201)
        self.assertGreaterEqual(time.monotonic() - began, 0.4)

    def test_a_proxy_answers_without_a_problem(self):
        self.fault("status", status=429, bare=True, retry_after=2)
        status, page, headers = self.acquire()
        self.assertEqual((status, page, headers["Retry-After"]), (429, "<h1>a proxy</h1>", "2"))
        self.assertEqual(self.state(), "free")

    def test_an_answer_that_drips_was_carried_out_and_takes_its_time(self):
        for where in ("head", "body"):
            self.fault("drip", ms=5, **{"from": where})
            began = time.monotonic()
            self.assertIn(self.acquire()[0], (200, 201))
            self.assertGreaterEqual(time.monotonic() - began, 0.5)

    def test_a_flood_ends_with_its_client_and_does_not_arrive(self):
        self.fault("flood", bytes=200_000_000)
        connection = http.client.HTTPConnection(urlsplit(self.proxy).netloc, timeout=10)
        connection.request("POST", self.lock, "{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.length, 200_000_000)
        answer.read(100_000)
        answer.close()
        connection.close()
        sent = self.log()[0]["sent"]
        self.assertTrue(0 < sent < 100_000_000, sent)
        self.assertEqual(self.state(), "free")

    def test_fields_of_an_answer_are_altered(self):
        self.fault("alter", fields={"expires_in_ms": 1e300})
        status, lease, _ = self.acquire(ttl_ms=5_000)
        self.assertEqual((status, lease["ttl_ms"], lease["expires_in_ms"]), (201, 5_000, 1e300))

    def test_a_fault_meets_what_it_is_meant_for_and_is_removed(self):
        self.fault("status", status=503, code="overloaded", count=9)
        self.assertEqual(call(self.proxy, "GET", self.lock)[0], 200)
        self.assertEqual(call(self.proxy, "POST", "/locks/another")[0], 201)
        self.assertEqual(self.acquire()[0], 503)
        self.tell("/rig/fault", "DELETE")
        self.assertEqual(self.acquire()[0], 201)

    def test_a_fault_that_does_not_exist_is_refused(self):
        self.assertEqual(call(self.url, "POST", "/rig/fault", {"kind": "earthquake"})[0], 400)


class Processes(RigCase):
    def test_a_gateway_is_suspended_and_goes_on(self):
        self.tell("/rig/gateway", which="a", do="stop")
        self.assertIsInstance(self.assert_unanswered(), TimeoutError)
        self.tell("/rig/gateway", which="a", do="cont")
        self.assertIn(self.acquire()[0], (200, 201))

    def test_a_gateway_starts_again_on_its_port_with_other_settings(self):
        self.tell("/rig/gateway", which="a", do="term")
        self.tell("/rig/gateway", which="a", do="start", env={"LATCHGATE_LIMITS_MAX_WAIT_MS": "1000"})
        self.assertEqual(self.acquire(base=self.urls["a"], wait_ms=2_000)[0], 400)
        self.tell("/rig/reset")
        self.assertEqual(self.acquire(base=self.urls["a"], wait_ms=2_000)[0], 201)

    def test_what_runs_is_not_started_and_what_does_not_is_not_stopped(self):
        self.assertEqual(call(self.url, "POST", "/rig/gateway", {"which": "b", "do": "start"})[0], 400)
        self.tell("/rig/gateway", which="b", do="kill")
        self.assertEqual(call(self.url, "POST", "/rig/gateway", {"which": "b", "do": "term"})[0], 400)

    def test_redis_is_suspended_and_flushed(self):
        self.assertEqual(self.acquire()[0], 201)
        self.tell("/rig/redis", do="flush")
        self.assertEqual(self.state(), "free")
        self.tell("/rig/redis", do="stop")
        self.assertNotIn(self.tried(), (200, 201))
        self.tell("/rig/redis", do="cont")

    def tried(self):
        try:
            return self.acquire(timeout=2)[0]
        except TimeoutError:
            return None


class Files(RigCase):
    def test_files_have_their_types(self):
        status, text, headers = call(self.url, "GET", "/files/module.mjs")
        self.assertEqual((status, text), (200, "export const one = 1;\n"))
        self.assertEqual(headers["Content-Type"], "text/javascript; charset=utf-8")

    def test_no_file_outside_is_served(self):
        for name in ("../rig.py", "..%2frig.py", "%2fetc/passwd", ""):
            self.assertEqual(call(self.url, "GET", f"/files/{name}")[0], 404, name)


class End(unittest.TestCase):
    """However it ends, its processes do."""

    def start(self, command):
        process = start_rig("sh", "-c", command)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_it_ends_with_the_code_of_the_command(self):
        self.assertEqual(self.start("exit 7").wait(60), 7)
        self.assertEqual(self.start("kill -TERM $$").wait(60), 143)

    def test_nothing_outlives_it(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with self.subTest(number):
                process = self.start("sleep 600 & echo $LATCHGATE_RIG $! $$; wait")
                url, *pids = process.stdout.readline().split()
                proxy = call(url, "GET", "/rig")[1]["a"]
                process.send_signal(number)
                process.wait(60)
                end = time.monotonic() + 10
                while any(alive(pid) for pid in pids) or listens(proxy):
                    self.assertLess(time.monotonic(), end, "something still runs")
                    time.sleep(0.05)

    def test_a_command_that_kills_it_at_once_does_not_outlive_it(self):
        # The output ends when no process has it any more. The time is for the start of the rig too.
        self.start("kill -KILL $PPID; sleep 600 & sleep 600").communicate(timeout=60)

    def test_a_program_that_is_missing_is_named(self):
        arguments = [sys.executable, str(HERE / "rig.py"), "--program", "/nowhere/latchgate", "--", "true"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 125)
        self.assertIn("/nowhere/latchgate", done.stderr)


def listens(url):
    try:
        call(url, "GET", "/healthz", timeout=1)
        return True
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
