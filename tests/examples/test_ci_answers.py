"""What the script of the recipes makes of each answer of the gateway, and of what it is given."""

import unittest

from ci import LOCK, Proxy, ShellJob


class Answers(ShellJob, unittest.TestCase):
    def test_a_lost_answer_is_given_again(self):
        with Proxy(self.gateway) as proxy:
            proxy.lose = 1
            job = self.start("echo deployed", proxy.url)
            said, _ = job.communicate(timeout=30)
            self.assertEqual(job.returncode, 0, said)
            self.assertIn("waiting: no gateway answers", said)
            self.check_nothing_is_left()

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

    def test_without_a_gateway_it_says_so(self):
        job = self.start("echo deployed", "http://127.0.0.1:1", LOCK_WAIT="1")
        said, _ = job.communicate(timeout=20)
        self.assertEqual(job.returncode, 103, said)


if __name__ == "__main__":
    unittest.main()
