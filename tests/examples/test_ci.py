"""Each recipe for a pipeline waits, keeps the exit code, releases, and stops its command with the lease."""

import os
import re
import signal
import string
import unittest
from pathlib import Path

import yaml

from ci import LOCK, RECIPES, Job, ShellJob
from gateway import until


class Recipe(Job):
    """What every recipe does."""

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


class Shell(ShellJob, Recipe, unittest.TestCase):
    CANCELLED = 143


class Bash(ShellJob, Recipe, unittest.TestCase):
    CANCELLED = 143
    SHELL = "bash"


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


class All(unittest.TestCase):
    def test_no_recipe_is_left_out(self):
        there = {path.name for path in RECIPES.iterdir()} - {"README.md"}
        listed = re.findall(r"(?m)^\| \[([^]]*)\]", (RECIPES / "README.md").read_text())
        self.assertEqual(sorted(listed), sorted(there))
        self.assertEqual(there, {"locked.sh", "gitlab-ci.yml", "Jenkinsfile"})


if __name__ == "__main__":
    unittest.main()
