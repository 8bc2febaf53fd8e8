"""What the script of the recipes makes of each answer of the gateway, and of what it is given."""

import json
import os
import re
import shutil
import time
import unittest

from ci import LOCK, Proxy, ShellJob, wants_certificate
from gateway import until


class Answers(ShellJob, unittest.TestCase):
    def test_a_lost_answer_is_given_again(self):
        with Proxy(self.gateway) as proxy:
            proxy.lose = 1
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=30)
            self.assertEqual(job.returncode, 0, said)
            self.assertIn("waiting: no whole answer came", said)
            self.check_nothing_is_left()
            # Nobody knows what became of a request whose answer is lost, or is too long.
            for lost in ({"lose": 2}, {"answers": [(403, " " * 20_000_000)] * 2}):
                vars(proxy).update(lost)
                job = self.start("echo deployed", proxy.url, LOCK_WAIT="1")
                said, _ = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 105, said)
                self.assertIn("given up: no whole answer came", said)
                self.check_nothing_is_left()

    def test_a_wait_that_the_gateway_does_not_allow_is_shortened(self):
        def refused(field):
            return 400, f'{{"code":"invalid-request","errors":[{{"field":"{field}","reason":"is not allowed"}}]}}'
        with Proxy(self.gateway) as proxy:
            proxy.answers = [(423, '{"code":"locked"}'), refused("wait_ms"), refused("wait_ms")]
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 0, said)
            waits = [json.loads(body)["wait_ms"] for body in proxy.bodies if body]
            self.assertEqual(waits, [1_000, 20_000, 10_000, 5_000])
            for last in (refused("ttl_ms"), refused("wait_ms")):
                proxy.answers = [last]
                job = self.start("echo deployed", proxy.url)
                said, _ = job.communicate(timeout=60)
                self.assertEqual((job.returncode, said), (106, f"locked.sh: {LOCK}: refused: 400 invalid-request\n"))
                self.check_nothing_is_left()

    def test_an_outdated_job_is_told_once_and_a_rollback_goes_back(self):
        detail = 'The order 4 is outdated: the lock was granted for the order 5 at T to the "fifth" run.'
        outdated = json.dumps({"code": "outdated-order", "detail": detail}, separators=(",", ":"))
        with Proxy(self.gateway) as proxy:
            proxy.answers = [(423, '{"code":"locked"}'), (409, outdated)]
            job = self.start("echo deployed", proxy.url, LOCK_ORDER="4", LOCK_ROLLBACK='bad "5"')
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 114, said)
            self.assertEqual(said.splitlines()[-1], f"locked.sh: {LOCK}: {detail}")
            bodies = [json.loads(body) for body in proxy.bodies if body]
            self.assertEqual([(it["order"], it["rollback"]) for it in bodies], [(4, "bad 5")] * 2)
            self.check_nothing_is_left()
        for wrong in ("-1", "1.5", "x", "012", "9" * 17):
            said, _ = self.start("echo deployed", LOCK_ORDER=wrong).communicate(timeout=30)
            self.assertIn("LOCK_ORDER is a whole number", said)
        said, _ = self.start("echo deployed", LOCK_ROLLBACK="why").communicate(timeout=30)
        self.assertIn("LOCK_ROLLBACK goes with LOCK_ORDER", said)

    def test_a_wait_in_pieces_says_how_long_it_has_taken(self):
        for latest in ("deploy", ""):
            with Proxy(self.gateway) as proxy:
                proxy.answers = [(423, '{"code":"locked"}'), (503, '{"code":"draining"}', {"Retry-After": "2"})]
                job = self.start("echo deployed", proxy.url, LOCK_LATEST=latest)
                said, _ = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 0, said)
                waited = [json.loads(body).get("waiting_since_ms") for body in proxy.bodies if body]
                self.assertEqual(len(waited), 3)
                if latest:
                    self.assertIsNone(waited[0])
                    self.assertTrue(0 <= waited[1] <= 1_500 and 2_000 <= waited[2] <= 10_000, waited)
                else:
                    self.assertEqual(waited, [None] * 3)

    def test_a_redirect_says_where_to_and_shows_no_secret(self):
        with Proxy(self.gateway) as proxy:
            proxy.answers = [(308, "", {"Location": "https://u:s3cret@locks.example/locks/team@prod?key=s3cret"})]
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=60)
            to = "a redirect to https://locks.example/locks/team@prod, which is not followed"
            self.assertEqual((job.returncode, said), (106, f"locked.sh: {LOCK}: refused: 308, {to}\n"))
            self.check_nothing_is_left()

    def test_a_certificate_that_is_refused_is_not_tried_again(self):
        with wants_certificate(self.repository) as port:
            for rc, code, why in (
                ("", 103, r"a certificate is refused: curl: \(60\) [^:]*: self[- ]signed certificate"),
                ("insecure", 103, "a certificate is refused: curl: .*alert certificate required.*"),
                (f"cacert = {self.repository}/missing", 2, "curl cannot use its file with certificates"),
            ):
                with self.subTest(rc=rc):
                    (self.repository / ".curlrc").write_text(rc)
                    began = time.monotonic()
                    job = self.start("echo deployed", f"https://localhost:{port}", HOME=str(self.repository))
                    said, _ = job.communicate(timeout=30)
                    self.assertEqual(job.returncode, code, said)
                    self.assertRegex(said.splitlines()[-1], f"^locked.sh: {LOCK}: {why}$")
                    # Nothing was asked for, so there is nothing to take back.
                    self.assertTrue(code != 2 or time.monotonic() - began < 4)

    def test_a_request_whose_curl_was_killed_may_have_been_sent(self):
        killed = self.repository / "curl"
        killed.write_text("#!/bin/sh\nkill -s KILL $$\n")
        killed.chmod(0o755)
        job = self.start("echo deployed", LOCK_WAIT="1", PATH=f"{self.repository}:{os.environ['PATH']}")
        said, _ = job.communicate(timeout=30)
        self.assertEqual(job.returncode, 105, said)
        self.assertIn("given up: no whole answer came", said)

    def test_without_curl_nothing_is_asked(self):
        tools = self.repository / "tools"
        tools.mkdir()
        (tools / "sh").symlink_to(shutil.which("sh"))
        job = self.start("echo deployed", PATH=str(tools))
        said, _ = job.communicate(timeout=30)
        self.assertEqual((job.returncode, said), (2, f"locked.sh: {LOCK}: there is no curl\n"))

    def test_a_grant_that_took_long_is_renewed_before_the_command_starts(self):
        with Proxy(self.gateway) as proxy:
            proxy.delays = {"POST": 4, "PUT": 1}
            job = self.start("date +%s.%N >began", proxy.url, LOCK_TTL="18")
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 0, said)
            (renewed,) = [answered for method, _, answered in proxy.log if method == "PUT"]
            self.assertLess(renewed, float((self.repository / "began").read_text()))
            self.check_nothing_is_left()

    def test_a_grant_that_came_too_late_is_asked_for_again(self):
        with Proxy(self.gateway) as proxy:
            proxy.delays = {"POST": 8}
            job = self.start("echo deployed under $LATCHGATE_FENCING_TOKEN; sleep 4", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 0, said)
            first, second = [key for method, key, _ in proxy.log if method == "POST"]
            self.assertNotEqual(first, second)
            self.check_nothing_is_left()

    def test_a_lease_that_was_over_before_the_command_is_no_success(self):
        take_away = f"""curl --silent --request POST --header 'Content-Type: application/json' --output /dev/null \
            --data '{{"reason": "test", "all": true}}' $LATCHGATE_URL/locks/{LOCK}/break"""
        for code in (0, 7):
            for names in ({}, {"LOCK_NAMES": f"{LOCK} other"}):
                with self.subTest(code=code, **names):
                    # Long enough for no renewal to notice.
                    job = self.start(f"{take_away}; exit {code}", LOCK_TTL="3600", several=bool(names), **names)
                    said, _ = job.communicate(timeout=60)
                    self.assertEqual(job.returncode, 102, said)
                    self.assertIn(f"the command ended with exit code {code}, but the lease was lost before", said)

    def test_a_lease_that_is_gone_after_an_unanswered_release_may_have_lasted(self):
        with Proxy(self.gateway) as proxy:
            job = self.start("echo $$ >pid; until [ -e go ]; do sleep 0.1; done", proxy.url, LOCK_TTL="3600")
            self.deploying()
            self.gateway.call("POST", f"/locks/{LOCK}/break", {"reason": "test", "all": True})
            proxy.lose = 1
            (self.repository / "go").touch()
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 105, said)
            self.assertIn("it is unknown whether the lease lasted until then", said)

    def test_what_may_pass_is_asked_again(self):
        answers = {
            "502": "<html>", "500": "", "408": "", "504": '{"code":"outcome-unknown"}', "503": '{"code":"draining"}',
            "409": '{"code":"request-replaced"}',
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
            for status, code in ((403, "forbidden"), (409, "idempotency-mismatch"), (503, "fence-exhausted")):
                with self.subTest(code=code):
                    proxy.answers = [(status, f'{{"code":"{code}"}}')]
                    job = self.start("echo deployed", proxy.url)
                    said, _ = job.communicate(timeout=60)
                    self.assertEqual((job.returncode, said), (106, f"locked.sh: {LOCK}: refused: {status} {code}\n"))
                    self.check_nothing_is_left()
            # Something failed inside the gateway, and may have granted the lock.
            proxy.answers = [(500, '{"code":"internal"}')]
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual((job.returncode, said), (105, f"locked.sh: {LOCK}: the outcome is not known: 500 internal\n"))
            self.check_nothing_is_left()

    def test_too_many_requests_are_asked_again_when_the_answer_says(self):
        busy = [(429, '{"code":"too-many-leases","retry_after_ms":2000}'), (429, "<html>", {"Retry-After": "2"})]
        with Proxy(self.gateway) as proxy:
            for answer in busy:
                for method in ("POST", "PUT", "DELETE"):
                    with self.subTest(method=method, answer=answer):
                        proxy.log.clear()
                        proxy.came.clear()
                        proxy.answers_to = method
                        proxy.answers = [answer]
                        # A renewal has no more time than a tenth of the TTL.
                        job = self.start("sleep 12" if method == "PUT" else "true", proxy.url, LOCK_TTL="20")
                        said, _ = job.communicate(timeout=60)
                        self.assertEqual(job.returncode, 0, said)
                        answered = [at for sent, _, at in proxy.log if sent == method][0]
                        came = [at for sent, at in proxy.came if sent == method][1]
                        self.assertTrue(1.9 <= came - answered <= 8, came - answered)
                        self.check_nothing_is_left()

    def test_who_is_put_off_beyond_the_wait_asks_at_its_end(self):
        with Proxy(self.gateway) as proxy:
            proxy.answers = [(429, '{"code":"too-many-leases"}', {"Retry-After": "600"})] * 9
            began = time.monotonic()
            job = self.start("echo deployed", proxy.url, LOCK_WAIT="3")
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 104, said)
            self.assertIn("given up: the gateway cannot serve now: 429 too-many-leases", said)
            self.assertTrue(3 <= time.monotonic() - began < 30)

    def test_an_answer_that_makes_no_sense_is_no_lock(self):
        for body in ('{"name":"x","token":"short","fencing_token":7}', f'{{"name":"x","token":"{"t" * 43}","fencing_token":1e300}}'):
            with self.subTest(body=body), Proxy(self.gateway) as proxy:
                proxy.answers = [(201, body)] * 9
                job = self.start("echo deployed", proxy.url)
                said, _ = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 105, said)
                self.assertIn("the answer is not understood: 201", said)
        with Proxy(self.gateway) as proxy:
            # A page of a proxy, and one without end.
            proxy.answers = [(200, "<html>"), (200, " " * 20_000_000)]
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual((job.returncode, said.splitlines()[-1]), (0, "deployed"), said)
            self.check_nothing_is_left()

    def test_an_answer_about_another_lock_is_no_lock(self):
        with Proxy(self.gateway) as proxy:
            proxy.answers = [(201, f'{{"name":"other","token":"{"t" * 43}","fencing_token":7}}')]
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 105, said)
            self.assertIn("the answer is about the lock other: a proxy has changed the path", said)

    def test_a_name_that_is_a_path_is_one_segment(self):
        job = self.start("echo deployed; sleep 60", lock="acme/web")
        state = lambda: self.gateway.call("GET", "/locks/acme%2Fweb")[1]["state"]
        until("it holds", lambda: state() == "held")
        job.terminate()
        job.wait(30)
        until("it is free", lambda: state() == "free")

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

    def test_a_name_that_no_lock_has_is_said_to_be_one(self):
        for name in ("a//b", "/a", "a/", "a/..", "./a", "a/renew", "a\\b", "a%2Fb", "a b", "a%20b", "é", "", "..", "x" * 201):
            with self.subTest(name=name):
                job = self.start("echo deployed", lock=name)
                said, _ = job.communicate(timeout=20)
                self.assertEqual(job.returncode, 2, said)
                self.assertIn("a name has", said)
        for url, code, why in (("nonsense://h", 2, "none that curl understands"), ("http://h:99999999", 2, "none that curl")):
            with self.subTest(url=url):
                job = self.start("echo deployed", url)
                said, _ = job.communicate(timeout=4)
                self.assertEqual(job.returncode, code, said)
                self.assertIn(why, said)

    def test_at_most_so_many_hold_the_lock_and_each_has_a_number(self):
        command = "echo $LATCHGATE_SLOT >>slots; sleep 60 & wait"
        slots = self.repository / "slots"
        jobs = [self.start(command, LOCK_LIMIT="2") for _ in range(3)]
        until("two deploy", lambda: slots.exists() and sorted(slots.read_text().split()) == ["0", "1"])
        until("the third waits", lambda: self.lock()["waiter_count"] == 1)
        self.assertEqual(self.lock()["holder_count"], 2)
        # The one that waits is ended, too, or has its turn.
        for job in jobs:
            job.terminate()
            job.wait(30)
        self.assertTrue(set(slots.read_text().split()) <= {"0", "1"})
        self.check_nothing_is_left()

    def test_readers_share_the_lock(self):
        jobs = [self.start(self.STAY, LOCK_MODE="shared") for _ in range(2)]
        until("both read", lambda: self.lock()["holder_count"] == 2)
        self.assertEqual({it["mode"] for it in self.lock()["holders"]}, {"shared"})
        for job in jobs:
            job.terminate()
            job.wait(30)

    def test_several_locks_are_held_as_one(self):
        self.gateway.acquire("pool", ttl_ms=60_000, limit=2)
        show = "env | grep ^LATCHGATE_ | sort; echo $$ >pid; until [ -e go ]; do sleep 0.1; done; exit 3"
        job = self.start(show, several=True, LOCK_NAMES=f"pool=2 acme/web=shared {LOCK}", CI_JOB_URL="https://ci.example/1")
        self.deploying()
        modes = {}
        for name in ("pool", "acme%2Fweb", LOCK):
            held = self.gateway.call("GET", f"/locks/{name}")[1]["holders"][0]
            modes[name] = (held["mode"], held["slot"], held["metadata"])
        link = {"run": "https://ci.example/1"}
        self.assertEqual(modes, {"pool": ("shared", 1, link), "acme%2Fweb": ("shared", None, link), LOCK: ("exclusive", None, link)})
        # Longer than the TTL: the locks are renewed.
        time.sleep(8)
        (self.repository / "go").touch()
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 3, said)
        tokens = json.loads(re.search("(?m)^LATCHGATE_FENCING_TOKENS=(.*)$", said)[1])
        self.assertEqual(list(tokens), ["acme/web", LOCK, "pool"])
        self.assertIn(f"LATCHGATE_FENCING_TOKEN={tokens['acme/web']}\n", said)
        self.assertIn('LATCHGATE_SLOTS={"pool":1}\n', said)
        self.check_nothing_is_left()
        # None is held where one is not free.
        self.gateway.acquire("other", ttl_ms=60_000, owner="somebody else")
        job = self.start("echo deployed", several=True, LOCK_NAMES=f"{LOCK} other", LOCK_WAIT="0")
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 101, said)
        self.assertIn("given up: other: held by somebody else", said)
        self.check_nothing_is_left()
        # What it has, and what it waits for.
        job = self.start("echo deployed", several=True, LOCK_NAMES=f"{LOCK} other", LOCK_WAIT="1")
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 101, said)
        self.assertIn(f"have {LOCK}, waiting for other: held by somebody else", said)
        self.check_nothing_is_left()

    def test_only_the_newest_waits(self):
        self.gateway.acquire(LOCK, ttl_ms=60_000)
        jobs = []
        for _ in range(2):
            jobs.append(self.start("echo deployed", LOCK_LATEST="main", LOCK_WAIT="10"))
            until("it waits", lambda: self.lock()["waiter_count"] == 1 and len(self.lock()["waiters"]) == 1)
            time.sleep(2)
        said, _ = jobs[0].communicate(timeout=60)
        self.assertEqual(jobs[0].returncode, 113, said)
        said, _ = jobs[1].communicate(timeout=60)
        self.assertEqual(jobs[1].returncode, 101, said)

    def test_what_was_not_started_has_not_used_the_lock(self):
        with Proxy(self.gateway) as proxy:
            for shell in ("sh", "bash"):
                job = self.start("", proxy.url, shell=shell, command="./missing.sh")
                said, _ = job.communicate(timeout=60)
                self.assertEqual(job.returncode, 127, said)
            job = self.start("exit 127", proxy.url)
            said, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 127, said)
            released = [path for method, path in proxy.paths if method == "DELETE"]
            self.assertEqual([path.endswith("?unused=true") for path in released], [True, True, False])

    def test_settings_that_make_no_sense_are_refused(self):
        wrong = {"LOCK_TTL": ["5", "0", "1m", "08", "6,7"], "LOCK_WAIT": ["10m", "-1", "1.5"], "LOCK_LIMIT": ["0", "-1", "x", "10000"], "LOCK_MODE": ["both"]}
        for name, values in wrong.items():
            for value in values:
                with self.subTest(setting=f"{name}={value}"):
                    job = self.start("echo deployed", **{name: value})
                    said, _ = job.communicate(timeout=20)
                    self.assertEqual(job.returncode, 2, said)
                    self.assertIn(name, said)

    def test_without_a_gateway_it_says_so(self):
        job = self.start("echo deployed", "http://127.0.0.1:1", LOCK_WAIT="1")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 103, said)


if __name__ == "__main__":
    unittest.main()
