"""Each recipe for a pipeline waits, keeps the exit code, releases, and stops its command with the lease."""

import http.client
import os
import re
import shutil
import signal
import string
import subprocess
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from gateway import ROOT, Gateway, until

RECIPES = ROOT / "examples" / "ci"
LOCK = "deploy:production"


class Recipe:
    """What every recipe does. A recipe says by `argv` how its runner starts it, and by `variables` what that sets."""

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

    def start(self, deploy, url=None, **variables):
        """Starts the job; `deploy` is the text of deploy.sh."""
        script = self.repository / "deploy.sh"
        script.write_text(f"#!/bin/sh\n{deploy}\n")
        script.chmod(0o755)
        environment = {
            "PATH": os.environ["PATH"], "TMPDIR": str(self.temporary), **self.variables(),
            "LATCHGATE_URL": url or self.gateway.url, "LOCK_TTL": "6", **variables,
        }
        job = subprocess.Popen(
            self.argv(), env=environment, cwd=self.repository, text=True, start_new_session=True,
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

    def test_the_command_runs_under_the_lock(self):
        job = self.start("echo deployed under $LATCHGATE_FENCING_TOKEN")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 0, said)
        self.assertRegex(said, r"deployed under \d+")
        self.check_nothing_is_left()

    def test_the_exit_code_is_kept_and_the_lock_released(self):
        job = self.start("exit 7")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 7, said)
        self.check_nothing_is_left()

    def test_it_waits_for_another_and_keeps_its_place(self):
        lease = self.gateway.acquire(LOCK, ttl_ms=60_000, owner='team/shop, job "4711"')
        job = self.start("echo deployed under $LATCHGATE_FENCING_TOKEN")
        until("it waits", lambda: self.lock()["waiter_count"] == 1)
        # It says so between its first request and the next.
        self.assertIn(r'waiting: held by team/shop, job \"4711\"', job.stdout.readline())
        later = self.gateway.wait_for(LOCK, "who comes later")
        until("both wait", lambda: self.lock()["waiter_count"] == 2)
        self.gateway.call("DELETE", f"/locks/{LOCK}", headers={"Lock-Token": lease["token"]})
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 0, said)
        later.join(20)
        self.assertLess(int(re.search(r"deployed under (\d+)", said)[1]), later.lease["fencing_token"])
        self.gateway.call("DELETE", f"/locks/{LOCK}", headers={"Lock-Token": later.lease["token"]})
        self.check_nothing_is_left()

    def test_a_wait_that_runs_out_leaves_no_place(self):
        self.gateway.acquire(LOCK, ttl_ms=60_000)
        job = self.start("echo deployed", LOCK_WAIT="1")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 101, said)
        self.assertNotIn("deployed", said)
        self.assertEqual(self.lock()["waiter_count"], 0)

    def test_a_job_that_is_cancelled_releases(self):
        job = self.start(self.STAY)
        group = self.deploying()
        self.cancel(job)
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, self.CANCELLED, said)
        self.check_command_is_gone(group)
        until("it is released", lambda: not self.held(), 5)
        self.check_nothing_is_left()

    def test_a_job_that_is_cancelled_while_it_waits_leaves_no_place(self):
        self.gateway.acquire(LOCK, ttl_ms=60_000)
        job = self.start("echo deployed")
        until("it waits", lambda: self.lock()["waiter_count"] == 1)
        self.cancel(job)
        said, _ = job.communicate(timeout=20)
        self.assertNotIn("deployed", said)
        # Sooner than the grace for which a place is kept.
        until("its place is given up", lambda: self.lock()["waiter_count"] == 0, 3)

    def test_a_lock_that_is_broken_stops_the_command(self):
        job = self.start(self.STAY)
        group = self.deploying()
        self.gateway.call("POST", f"/locks/{LOCK}/break", {"reason": "test", "fencing_token":
                          self.lock()["holders"][0]["fencing_token"]})
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 102, said)
        self.assertIn("the lease is lost", said)
        self.check_command_is_gone(group)


class Shell(Recipe, unittest.TestCase):
    CANCELLED = 143
    SHELL = "sh"

    def argv(self):
        return [self.SHELL, "ci/locked.sh", LOCK, "./deploy.sh"]

    def variables(self):
        return {}

    def cancel(self, job):
        job.send_signal(signal.SIGTERM)

    def test_it_renews_for_longer_than_the_ttl(self):
        job = self.start("sleep 8")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 0, said)
        self.check_nothing_is_left()

    def test_a_gateway_that_hangs_stops_the_command_before_the_lease_is_over(self):
        # One that ignores a TERM is killed in time, too.
        job = self.start("trap '' TERM; echo $$ >pid; while :; do sleep 0.1; done")
        group = self.deploying()
        renewed = time.monotonic()
        self.gateway.freeze()
        said, _ = job.communicate(timeout=60)
        self.check_command_is_gone(group)
        self.gateway.thaw()
        self.assertEqual(job.returncode, 102, said)
        self.assertIn("does not renew", said)
        self.assertGreater(time.monotonic() - renewed, 2)

    def test_the_command_is_gone_before_another_can_have_the_lock(self):
        """The lease ends at the gateway by itself, behind a proxy that stops forwarding."""
        with Proxy(self.gateway) as proxy:
            job = self.start("trap '' TERM; while :; do date +%s.%N >>last; sleep 0.05; done", proxy.url)
            until("it deploys", (self.repository / "last").exists)
            waiter = self.gateway.wait_for(LOCK, "the next")
            proxy.cut()
            waiter.join(30)
            granted = time.time()
            job.communicate(timeout=60)
            self.assertIsNotNone(waiter.lease)
            # It may have been killed while it wrote.
            *whole, _ = (self.repository / "last").read_text().split("\n")
            self.assertLess(float(whole[-1]), granted)
            self.assertEqual(job.returncode, 102)

    def test_a_lost_answer_is_given_again(self):
        with Proxy(self.gateway) as proxy:
            proxy.lose = 1
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=30)
            self.assertEqual(job.returncode, 0, said)
            self.assertIn("waiting: no gateway answers", said)
            self.check_nothing_is_left()

    def test_a_script_that_is_killed_leaves_neither_command_nor_lock(self):
        job = self.start(self.STAY)
        group = self.deploying()
        job.kill()
        job.wait()
        self.check_command_is_gone(group)
        until("it is released", lambda: not self.held(), 5)
        self.check_nothing_is_left()

    def test_a_group_that_is_killed_leaves_no_command(self):
        """Script and renewals are killed together: the lease ends by itself, and the command at once."""
        job = self.start(self.STAY, LOCK_TTL="3600")
        group = self.deploying()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        self.check_command_is_gone(group)
        until("its files are gone", lambda: not list(self.temporary.iterdir()), 10)

    def test_a_command_does_not_run_on_without_renewals(self):
        job = self.start("trap '' TERM; " + self.STAY, LOCK_TTL="3600")
        group = self.deploying()
        script = Path(f"/proc/{job.pid}/cmdline").read_bytes()

        def renewer():
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            return [int(child) for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == script]

        (one,) = until("it renews", renewer)
        os.kill(one, signal.SIGKILL)
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 102, said)
        self.assertIn("the renewals have ended", said)
        self.check_command_is_gone(group)
        self.check_nothing_is_left()

    def test_no_process_of_its_own_is_left(self):
        job = self.start("echo deployed", OF_THIS_TEST=self.repository.name)
        job.communicate(timeout=20)
        mark = f"OF_THIS_TEST={self.repository.name}".encode()

        def left():
            found = []
            for file in Path("/proc").glob("[0-9]*/environ"):
                try:
                    found += [file] if mark in file.read_bytes() else []
                except OSError:
                    continue
            return found

        until("no process is left", lambda: not left(), 10)

    def test_a_grant_that_took_long_is_renewed_before_the_command_starts(self):
        with Proxy(self.gateway) as proxy:
            proxy.delay = 2
            job = self.start("date +%s.%N >began; sleep 1", proxy.url, LOCK_TTL="9")
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 0, said)
            renewed = next(at for method, _, at in proxy.log if method == "PUT")
            self.assertLess(renewed, float((self.repository / "began").read_text()))
            self.check_nothing_is_left()

    def test_a_grant_that_came_too_late_is_asked_for_again(self):
        with Proxy(self.gateway) as proxy:
            proxy.delay = 8
            job = self.start("echo deployed under $LATCHGATE_FENCING_TOKEN; sleep 4", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 0, said)
            first, second = [key for method, key, _ in proxy.log if method == "POST"]
            self.assertNotEqual(first, second)
            self.check_nothing_is_left()

    def test_a_lease_that_was_over_before_the_command_is_no_success(self):
        take_away = f"""curl --silent --request POST --header 'Content-Type: application/json' --output /dev/null \
            --data '{{"reason": "test", "all": true}}' $LATCHGATE_URL/locks/{LOCK}/break"""
        for command, code in ((take_away, 102), (take_away + "; exit 7", 7)):
            with self.subTest(code=code):
                # Long enough for no renewal to notice.
                job = self.start(command, LOCK_TTL="3600")
                said, _ = job.communicate(timeout=60)
                self.assertEqual(job.returncode, code, said)
                self.assertIn("the lease was over before the command", said)

    def test_what_may_pass_is_asked_again(self):
        answers = {
            "502": "<html>", "500": "", "408": "", "504": '{"code":"outcome-unknown"}', "503": '{"code":"draining"}',
            "409": '{"code":"superseded"}',
        }
        with Proxy(self.gateway) as proxy:
            for status, body in [*answers.items(), ("409", '{"code":"idempotency-expired"}')]:
                with self.subTest(status=status, body=body):
                    proxy.log.clear()
                    proxy.answers = [(int(status), body)]
                    job = self.start("echo deployed", proxy.url)
                    said, _ = job.communicate(timeout=60)
                    self.assertEqual(job.returncode, 0, said)
                    keys = [key for method, key, _ in proxy.log if method == "POST"]
                    self.assertEqual(len(set(keys)), 2 if "expired" in body else 1)
                    self.assertEqual(len(keys), 2)
                    self.check_nothing_is_left()

    def test_what_is_refused_is_not_asked_again(self):
        with Proxy(self.gateway) as proxy:
            for status, code in ((403, "forbidden"), (409, "idempotency-mismatch"), (500, "internal"), (503, "fence-exhausted")):
                with self.subTest(code=code):
                    proxy.answers = [(status, f'{{"code":"{code}"}}')]
                    job = self.start("echo deployed", proxy.url)
                    said, _ = job.communicate(timeout=60)
                    self.assertEqual((job.returncode, said), (106, f"locked.sh: {LOCK}: refused: {status} {code}\n"))
                    self.check_nothing_is_left()

    def test_the_release_is_repeated_and_a_failure_is_told(self):
        with Proxy(self.gateway) as proxy:
            proxy.answers_to = "DELETE"
            proxy.answers = [(502, ""), (503, "")]
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual((job.returncode, said), (0, "deployed\n"))
            self.check_nothing_is_left()
            proxy.answers = [(502, "")] * 100
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=120)
            self.assertEqual(job.returncode, 0, said)
            self.assertIn("not released (status 502)", said)

    def test_a_slash_at_the_end_of_the_address_changes_nothing(self):
        job = self.start("echo deployed", self.gateway.url + "/")
        said, _ = job.communicate(timeout=20)
        self.assertEqual((job.returncode, said), (0, "deployed\n"))

    def test_settings_that_make_no_sense_are_refused(self):
        for name, values in {"LOCK_TTL": ["5", "0", "1m", "08", "6,7"], "LOCK_WAIT": ["10m", "-1", "1.5"]}.items():
            for value in values:
                with self.subTest(setting=f"{name}={value}"):
                    job = self.start("echo deployed", **{name: value})
                    said, _ = job.communicate(timeout=20)
                    self.assertEqual(job.returncode, 2, said)
                    self.assertIn(name, said)

    def test_the_time_until_the_kill_is_that_of_the_clock(self):
        """On a machine so slow that each pause takes ten times as long."""
        programs = self.repository / "bin"
        programs.mkdir()
        slow = programs / "sleep"
        slow.write_text(f"#!/bin/sh\n[ \"$1\" != 0.1 ] || set -- 1\nexec {shutil.which('sleep')} \"$1\"\n")
        slow.chmod(0o755)
        job = self.start(
            "trap '' TERM; echo $$ >pid; while :; do read -r _ <pid; done", LOCK_TTL="36", PATH=f"{programs}:{os.environ['PATH']}",
        )
        group = self.deploying()
        began = time.monotonic()
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=120)
        self.check_command_is_gone(group)
        # The grace is 6 s. Sixty pauses would be a minute.
        self.assertLess(time.monotonic() - began, 50)

    def test_no_secret_is_an_argument(self):
        key = "lg_secret_of_this_test"
        job = self.start("echo $$ >pid; sleep 3", LATCHGATE_KEY=key, LOCK_TTL="6")
        seen = set()
        while job.poll() is None:
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(file.read_bytes())
                except OSError:
                    continue
        self.assertFalse([said for said in seen if key.encode() in said or b"Lock-Token" in said])
        self.assertTrue([said for said in seen if b"curl" in said])

    def test_without_a_gateway_it_says_so(self):
        job = self.start("echo deployed", "http://127.0.0.1:1", LOCK_WAIT="1")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 103, said)


class Bash(Recipe, unittest.TestCase):
    CANCELLED = 143
    SHELL = "bash"
    argv, variables, cancel = Shell.argv, Shell.variables, Shell.cancel


class GitLab(Recipe, unittest.TestCase):
    CANCELLED = 143

    def setUp(self):
        super().setUp()
        self.job = yaml.safe_load((RECIPES / "gitlab-ci.yml").read_text())["deploy"]

    def argv(self):
        # A runner joins the lines to one script, and starts it by `bash`.
        return ["bash", "-c", "set -eo pipefail\n" + "\n".join(self.job["script"])]

    def variables(self):
        set_by_runner = {
            "CI": "true", "CI_PROJECT_PATH": "group/project", "CI_JOB_ID": "4711",
            "CI_ENVIRONMENT_NAME": self.job["environment"]["name"],
        }
        own = {name: string.Template(text).substitute(set_by_runner) for name, text in self.job["variables"].items()}
        self.assertTrue(own["LATCHGATE_URL"])
        return {**set_by_runner, **own}

    def cancel(self, job):
        os.killpg(job.pid, signal.SIGTERM)

    def test_people_see_which_job_holds_the_lock(self):
        self.start(self.STAY)
        self.deploying()
        self.assertEqual(self.lock()["holders"][0]["owner"], "group/project, job 4711")


class Jenkins(Recipe, unittest.TestCase):
    # The shell of the step has no trap. What it has started goes on until the lock is released.
    CANCELLED = -signal.SIGTERM
    COOKIE = "durable-of-this-test"

    def setUp(self):
        super().setUp()
        text = (RECIPES / "Jenkinsfile").read_text()
        self.steps = re.findall(r"(?m)^\s*sh '(.*)'$", text)
        (environment,) = re.findall(r"(?s)environment \{(.*?)\n    \}", text)
        self.own = dict(re.findall(r"(\w+) = '([^']*)'", environment))
        self.assertEqual(re.findall(r"(\w+) = credentials\(", environment), ["LATCHGATE_KEY"])

    def argv(self):
        (step,) = self.steps
        return ["sh", "-xe", "-c", step]

    def variables(self):
        return {
            "JOB_NAME": "deploys/web", "BUILD_DISPLAY_NAME": "#12", "JENKINS_NODE_COOKIE": self.COOKIE,
            "LATCHGATE_KEY": "lg_of_this_test", **self.own,
        }

    def cancel(self, job):
        # Jenkins signals every process that has the variable, also those in other groups.
        for file in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"JENKINS_NODE_COOKIE={self.COOKIE}".encode() in file.read_bytes():
                    os.kill(int(file.parent.name), signal.SIGTERM)
            except (OSError, ProcessLookupError):
                continue

    def start(self, *arguments, **variables):
        job = super().start(*arguments, **variables)
        # `-x` shows the command, with which a line of the log begins.
        job.stdout.readline()
        return job

    def test_people_see_which_build_holds_the_lock(self):
        self.start(self.STAY)
        self.deploying()
        self.assertEqual(self.lock()["holders"][0]["owner"], "deploys/web #12")


class Proxy:
    """Forwards to a gateway, until it is cut. Loses the answers to the next `lose` requests, holds the next one back for
    `delay` seconds, and gives those to `answers_to` that are in `answers`, a status and a text. Its log has the method, the
    idempotency key and the time of each request."""

    def __init__(self, gateway):
        self.lose = 0
        self.delay = 0
        self.answers = []
        self.answers_to = "POST"
        self.log = []
        self._cut = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.log.append((self.command, self.headers.get("Idempotency-Key"), time.time()))
                if proxy._cut.is_set():
                    time.sleep(30)
                    return
                if proxy.answers and self.command == proxy.answers_to:
                    status, text = proxy.answers.pop(0)
                    self.answer(status, text.encode())
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
                delay, proxy.delay = proxy.delay, 0
                time.sleep(delay)
                self.answer(answer.status, read)

            def answer(self, status, text):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

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


class All(unittest.TestCase):
    def test_no_recipe_is_left_out(self):
        there = {path.name for path in RECIPES.iterdir()} - {"README.md"}
        listed = re.findall(r"(?m)^\| \[([^]]*)\]", (RECIPES / "README.md").read_text())
        self.assertEqual(sorted(listed), sorted(there))
        self.assertEqual(there, {"locked.sh", "gitlab-ci.yml", "Jenkinsfile"})


if __name__ == "__main__":
    unittest.main()
