"""Jobs without an API key, which exchange their ID token of GitHub for keys."""

import time
from pathlib import Path

from front import AWAY, REQUEST_TOKEN, Front
from runner import DEADLINE
from test_action import Case, until


class Oidc(Case):
    def setUp(self):
        super().setUp()
        self.front = Front(self, self.urls["proxy"])

    def job(self, **inputs):
        job = super().job(**{"url": self.front.url, "key": "", "oidc": "true", **inputs})
        job.variables = self.front.variables()
        return job

    def secrets(self):
        return [*self.front.keys, *self.front.tokens, REQUEST_TOKEN]

    def check_nothing_is_told(self, job, *steps):
        """No secret is in the log, in a file, in an argument or in the environment of what outlives a step."""
        places = {f"log of {number}": "\n".join(line for line in step.raw.splitlines() if not line.startswith("::add-mask::")) for number, step in enumerate(steps)}
        for file in job.home.rglob("*"):
            if file.is_file():
                places[str(file)] = file.read_text(errors="replace")
        for process in job.processes():
            for name in ("cmdline", "environ"):
                places[f"{name} of {process}"] = Path(f"/proc/{process}/{name}").read_text(errors="replace")
        for place, text in places.items():
            for secret in self.secrets():
                self.assertNotIn(secret, text, place)
        self.assertTrue(self.front.keys)

    def fails(self, text, **inputs):
        step = self.job(wait="1m", **inputs).main()
        began = time.monotonic()
        self.assertEqual(step.ended().code, 1, step.raw)
        self.assertLess(time.monotonic() - began, 30, "it waits for what cannot come")
        (told,) = step.commands("error")
        self.assertIn(text, told)
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)
        return step

    def test_a_job_without_a_key_holds_the_lock_and_tells_no_secret(self):
        job = self.holding(key_name="ci-web")
        self.assertTrue(self.held())
        (token,) = self.front.tokens
        self.assertEqual(self.front.tokens[token][0], self.front.url)
        (key,) = self.front.keys
        self.assertIn(f"::add-mask::{key}\n", job.step.raw)
        self.check_nothing_is_told(job, job.step)
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)
        self.assertTrue(self.front.sent("DELETE", key))
        self.check_nothing_is_told(job, job.step, post)
        self.check_nothing_is_left(job)

    def test_a_slash_at_the_end_of_the_url_is_no_part_of_the_audience(self):
        job = self.holding(url=f"{self.front.url}/")
        self.assertEqual(job.post().code, 0)

    def test_a_deploy_outlives_its_tokens_and_its_keys(self):
        """Twenty minutes with tokens of five, two hundred times as fast."""
        self.front.token_lives = self.front.key_lives = 1.5
        job = self.holding()
        ends = time.monotonic() + 6
        while time.monotonic() < ends:
            self.assertTrue(self.held())
            time.sleep(0.1)
        self.assertGreaterEqual(len(self.front.keys), 3)
        self.assertEqual(len(self.front.tokens), len(self.front.keys), "each exchange has a token of its own")
        self.assertGreaterEqual(len({key for _, _, key in self.front.sent("PUT")}), 3)
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)
        self.check_nothing_is_told(job, job.step, post)
        self.check_nothing_is_left(job)

    def test_a_lease_is_kept_and_released_after_the_end_of_its_key_while_the_issuer_is_away(self):
        self.front.key_lives = 1
        job = self.holding()
        self.front.all_exchanges = AWAY
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            self.assertTrue(self.held())
            time.sleep(0.1)
        self.assertEqual(len(self.front.keys), 1)
        post = job.post()
        self.assertEqual((post.code, post.commands("error"), post.commands("warning")), (0, [], []), post.raw)
        self.check_nothing_is_left(job)

    def test_a_wait_outlives_its_key(self):
        self.front.key_lives = 1
        lease = self.acquire(owner="somebody else")
        step = self.job(wait="1m").main()
        self.waits()
        until("a further key", lambda: len(self.front.keys) >= 2, DEADLINE)
        self.release(lease)
        self.assertEqual(step.ended().code, 0, step.raw)
        self.assertIn("held by somebody else", step.log)
        for key in self.front.keys:
            self.assertIn(f"::add-mask::{key}\n", step.raw)
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)

    def test_what_is_away_for_a_moment_is_asked_again(self):
        self.front.github = [503, 429]
        self.front.exchanges = [AWAY, AWAY]
        job = self.holding()
        self.assertEqual(len(self.front.keys), 1)
        self.assertEqual(job.post().code, 0)
        self.check_nothing_is_left(job)

    def test_a_job_that_may_get_no_token_is_told_the_permission(self):
        job = self.job()
        job.variables = {}
        step = job.main().ended()
        self.assertEqual(step.code, 1)
        self.assertIn("permission `id-token: write`", step.commands("error")[0])
        self.assertEqual(job.post().code, 0)
        self.front.github = [403]
        self.fails("GitHub gives no ID token (status 403)")

    def test_a_refused_token_fails_the_step_at_once_with_its_class(self):
        self.fails("The ID token is refused (no key matches).", key_name="ci-api")
        self.front.token_lives = -1
        self.fails("The ID token is refused (time).")

    def test_a_key_without_permission_fails_the_step(self):
        self.front.refusal = lambda *_: (403, {"status": 403, "code": "forbidden", "title": "No", "detail": "The key has no permission `acquire`."})
        self.fails("The key has no permission `acquire`.")

    def test_an_issuer_that_stays_away_fails_the_step_when_its_wait_is_over(self):
        self.front.all_exchanges = AWAY
        step = self.job(wait="1s").main().ended()
        self.assertEqual(step.code, 1, step.raw)
        self.assertIn("The issuer cannot be asked now.", step.commands("error")[0])
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)

    def test_a_key_that_is_revoked_is_exchanged_again(self):
        job = self.holding()
        self.front.keys.clear()
        until("a renewal with a further key", lambda: self.front.keys and self.front.sent("PUT", next(iter(self.front.keys))), DEADLINE)
        self.assertEqual(job.post().code, 0)
        self.check_nothing_is_left(job)

    def test_inputs_that_contradict_each_other_are_refused(self):
        for text, inputs in (
            ("oidc: goes without a key", {"key": "lgk_a"}),
            ("key-name: goes with oidc", {"oidc": "false", "key_name": "ci-web"}),
            ("oidc: expected true or false", {"oidc": "yes"}),
        ):
            with self.subTest(text=text):
                step = self.job(**inputs).main().ended()
                self.assertEqual(step.code, 1)
                self.assertIn(text, step.commands("error")[0])

    def test_a_step_that_is_cancelled_during_its_exchange_leaves_nothing(self):
        self.front.lock.acquire()
        step = self.job().main()
        time.sleep(1)
        step.process.terminate()
        self.assertEqual(step.ended().code, 143, step.raw)
        self.front.lock.release()
        self.assertEqual(step.job.post().code, 0)
        self.check_nothing_is_left(step.job)
