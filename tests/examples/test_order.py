"""A deploy never goes back: many runs in a random order, at two gateways, some killed, cancelled or repeated."""

import concurrent.futures
import os
import random
import signal
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from ci import RECIPES
from gateway import PROGRAM, Gateway, until
from redis_server import Redis

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "github-action"
sys.path.append(str(CLIENT / "tests"))
from runner import Job  # noqa: E402

LOCK = "deploy:production"
RUNS = int(os.environ.get("LATCHGATE_ORDER_RUNS", "200"))
SEED = int(os.environ.get("LG_SEED") or time.time())
# A deploy writes its number twice, so that a run which lives on beside a newer one would be seen.
DEPLOY = 'echo "$1" >>"$2"; sleep "$3"; echo "$1" >>"$2"'
OUTDATED = {"run": 114, "locked.sh": 114}


class Order(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(SEED)
        self.redis = Redis()
        self.addCleanup(self.redis.end)
        self.gateways = [Gateway(store=self.redis.url) for _ in range(2)]
        for gateway in self.gateways:
            self.addCleanup(gateway.end)
        home = tempfile.TemporaryDirectory(prefix="latchgate-order-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        self.deployed = self.home / "deployed"
        subprocess.run([CLIENT / "pack", self.home / "action"], check=True)

    def run_action(self, number, has_order, end):
        """Deploys `number` in a job of a runner with the action, whose first step is killed perhaps."""
        home = Path(tempfile.mkdtemp(dir=self.home))
        order = {"order": str(number)} if has_order else {}
        url = self.random.choice(self.gateways).url
        job = Job(self, self.home / "action", shutil.which("node"), home, lock=LOCK, url=url, wait="60s", ttl="6s", **order)
        step = job.main()
        try:
            if end:
                try:
                    step.process.wait(self.random.uniform(0.05, 1))
                except subprocess.TimeoutExpired:
                    step.process.send_signal(end)
            if step.ended().code:
                outdated = "is outdated" in step.log
                self.assertTrue(end or outdated, f"seed {SEED}: action {number}: {step.log}")
                return outdated
            subprocess.run(["sh", "-c", DEPLOY, "sh", str(number), self.deployed, "0.01"], check=True)
            post = job.post()
            self.assertEqual(post.code, 0, f"seed {SEED}: action {number}: {post.log}")
            return False
        finally:
            job.end()

    def start(self, number, how, has_order, rollback=None):
        """Starts a run at one of the gateways, which deploys `number` under the lock."""
        gateway = self.random.choice(self.gateways)
        seconds = f"{self.random.uniform(0, 0.04):.3f}"
        said = f"rollback {number}" if rollback else str(number)
        command = ["sh", "-c", DEPLOY, "sh", said, str(self.deployed), seconds]
        environment = {"PATH": os.environ["PATH"], "LATCHGATE_URL": gateway.url, "LOCK_TTL": "6"}
        if how == "run":
            argv = [PROGRAM, "run", LOCK, "--ttl", "6s", "--wait", "60s"]
            if has_order:
                argv += ["--order", str(number)]
            if rollback:
                argv += ["--rollback", rollback]
            argv += ["--", *command]
        else:
            argv = ["sh", RECIPES / "locked.sh", LOCK, *command]
            if has_order:
                environment["LOCK_ORDER"] = str(number)
            if rollback:
                environment["LOCK_ROLLBACK"] = rollback
        return subprocess.Popen(
            argv, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def run_one(self, number, how, has_order, end):
        if how == "action":
            return self.run_action(number, has_order, end)
        run = self.start(number, how, has_order)
        if end:
            try:
                run.wait(self.random.uniform(0.05, 1))
            except subprocess.TimeoutExpired:
                # With its children: one that lives on would write late, whatever the lock says.
                os.killpg(run.pid, end)
        said, _ = run.communicate(timeout=120)
        outdated = run.returncode == OUTDATED[how]
        if not end and not outdated:
            self.assertEqual(run.returncode, 0, f"seed {SEED}: {how} {number}: {said}")
        return outdated

    def run_all(self, has_order):
        """Runs numbers in a random order, some of them twice. Answers how many were refused as outdated."""
        numbers = [*range(1, RUNS * 9 // 10 + 1)]
        numbers += self.random.sample(numbers, RUNS - len(numbers))
        self.random.shuffle(numbers)
        # The middle of the numbers comes about in the middle: so many of them can be deployed.
        numbers.sort(key=lambda number: number + self.random.gauss(0, RUNS / 8))
        ends = (None, None, None, None, None, None, signal.SIGKILL, signal.SIGTERM)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            runs = [
                pool.submit(self.run_one, number, self.random.choice(("run", "locked.sh", "action")), has_order, self.random.choice(ends))
                for number in numbers
            ]
            return sum(run.result() for run in runs)

    def lines(self):
        return self.deployed.read_text().splitlines()

    def falls(self, lines):
        """Where the number that was deployed is lower than one before."""
        numbers = [int(line) for line in lines]
        return [(before, number) for before, number in zip(numbers, numbers[1:]) if number < before]

    def test_without_an_order_older_work_is_deployed_after_newer_work(self):
        self.assertEqual(self.run_all(has_order=False), 0)
        self.assertNotEqual(self.falls(self.lines()), [], f"seed {SEED}")

    def test_a_deploy_never_goes_back_but_in_a_rollback(self):
        outdated = self.run_all(has_order=True)
        lines = self.lines()
        self.assertEqual(self.falls(lines), [], f"seed {SEED}")
        self.assertGreater(outdated, RUNS // 20, f"seed {SEED}")
        self.assertGreater(len(set(lines)), RUNS // 20, f"seed {SEED}")
        highest = max(int(line) for line in lines)
        # On purpose, by each of both ways; what is queued below the highest order stays refused.
        for how in OUTDATED:
            run = self.start(highest - 1, how, True, rollback="the last one is broken")
            said, _ = run.communicate(timeout=60)
            self.assertEqual(run.returncode, 0, said)
            self.assertEqual(self.lines()[-1], f"rollback {highest - 1}")
            self.assertTrue(self.run_one(highest - 1, how, True, None))
        self.assertFalse(self.run_one(highest, "run", True, None))
        seen = self.gateways[0].call("GET", f"/locks/{LOCK}")[1]
        self.assertEqual(seen["granted_order"], highest)

    def test_two_services_and_a_freeze(self):
        """The recipe of a freeze: each service has its order, and a person who holds the freeze alone stops both."""
        gateway = self.gateways[0]
        freeze = gateway.acquire("freeze", ttl_ms=60_000)
        environment = {"PATH": os.environ["PATH"], "LATCHGATE_URL": gateway.url}

        def deploy(service, number):
            command = ["sh", "-c", DEPLOY, "sh", f"{service} {number}", str(self.deployed), "0"]
            argv = [PROGRAM, "run", f"deploy:{service}", "freeze=shared", "--wait", "60s", "--order", str(number)]
            return subprocess.Popen([*argv, "--", *command], env=environment, text=True, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        runs = [deploy("web", 7), deploy("api", 3)]
        until("both wait", lambda: gateway.call("GET", "/locks/freeze")[1]["waiter_count"] == 2)
        self.assertFalse(self.deployed.exists())
        gateway.call("DELETE", "/locks/freeze", headers={"Lock-Token": freeze["token"]})
        for run in runs:
            said, _ = run.communicate(timeout=60)
            self.assertEqual(run.returncode, 0, said)
        self.assertEqual(sorted(set(self.lines())), ["api 3", "web 7"])
        for service, number, code in (("web", 6, OUTDATED["run"]), ("api", 6, 0)):
            run = deploy(service, number)
            said, _ = run.communicate(timeout=60)
            self.assertEqual(run.returncode, code, said)
