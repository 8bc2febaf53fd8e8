"""A job without an API key at a real gateway, which verifies the ID tokens of an issuer in place of GitHub's."""

import json
import os
import re
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from front import REQUEST_TOKEN
from runner import DEADLINE, Job
from test_action import ACTION, NODE, until

PROGRAM = os.environ["PROGRAM"]
LOCK = "deploy:web"
KEYS = """
[[issuer]]
name = "github"
url = "{issuer}"
audience = "{audience}"

[[key]]
name = "ci-web"
issuer = "github"
claims = {{ repository_id = "123456", environment = "production", event_name = ["push", "workflow_dispatch"] }}
acquire = ["deploy:web"]
view = ["deploy:web"]
session_ms = {session_ms}
owner = "{{repository}} #{{run_number}}"
metadata = {{ run = "https://github.com/{{repository}}/actions/runs/{{run_id}}" }}
"""


class Identity(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="latchgate-identity-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        self.issuer_process = self.start([NODE, Path(__file__).with_name("issuer.mjs")], REQUEST_TOKEN=REQUEST_TOKEN)
        self.issuer = self.issuer_process.stdout.readline().strip()

    def start(self, command, **variables):
        process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], **variables}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for clean in (process.stdout.close, process.stdin.close, process.wait, process.kill):
            self.addCleanup(clean)
        return process

    def gateway(self, session_ms=3_600_000):
        """Starts the gateway on a port that its audience names, so that it is known before."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.keys = self.home / "keys.toml"
        self.keys.write_text(KEYS.format(issuer=self.issuer, audience=self.url, session_ms=session_ms))
        process = self.start(
            [PROGRAM], LATCHGATE_LISTEN=f"127.0.0.1:{port}", LATCHGATE_AUTH_KEYS_FILE=str(self.keys),
            LATCHGATE_STORE=f"embedded:{self.home}/data", LATCHGATE_LOG_LEVEL="debug",
        )
        self.assertRegex(process.stdout.readline(), re.escape(self.url))
        return process

    def claims(self, **changed):
        self.issuer_process.stdin.write(json.dumps(changed) + "\n")
        self.issuer_process.stdin.flush()
        self.assertEqual(self.issuer_process.stdout.readline(), "changed\n")

    def ask(self, method, url, body=None, **headers):
        data = body and json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.load(answer)

    def key(self):
        """A key of the test itself, to look at the lock."""
        given = self.ask("GET", f"{self.issuer}/token?audience={self.url}", Authorization=f"Bearer {REQUEST_TOKEN}")
        return self.ask("POST", f"{self.url}/session/token", {"id_token": given["value"]})["key"]

    def lock(self, what=""):
        return self.ask("GET", f"{self.url}/locks/{LOCK}{what}", Authorization=f"Bearer {self.key()}")

    def job(self, **inputs):
        home = Path(tempfile.mkdtemp(dir=self.home))
        given = {"lock": LOCK, "url": self.url, "oidc": "true", "ttl": "2s", "wait": "30s", **inputs}
        job = Job(self, ACTION, NODE, home, **given)
        job.variables = {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.issuer}/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
        }
        return job

    def holding(self, **inputs):
        job = self.job(**inputs)
        self.assertEqual(job.main().ended().code, 0, job.step.raw)
        return job

    def check_it_is_released(self, job):
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)
        until("no process is left", lambda: not job.processes(), DEADLINE)
        for step in (job.step, post):
            told = "\n".join(line for line in step.raw.splitlines() if not line.startswith("::add-mask::"))
            for secret in ("lgx_", "eyJ", REQUEST_TOKEN):
                self.assertNotIn(secret, told)
        for file in job.home.rglob("*"):
            if file.is_file():
                self.assertNotRegex(file.read_text(errors="replace"), f"lgx_|eyJ|{REQUEST_TOKEN}", file)

    def test_a_deploy_of_twenty_minutes_with_keys_of_five_names_its_run_in_the_history(self):
        """Two hundred times as fast."""
        self.gateway(session_ms=1_500)
        job = self.holding(key_name="ci-web")
        ends = time.monotonic() + 6
        while time.monotonic() < ends:
            holder = self.lock()["holders"][0]
            self.assertEqual(holder["owner"], "acme/web #7")
            time.sleep(0.3)
        self.assertEqual(holder["metadata"]["run"], "https://github.com/acme/web/actions/runs/4711")
        self.check_it_is_released(job)
        (entry,) = self.lock("/history")["entries"]
        self.assertEqual((entry["ended"], entry["owner"]), ("released", "acme/web #7"))
        self.assertIn("ci-web (repo:acme/web:environment:production)", json.dumps(entry))

    def test_a_lease_is_kept_and_released_after_the_end_of_its_key_without_the_issuer(self):
        self.gateway(session_ms=1_500)
        key = self.key()
        job = self.holding()
        self.issuer_process.kill()
        self.issuer_process.wait()
        time.sleep(6)
        self.assertIn("lease-lost", self.refusal_of_the_next(key))
        self.check_it_is_released(job)

    def refusal_of_the_next(self, key):
        """What a caller with a key that has ended is told. The lock is held by the job: no other lease is on it."""
        request = urllib.request.Request(
            f"{self.url}/locks/{LOCK}/renew", b"{}", method="PUT",
            headers={"Authorization": f"Bearer {key}", "Lock-Token": "A" * 43, "Content-Type": "application/json"},
        )
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=DEADLINE)
        with refused.exception as answer:
            text = answer.read().decode()
        self.assertIn('"held":true', text)
        return text

    def test_each_refusal_says_its_class(self):
        self.gateway()
        now = int(time.time())
        for claims, said in (
            ({"repository_id": "99"}, "(no key matches)"),
            ({"event_name": "pull_request_target"}, "(no key matches)"),
            ({"aud": "https://another.example"}, "(no key matches)"),
            ({"iat": now - 600, "exp": now - 300}, "(time)"),
            ({"iat": None}, "(malformed)"),
        ):
            with self.subTest(claims=claims):
                self.claims(**claims)
                began = time.monotonic()
                step = self.job().main().ended()
                self.assertEqual(step.code, 1, step.raw)
                self.assertIn(said, step.commands("error")[0])
                self.assertLess(time.monotonic() - began, 20)
                self.assertEqual(step.job.post().code, 0)

    def test_a_name_that_the_key_does_not_allow_is_refused(self):
        self.gateway()
        step = self.job(lock="deploy:api").main().ended()
        self.assertEqual(step.code, 1, step.raw)
        self.assertIn("acquire", step.commands("error")[0])
        self.assertEqual(step.job.post().code, 0)
