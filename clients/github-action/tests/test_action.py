"""Main and post, run as a runner runs them, against the gateways of a rig.

`scripts/clients action` sets what is needed: LATCHGATE_RIG, and in NODE and ACTION a Node and the packed action.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCE = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "clients")]

from js import call, until  # noqa: E402
from runner import DEADLINE, Job  # noqa: E402

NODE, ACTION, RIG = os.environ["NODE"], Path(os.environ["ACTION"]), os.environ["LATCHGATE_RIG"]
KEY = "lg_secret_of_this_test_0123456789"
LOCK = "deploy"


def rig(method, path, body=None):
    status, text = call(RIG, method, path, body)
    if status >= 400:
        raise AssertionError(text)
    return json.loads(text) if text else None


class Case(unittest.TestCase):
    def setUp(self):
        rig("POST", "/rig/reset")
        rig("POST", "/rig/redis", {"do": "flush"})
        self.urls = rig("GET", "/rig")
        home = tempfile.TemporaryDirectory(prefix="latchgate-action-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)

    def job(self, **inputs):
        home = Path(tempfile.mkdtemp(dir=self.home))
        given = {"lock": LOCK, "url": self.urls["proxy"], "key": KEY, "ttl": "2s", **inputs}
        return Job(self, ACTION, NODE, home, **given)

    def holding(self, **inputs):
        """A job whose main is done."""
        job = self.job(**inputs)
        step = job.main().ended()
        self.assertEqual(step.code, 0, step.raw)
        return job

    # === the lock, seen from the other gateway ===

    def lock(self, name=LOCK):
        return json.loads(call(self.urls["b"], "GET", f"/locks/{name}")[1])

    def held(self):
        return self.lock()["state"] == "held"

    def acquire(self, **body):
        status, text = call(self.urls["b"], "POST", f"/locks/{LOCK}", {"ttl_ms": 60_000, **body})
        self.assertEqual(status, 201, text)
        return json.loads(text)

    def release(self, lease):
        status = subprocess.run(
            ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--request", "DELETE",
             "--header", f"Lock-Token: {lease['token']}", f"{self.urls['b']}/locks/{LOCK}"],
            capture_output=True, text=True, check=True,
        ).stdout
        self.assertEqual(status, "204")

    def waits(self, count=1):
        until(f"{count} wait", lambda: self.lock()["waiter_count"] == count, DEADLINE)

    def requests(self, method):
        return [entry for entry in rig("GET", "/rig/log") if entry["method"] == method]

    # === what must hold at the end ===

    def check_nothing_is_left(self, job):
        until("no process is left", lambda: not job.processes(), DEADLINE)
        until("the lock is free", lambda: not self.held(), DEADLINE)
        self.assertEqual(self.lock()["waiter_count"], 0)

    def check_it_was_withdrawn(self):
        """The last request gave the place up: it did not wait, and was under the key of the others."""
        *_, before, last = self.requests("POST")
        self.assertEqual(before["key"], last["key"])
        self.assertNotIn("wait_ms", last["body"])


class Life(Case):
    def test_the_lock_is_held_between_main_and_post(self):
        job = self.holding()
        until("it is held", self.held)
        token = self.lock()["holders"][0]["fencing_token"]
        self.assertEqual(job.step.outputs, {"outdated": "false", "fencing-token": str(token), "fencing-tokens": json.dumps({LOCK: token}, separators=(",", ":"))})
        self.assertIn(f"holding {LOCK}", job.step.log)
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)
        self.assertIn(f"released {LOCK}", post.log)
        self.assertFalse(self.held())
        self.check_nothing_is_left(job)

    def test_it_is_renewed_for_longer_than_its_ttl(self):
        job = self.holding()
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            self.assertTrue(self.held())
            time.sleep(0.1)
        self.assertTrue(self.requests("PUT"))
        self.assertEqual(job.post().code, 0)
        self.check_nothing_is_left(job)

    def test_it_waits_for_its_turn_and_says_for_whom(self):
        lease = self.acquire(owner="somebody else")
        step = self.job().main()
        self.assertIn("held by somebody else", step.process.stdout.readline() + step.process.stdout.readline())
        self.waits()
        self.release(lease)
        self.assertEqual(step.ended().code, 0, step.raw)
        self.assertGreater(int(step.outputs["fencing-token"]), lease["fencing_token"])
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)

    def test_a_wait_that_runs_out_fails_the_step_and_leaves_no_place(self):
        lease = self.acquire(owner="somebody else")
        for wait in ("1s", "0"):
            with self.subTest(wait=wait):
                step = self.job(wait=wait).main().ended()
                self.assertEqual(step.code, 1, step.raw)
                self.assertRegex(step.commands("error")[0], f"^{LOCK} is held by somebody else, and was not released within the wait")
                self.assertEqual(self.lock()["waiter_count"], 0)
                post = step.job.post()
                self.assertEqual(post.code, 0, post.raw)
                until("no process is left", lambda: not step.job.processes(), DEADLINE)
        self.assertEqual(self.lock()["holders"][0]["fencing_token"], lease["fencing_token"])

    def test_it_says_which_locks_it_has_and_which_one_it_waits_for(self):
        self.acquire(owner="somebody else")
        step = self.job(lock=f"a-{LOCK} {LOCK}", wait="3s").main().ended()
        self.assertIn(f"have a-{LOCK}, waiting for {LOCK}: held by somebody else", step.log)

    def test_it_says_until_when_and_why_a_lock_is_reserved(self):
        ends = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 3600))
        status, text = call(self.urls["b"], "POST", f"/locks/{LOCK}", {"reserve": {"until": ends, "reason": "load test"}})
        self.assertEqual(status, 201, text)
        step = self.job(wait="3s").main().ended()
        self.assertIn(f"waiting for {LOCK}: reserved until {ends} because load test", step.log)
        (told,) = step.commands("error")
        self.assertEqual(told, f"{LOCK} is reserved until {ends} because load test, and was not released within the wait")

    def test_people_see_which_run_holds_it(self):
        job = self.holding()
        (holder,) = self.lock()["holders"]
        self.assertEqual(holder["owner"], "team/shop Deploy #12")
        self.assertEqual(holder["metadata"], {"run": "https://github.com/team/shop/actions/runs/4711", "job": "production"})
        job.post()

    def test_slots_and_shared_locks(self):
        jobs = [self.holding(limit="2") for _ in range(2)]
        self.assertEqual({job.step.outputs["slot"] for job in jobs}, {"0", "1"})
        self.assertEqual(self.job(limit="2", wait="0").main().ended().code, 1)
        for job in jobs:
            self.assertEqual(job.post().code, 0)
        readers = [self.holding(mode="shared") for _ in range(2)]
        self.assertEqual(self.lock()["holder_count"], 2)
        for job in readers:
            self.assertEqual(job.post().code, 0)
            self.assertNotIn("slot", job.step.outputs)
        self.assertFalse(self.held())

    def test_several_locks_are_one(self):
        job = self.holding(lock=f"database\n{LOCK}, cluster:eu")
        tokens = json.loads(job.step.outputs["fencing-tokens"])
        self.assertEqual(sorted(tokens), ["cluster:eu", "database", LOCK])
        self.assertEqual(job.step.outputs["fencing-token"], str(tokens["database"]))
        self.assertEqual([self.lock(name)["state"] for name in tokens], ["held"] * 3)
        self.assertEqual(job.post().code, 0)
        self.assertEqual([self.lock(name)["state"] for name in tokens], ["free"] * 3)

    def test_each_of_several_locks_may_have_a_mode_of_its_own(self):
        jobs = [self.holding(lock=f"{LOCK}-{number} pool=2, prod=shared") for number in (1, 2)]
        self.assertEqual([json.loads(job.step.outputs["slots"]) for job in jobs], [{"pool": 0}, {"pool": 1}])
        self.assertNotIn("slot", jobs[0].step.outputs)
        modes = {name: {holder["mode"] for holder in self.lock(name)["holders"]} for name in (f"{LOCK}-1", "pool", "prod")}
        self.assertEqual(modes, {f"{LOCK}-1": {"exclusive"}, "pool": {"shared"}, "prod": {"shared"}})
        step = self.job(lock="pool=2", wait="0").main().ended()
        self.assertEqual(step.code, 1)
        self.assertIn("pool is held", step.commands("error")[0])
        for job in jobs:
            self.assertEqual(job.post().code, 0)
        job = self.holding(lock="pool=2")
        self.assertEqual((job.step.outputs["slot"], job.post().code), ("0", 0))

    def test_the_longest_hold_ends_the_lease(self):
        job = self.holding(max_hold="3s")
        until("it has ended", lambda: not self.held(), DEADLINE)
        self.assertEqual(job.post().code, 1)


class Latest(Case):
    def run_of(self, repository="team/shop", workflow="Deploy"):
        job = self.job(latest="true", owner="a run")
        job.variables = {"GITHUB_REPOSITORY": repository, "GITHUB_WORKFLOW": workflow}
        return job

    def text_of(self, *run):
        """What the run asks with as `supersedes`."""
        job = self.run_of(*run)
        step = job.main().ended()
        self.assertEqual(step.code, 0, step.raw)
        self.assertEqual(job.post().code, 0)
        return self.requests("POST")[-1]["body"]["supersedes"]

    def test_a_newer_run_takes_an_older_one_of_the_same_job_out_of_the_queue(self):
        self.acquire()
        long = "Deploy the shop, and everything that belongs to it, to the cluster"
        older = self.run_of(workflow=long).main()
        self.waits()
        other = self.run_of("team/forum", long).main()
        self.waits(2)
        newer = self.run_of(workflow=long).main()
        self.assertEqual(older.ended().code, 1, older.raw)
        self.assertIn("A later request", older.commands("error")[0])
        self.waits(2)
        for step in (other, newer):
            self.assertIsNone(step.process.poll())
            step.cancel()

    def test_a_short_name_of_a_job_is_sent_as_it_is(self):
        self.assertEqual(self.text_of(), "team/shop Deploy production")
        rockets = "\N{ROCKET}" * 43
        self.assertEqual(self.text_of("team/shop", rockets), f"team/shop {rockets} production")

    def test_of_a_name_that_the_gateway_refuses_the_whole_is_hashed(self):
        for workflow in ("a long workflow " * 4, "\N{ROCKET}" * 44, "two\tparts"):
            with self.subTest(workflow=workflow):
                one, two = self.text_of("team/shop", workflow), self.text_of("team/forum", workflow)
                self.assertRegex(one, r"\A[0-9a-f]{64}\Z")
                self.assertNotEqual(one, two)
                self.assertEqual(one, self.text_of("team/shop", workflow))


class Ordered(Case):
    def deploy(self, **inputs):
        """A job of run 12, for the commit with the order 41902, that has deployed."""
        job = self.holding(order="41902", **inputs)
        # A lease of less than a second has no entry in the history.
        time.sleep(1.2)
        self.assertEqual(job.post().code, 0)

    def test_an_outdated_job_fails_and_says_who_was_newer(self):
        self.deploy()
        rig("DELETE", "/rig/log")
        step = self.job(order="41873", wait="1m").main().ended()
        (told,) = step.commands("error")
        self.assertEqual((step.code, step.outputs), (1, {"outdated": "true"}), step.raw)
        self.assertRegex(told, f"^{LOCK}: The order 41873 is outdated: the lock was granted for the order 41902 at "
                         r"[-0-9T:.]+Z to team/shop Deploy #12\. That lease ended at [-0-9T:.]+Z \(released\)\. "
                         "To go back to this run on purpose, run it with the input rollback and a reason.$")
        self.assertEqual(len(self.requests("POST")), 1)
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)

    def test_an_outdated_job_that_skips_is_green_with_a_warning_and_an_output(self):
        self.deploy()
        # Without a permission for the history, the warning names the winner all the same.
        for fault, end in ((None, r" That lease ended at [-0-9T:.]+Z \(released\)\."), ("/history", "")):
            if fault:
                rig("POST", "/rig/fault", {"kind": "status", "status": 403, "code": "forbidden", "path": f"/locks/{LOCK}{fault}"})
            step = self.job(order="41873", outdated="skip").main().ended()
            (told,) = step.commands("warning")
            self.assertEqual((step.code, step.outputs, step.commands("error")), (0, {"outdated": "true"}, []), step.raw)
            self.assertRegex(told, fr"to team/shop Deploy #12\.{end} To go back .* must be skipped \(output outdated\)\.$")
            self.assertEqual(step.job.post().code, 0)
            self.check_nothing_is_left(step.job)
        newer = self.holding(order="41902")
        time.sleep(1.2)
        self.assertIn("That lease has not ended yet.", self.job(order="41873").main().ended().commands("error")[0])
        self.assertEqual(newer.post().code, 0)

    def test_a_waiting_job_is_told_when_newer_work_was_granted(self):
        lease = self.acquire()
        newer = self.job(order="41902").main()
        self.waits()
        older = self.job(order="41873", outdated="skip").main()
        self.waits(2)
        self.release(lease)
        self.assertEqual(newer.ended().code, 0, newer.raw)
        self.assertEqual(newer.job.post().code, 0)
        self.assertEqual((older.ended().code, older.outputs), (0, {"outdated": "true"}), older.raw)
        self.assertEqual(older.job.post().code, 0)
        self.check_nothing_is_left(older.job)

    def test_a_rollback_goes_back_and_leaves_the_order(self):
        self.deploy()
        job = self.holding(order="41873", rollback="the new one fails")
        lock = self.lock()
        (holder,) = lock["holders"]
        self.assertEqual((lock["granted_order"], holder["order"], holder["rollback"]), (41902, 41873, "the new one fails"))
        self.assertEqual(job.post().code, 0)
        self.assertEqual(self.job(order="41873").main().ended().code, 1)


class Cancelled(Case):
    def test_a_step_that_is_cancelled_while_it_waits_leaves_no_place(self):
        self.acquire()
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(signal=number.name):
                step = self.job().main()
                self.waits()
                step.process.send_signal(number)
                self.assertEqual(step.ended().code, code, step.raw)
                self.check_it_was_withdrawn()
                self.assertEqual(step.commands("error"), [])
                post = step.job.post()
                self.assertEqual((post.code, post.commands("error")), (0, []), post.raw)
                until("no process is left", lambda: not step.job.processes(), DEADLINE)
                self.assertEqual(self.lock()["waiter_count"], 0)

    def test_a_step_that_is_killed_while_it_waits_leaves_no_place(self):
        self.acquire()
        step = self.job().main()
        self.waits()
        step.process.kill()
        step.ended()
        until("no process is left", lambda: not step.job.processes(), DEADLINE)
        self.check_it_was_withdrawn()
        post = step.job.post()
        self.assertEqual((post.code, post.commands("error")), (0, []), post.raw)

    def test_what_was_granted_to_a_step_that_is_cancelled_is_given_back(self):
        rig("POST", "/rig/fault", {"kind": "hang-reply", "method": "POST"})
        step = self.job(ttl="1h").main()
        until("it is granted", self.held, DEADLINE)
        step.cancel()
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)

    def test_a_step_that_ends_at_any_moment_leaves_nothing(self):
        """Also before anything runs, between the grant and the end of main, and after it."""
        for number in (signal.SIGINT, signal.SIGKILL):
            for delay in range(0, 400, 50):
                with self.subTest(signal=number.name, delay=delay):
                    step = self.job(ttl="1h").main()
                    time.sleep(delay / 1000)
                    step.process.send_signal(number)
                    step.ended()
                    post = step.job.post()
                    self.assertEqual((post.code, post.commands("error")), (0, []), post.raw)
                    self.check_nothing_is_left(step.job)

    def test_post_ends_a_main_that_no_signal_reaches(self):
        """As in a container, where the runner signals only what has started main."""
        self.acquire()
        step = self.job().main()
        self.waits()
        post = step.job.post()
        self.assertEqual(post.code, 0, post.raw)
        self.assertEqual(step.ended().code, 1)
        self.check_it_was_withdrawn()
        until("no process is left", lambda: not step.job.processes(), DEADLINE)

    def test_a_main_that_fails_after_the_grant_gives_the_lock_back(self):
        lease = self.acquire()
        step = self.job(ttl="1h").main()
        self.waits()
        step.spoil_output()
        self.release(lease)
        self.assertEqual(step.ended().code, 1)
        self.check_nothing_is_left(step.job)
        self.assertEqual(step.job.post().code, 0)


class Lost(Case):
    def lost(self, job, pattern):
        """What post says, twice, and what it says where the job must not fail."""
        for _ in range(2):
            post = job.post()
            self.assertEqual(post.code, 1, post.raw)
            (told,) = post.commands("error")
            self.assertRegex(told, pattern)
            self.assertIn("may have run while another caller held the lock", told)
        job.inputs["on-lost"] = "warn"
        post = job.post()
        self.assertEqual((post.code, post.commands("error")), (0, []), post.raw)
        self.assertRegex(post.commands("warning")[0], pattern)

    def test_a_lock_that_is_broken_fails_the_job(self):
        job = self.holding()
        status, text = call(self.urls["b"], "POST", f"/locks/{LOCK}/break", {"reason": "runner 7 is gone", "all": True})
        self.assertEqual(status, 200, text)
        until("it knows", lambda: list(job.temporary.glob("*/outcome")), DEADLINE)
        self.lost(job, "the lock was lost before the job was over.*was broken")
        self.check_nothing_is_left(job)

    def test_a_gateway_that_does_not_answer_ends_the_lease(self):
        job = self.holding()
        rig("POST", "/rig/fault", {"kind": "hang", "count": 1000})
        until("it knows", lambda: list(job.temporary.glob("*/outcome")), DEADLINE)
        rig("DELETE", "/rig/fault")
        self.lost(job, "the lease has expired")
        self.check_nothing_is_left(job)

    def test_a_renewing_process_that_died_fails_the_job(self):
        job = self.holding()
        os.kill(job.renewer(), signal.SIGKILL)
        self.lost(job, "the process that renews the lock has ended")
        self.check_nothing_is_left(job)

    def test_a_temporary_folder_that_was_emptied_does_not_look_like_a_release(self):
        job = self.holding()
        folder = Path(job.step.state["folder"])
        renewer = job.renewer()
        subprocess.run(["rm", "-r", folder], check=True)
        self.assertEqual(job.post().code, 1)
        self.assertIn(renewer, job.end())


class Gone(Case):
    def test_a_gateway_that_restarts_changes_nothing(self):
        job = self.holding(ttl="20s")
        rig("POST", "/rig/gateway", {"which": "a", "do": "term"})
        rig("POST", "/rig/gateway", {"which": "a", "do": "start"})
        rig("DELETE", "/rig/log")
        until("it is renewed", lambda: any(entry["status"] == 200 for entry in self.requests("PUT")), DEADLINE)
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)
        self.check_nothing_is_left(job)

    def test_a_gateway_that_is_gone_at_the_end_is_a_warning(self):
        job = self.holding(ttl="30s")
        rig("POST", "/rig/fault", {"kind": "lose-request", "count": 1000})
        post = job.post()
        self.assertEqual((post.code, post.commands("error")), (0, []), post.raw)
        self.assertRegex(post.commands("warning")[0], r"not known whether the lock was held until now.*free in \d+ s at the latest")
        until("no process is left", lambda: not job.processes(), DEADLINE)

    def test_a_gateway_that_hangs_at_the_end_is_not_waited_for_long(self):
        job = self.holding(ttl="1m")
        rig("POST", "/rig/fault", {"kind": "hang", "count": 1000})
        began = time.monotonic()
        post = job.post()
        # The release takes 5 s, and Node some time.
        self.assertLess(time.monotonic() - began, 9)
        self.assertEqual((post.code, len(post.commands("warning"))), (0, 1), post.raw)
        rig("DELETE", "/rig/fault")

    def test_a_lock_that_only_the_release_finds_lost_fails_the_job(self):
        job = self.holding(ttl="1m")
        status, text = call(self.urls["b"], "POST", f"/locks/{LOCK}/break", {"reason": "runner 7 is gone", "all": True})
        self.assertEqual(status, 200, text)
        post = job.post()
        self.assertEqual(post.code, 1, post.raw)
        self.assertRegex(post.commands("error")[0], "the lock was lost before the job was over.*was broken")

    def test_a_lock_that_is_lost_after_a_release_without_an_answer_is_not_known(self):
        job = self.holding(ttl="1m")
        rig("POST", "/rig/fault", {"kind": "lose-request", "method": "DELETE"})
        rig("POST", "/rig/fault", {"kind": "status", "method": "DELETE", "status": 410, "code": "lease-lost"})
        post = job.post()
        self.assertEqual(post.code, 1, post.raw)
        (told,) = post.commands("error")
        self.assertRegex(told, "not known whether the lock was held until now .*an earlier copy was not answered")
        job.inputs["on-lost"] = "warn"
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), len(post.commands("warning"))), (0, [], 1), post.raw)

    def test_a_release_whose_answer_is_lost_is_a_release(self):
        job = self.holding(ttl="1m")
        rig("POST", "/rig/fault", {"kind": "lose-reply", "method": "DELETE"})
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)

    def test_post_twice_releases_once(self):
        job = self.holding()
        self.assertEqual(job.post().code, 0)
        until("no process is left", lambda: not job.processes(), DEADLINE)
        lease = self.acquire()
        post = job.post()
        self.assertEqual((post.code, post.commands("error")), (0, []), post.raw)
        self.assertEqual(self.lock()["holders"][0]["fencing_token"], lease["fencing_token"])

    def test_without_post_the_runner_ends_it_and_the_lease_ends(self):
        job = self.holding()
        renewer = job.renewer()
        self.assertEqual(job.end(), [renewer])
        self.check_nothing_is_left(job)

    def started(self, shell=()):
        """A job whose main a runner of its own has run, which goes on."""
        step = self.job().main(parent=["sh", "-c", '"$@"; echo main is done; exec sleep 1000', "-"], shell=shell)
        for line in step.process.stdout:
            if line == "main is done\n":
                break
        self.assertTrue(self.held())
        return step

    def test_without_a_runner_it_ends_by_itself(self):
        step = self.started()
        step.process.kill()
        # Somebody has noticed its end: a runner is started by another process.
        step.process.wait()
        self.check_nothing_is_left(step.job)

    def test_a_runner_whose_end_nobody_has_noticed_is_dead(self):
        step = self.started()
        step.process.kill()
        self.check_nothing_is_left(step.job)

    def test_a_shell_that_the_runner_starts_is_no_runner(self):
        step = self.started(shell=["sh", "-c", 'sh -c \'"$@"; exit\' - "$@"; exit', "-"])
        # The renewer checks for its runner every five seconds.
        ends = time.monotonic() + 11
        while time.monotonic() < ends:
            self.assertTrue(self.held())
            time.sleep(0.2)
        step.process.kill()
        self.check_nothing_is_left(step.job)

    def test_post_without_main_has_nothing_to_do(self):
        step = self.job(url="ftp://nowhere").main().ended()
        self.assertEqual(step.code, 1)
        step = self.job(lock="").main().ended()
        self.assertEqual((step.code, step.state), (1, {}))
        self.assertEqual(step.job.post().code, 0)


class Refused(Case):
    def test_an_input_that_is_wrong_is_named(self):
        wrong = {
            "lock": "", "url": "", "wait": "600", "ttl": "soon", "max_hold": "-1h", "mode": "alone", "limit": "none", "on_lost": "ignore",
            "outdated": "warn", "order": "-1", "rollback": "without an order",
        }
        for name, value in wrong.items():
            with self.subTest(input=name):
                step = self.job(**{name: value}).main().ended()
                self.assertEqual(step.code, 1, step.raw)
                self.assertIn(name.replace("_", "-"), step.commands("error")[0])
                self.assertEqual(step.job.processes(), [])
        for value in ("a b=", "a b=0", "a b=exclusive", "b=2=3"):
            step = self.job(lock=value).main().ended()
            self.assertEqual(step.code, 1, step.raw)
            self.assertIn("lock: expected shared or a number", step.commands("error")[0])
        for name, value in (("mode", "shared"), ("limit", "3")):
            step = self.job(lock="a b=2", **{name: value}).main().ended()
            self.assertEqual(step.code, 1, step.raw)
            self.assertIn(f"{name}: is for all locks", step.commands("error")[0])
        for inputs in ({"url": "nowhere"}, {"url": "http://user:word@nowhere"}, {"lock": "a//b"}, {"key": "two words"}):
            with self.subTest(inputs=inputs):
                step = self.job(**inputs).main().ended()
                self.assertEqual((step.code, len(step.commands("error"))), (1, 1), step.raw)
                until("no process is left", lambda: not step.job.processes(), DEADLINE)
        self.assertEqual(rig("GET", "/rig/log"), [])

    def test_an_input_that_is_given_and_empty_has_its_default(self):
        job = self.holding(**{name: "" for name in ("wait", "max_hold", "on_lost", "mode", "limit", "owner", "order", "rollback", "outdated")})
        self.assertEqual(self.requests("POST")[0]["body"]["max_hold_ms"], 6 * 3600 * 1000)
        self.assertEqual(job.post().code, 0)

    def test_a_refusal_is_told_as_the_gateway_says_it(self):
        rig("POST", "/rig/fault", {"kind": "status", "status": 403, "code": "forbidden", "method": "POST"})
        step = self.job().main().ended()
        self.assertEqual(step.code, 1)
        self.assertEqual(step.commands("error"), [f"{LOCK}: the rig was told to answer so"])
        self.assertEqual(step.job.post().code, 0)

    def test_without_a_gateway_it_fails_when_the_wait_is_over(self):
        step = self.job(url=self.urls["nobody"], wait="6s").main().ended()
        self.assertEqual(step.code, 1)
        self.assertEqual(step.log.count("no gateway has answered for"), 1, step.log)
        self.assertIn("cannot be reached", step.commands("error")[0])
        self.assertEqual(step.job.post().code, 0)


class Secrets(Case):
    def test_no_secret_is_shown(self):
        lease = self.acquire(owner="somebody else")
        job = self.job()
        seen, over = set(), threading.Event()

        def look():
            while not over.wait(0.02):
                for one in job.processes():
                    try:
                        seen.add(Path(f"/proc/{one}/cmdline").read_bytes())
                    except OSError:
                        continue

        looking = threading.Thread(target=look)
        looking.start()
        step = job.main()
        self.waits()
        self.release(lease)
        step.ended()
        until("it is renewed", lambda: self.requests("PUT"), DEADLINE)
        token = self.requests("PUT")[0]["token"]
        # Nor what later steps could read of the process that stays: its environment and its files.
        environment = Path(f"/proc/{job.renewer()}/environ").read_bytes().decode()
        files = [path.read_text() for path in job.home.rglob("*") if path.is_file()]
        self.assertEqual(Path(step.state["folder"]).stat().st_mode & 0o777, 0o700)
        post = job.post()
        over.set()
        looking.join()
        self.assertTrue([line for line in seen if b"renewer.mjs" in line])
        self.assertEqual(step.raw.splitlines()[0], f"::add-mask::{KEY}")
        idempotency = self.requests("POST")[0]["key"]
        shown = [step.log, post.raw, environment, *files, *(line.decode() for line in seen)]
        for secret in (KEY, token, idempotency, "runtime-token-of-the-job"):
            for text in shown:
                self.assertNotIn(secret, text)

    def test_what_others_write_is_no_command_to_the_runner(self):
        self.acquire(owner="::error::##[error]mine")
        step = self.job(wait="3s").main().ended()
        self.assertEqual(step.code, 1)
        self.assertIn("held by ::error::## [error]mine", step.log)
        self.assertEqual(len(step.commands("error")), 1, step.raw)
        self.assertNotIn("##[", step.raw)


class Packed(unittest.TestCase):
    def pack(self, folder):
        return subprocess.run([SOURCE / "pack", folder], capture_output=True, text=True)

    def test_it_has_all_that_it_needs_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home) / "action"
            for _ in range(2):
                self.assertEqual(self.pack(folder).returncode, 0)
            there = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        own = ["action.yml", "README.md", "CHANGELOG.md", "LICENSE", *(f"src/{path.name}" for path in (SOURCE / "src").iterdir())]
        client = ROOT / "clients" / "js"
        expected = {name: (SOURCE / name).read_bytes() for name in own}
        for name in ["package.json", "LICENSE", *(f"src/{path.name}" for path in (client / "src").iterdir())]:
            expected[f"client/{name}"] = (client / name).read_bytes()
        self.assertEqual(there, expected)

    def test_it_does_not_replace_what_is_something_else(self):
        with tempfile.TemporaryDirectory() as home:
            file = Path(home) / "mine"
            file.touch()
            self.assertEqual(self.pack(home).returncode, 1)
            self.assertTrue(file.exists())

    def test_it_reads_and_writes_what_action_yml_says(self):
        metadata = yaml.safe_load((SOURCE / "action.yml").read_text())
        code = "".join(path.read_text() for path in (SOURCE / "src").iterdir())
        read = set(re.findall(r"\b(?:input|required|duration|oneOf)\('([a-z-]+)'", code))
        self.assertEqual(read, set(metadata["inputs"]))
        self.assertEqual(set(re.findall(r"setOutput\('([a-z-]+)'", code)), set(metadata["outputs"]))
        defaults = json.loads(subprocess.run(
            [NODE, "--input-type=module", "--eval", f"import {{ DEFAULTS }} from '{SOURCE}/src/inputs.mjs'; console.log(JSON.stringify(DEFAULTS))"],
            capture_output=True, text=True, check=True,
        ).stdout)
        self.assertEqual(defaults, {name: one["default"] for name, one in metadata["inputs"].items() if "default" in one})
        runs = metadata["runs"]
        self.assertEqual((runs["using"], runs["post-if"]), ("node24", "always()"))
        self.assertTrue((SOURCE / runs["main"]).exists() and (SOURCE / runs["post"]).exists())

    def test_the_readme_has_every_input_and_output(self):
        metadata = yaml.safe_load((SOURCE / "action.yml").read_text())
        text = (SOURCE / "README.md").read_text()
        inputs, outputs = re.findall(r"(?ms)^\| (?:input|output) \|.*?(?=^$)", text)
        rows = re.findall(r"(?m)^\| `([a-z-]+)` \| `?([^|`]*?)`? ?\|", inputs)
        said = dict(rows)
        self.assertEqual(said, {
            name: "required" if one.get("required") else str(one.get("default", "")) for name, one in metadata["inputs"].items()
        })
        self.assertEqual(re.findall(r"(?m)^\| `([a-z-]+)` \|", outputs), list(metadata["outputs"]))


if __name__ == "__main__":
    unittest.main()
