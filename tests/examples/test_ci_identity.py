"""The script of the recipes in a job that has no API key, and exchanges the ID token of its CI system for one."""

import sys
import time
import unittest
from pathlib import Path

from ci import LOCK, ShellJob
from gateway import ROOT, until

sys.path.append(str(ROOT / "clients" / "github-action" / "tests"))

from front import AWAY, Front  # noqa: E402


class Identity(ShellJob, unittest.TestCase):
    def setUp(self):
        super().setUp()
        self.front = Front(self, self.gateway.url)

    def run_job(self, deploy, code=0, **variables):
        job = self.start(deploy, self.front.url, **variables)
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, code, said)
        for secret in (*self.front.tokens, *self.front.keys):
            self.assertNotIn(secret, said)
        self.check_nothing_is_left()
        return said

    def test_a_job_without_an_api_key_runs_under_the_lock(self):
        token = self.front.token()
        said = self.run_job("env; echo deployed under $LATCHGATE_FENCING_TOKEN", LATCHGATE_ID_TOKEN=token)
        self.assertRegex(said, r"deployed under \d+")
        self.assertNotIn("ID_TOKEN", said)
        self.assertEqual((self.front.asked, len(self.front.keys)), (1, 1))
        (key,) = self.front.keys
        self.assertEqual({sent for _, _, sent in self.front.log}, {key})

    def test_a_wait_outlives_its_key_and_the_file_of_the_token_is_read_again(self):
        self.front.key_lives = 1
        file = self.repository / "token"
        file.write_text(f"{self.front.token()}\n")
        lease = self.gateway.acquire(LOCK, ttl_ms=60_000)
        job = self.start("echo deployed", self.front.url, LATCHGATE_ID_TOKEN_FILE=str(file))
        until("a key", lambda: self.front.keys)
        # The first token may be used only once.
        self.front.tokens.clear()
        file.write_text(f"{self.front.token()}\n")
        until("a further key", lambda: len(self.front.keys) >= 2, 40)
        self.gateway.call("DELETE", f"/locks/{LOCK}", headers={"Lock-Token": lease["token"]})
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, said)
        self.assertIn("deployed", said)
        self.check_nothing_is_left()

    def test_a_lease_is_renewed_and_released_after_the_end_of_its_key(self):
        self.front.key_lives = 1
        token = self.front.token()
        job = self.start("echo $$ >pid; sleep 7", self.front.url, LATCHGATE_ID_TOKEN=token)
        self.deploying()
        self.front.all_exchanges = AWAY
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, said)
        self.assertGreaterEqual(len(self.front.sent("PUT")), 2)
        self.assertEqual(self.front.asked, 1)
        self.check_nothing_is_left()

    def test_a_key_that_is_revoked_is_exchanged_again_by_renewals_and_by_the_release(self):
        token = self.front.token()
        job = self.start("echo $$ >pid; sleep 5", self.front.url, LATCHGATE_ID_TOKEN=token)
        self.deploying()
        self.front.keys.clear()
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, said)
        self.assertTrue(self.front.keys)
        self.check_nothing_is_left()

    def test_a_refused_token_ends_the_job_at_once_and_is_sent_once(self):
        said = self.run_job("echo deployed", 106, LATCHGATE_ID_TOKEN="eyJ.of.nobody")
        self.assertIn("refused: 401 unauthorized: The ID token is refused (no key matches).", said)
        self.assertNotIn("deployed\n", said)
        self.assertEqual(self.front.asked, 1)
        for token in ("no token", '"}'):
            said = self.run_job("echo deployed", 106, LATCHGATE_ID_TOKEN=token)
            self.assertIn("refused: 401 no-id-token: there is no ID token", said)
        self.assertEqual(self.front.asked, 1)

    def test_an_issuer_that_is_away_for_a_moment_is_asked_again(self):
        self.front.exchanges = [AWAY, (500, {"code": "internal"}), (502, {})]
        said = self.run_job("echo deployed", LATCHGATE_ID_TOKEN=self.front.token())
        self.assertIn("the gateway cannot serve now: 503 issuer-unavailable", said)
        self.assertIn("deployed", said)

    def test_an_issuer_that_stays_away_is_104(self):
        self.front.all_exchanges = AWAY
        self.run_job("echo deployed", 104, LATCHGATE_ID_TOKEN=self.front.token(), LOCK_WAIT="1")

    def test_an_api_key_counts_before_an_id_token(self):
        self.front.keys["lgk_a"] = time.monotonic() + 3600
        self.run_job("true", LATCHGATE_KEY="lgk_a", LATCHGATE_ID_TOKEN=self.front.token())
        self.assertEqual(self.front.asked, 0)

    def test_a_file_that_cannot_be_read_is_a_wrong_setting(self):
        said = self.run_job("true", 2, LATCHGATE_ID_TOKEN_FILE="/nowhere/token")
        self.assertIn("cannot read LATCHGATE_ID_TOKEN_FILE", said)

    def test_no_secret_is_an_argument_or_in_the_environment_of_the_command(self):
        self.front.key_lives = 1
        token = self.front.token()
        job = self.start("echo $$ >pid; sleep 5", self.front.url, LATCHGATE_ID_TOKEN=token)
        seen = set()
        while job.poll() is None:
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(file.read_bytes())
                except OSError:
                    continue
        said, _ = job.communicate(timeout=60)
        self.assertEqual(job.returncode, 0, said)
        self.assertTrue([one for one in seen if self.front.url.encode() in one])
        for secret in (token, *self.front.keys):
            self.assertFalse([one for one in seen if secret.encode() in one])


if __name__ == "__main__":
    unittest.main()
