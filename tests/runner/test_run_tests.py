"""What `scripts/run-tests` says of tests that are red, that hang, that crash or that are not run."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
RUNNER = HERE.parent.parent / "scripts" / "run-tests"


class RunTests(unittest.TestCase):
    def setUp(self):
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        self.state = pathlib.Path(state.name)

    def run_tests(self, tests, *arguments, binary="it", **options):
        """Runs the fake binary with some tests; answers the exit code and what was said."""
        environment = {**os.environ, "FAKE_TESTS": tests, "FAKE_STATE": str(self.state)}
        ran = subprocess.run(
            [RUNNER, "--binary", f"{binary}={HERE / 'fake_binary.py'}", "--unstable", self.state / "unstable", *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False, **options,
        )
        return ran.returncode, ran.stdout

    def assert_gone(self, file):
        """The process whose number is in a file has been ended."""
        pid = int((self.state / file).read_text())
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
            except FileNotFoundError:
                return
            # A zombie may stay if no process collects it.
            if "State:\tZ" in status or "Name:\tsleep" not in status:
                return
            time.sleep(0.01)
        self.fail(f"process {pid} goes on")

    def test_all_good(self):
        code, said = self.run_tests("blue default_signals")
        self.assertEqual(code, 0, said)
        self.assertIn("test result: ok. 2 passed; 0 failed; 0 left out: it\n", said)
        self.assertIn("\n2 passed, 0 failed, 0 unstable, ", said)

    def test_a_red_test_is_run_once_more_and_fails_the_run(self):
        code, said = self.run_tests("blue red")
        self.assertEqual(code, 1, said)
        self.assertEqual(said.count("    | panicked: what is red says why\n"), 2, said)
        self.assertIn("test result: FAILED. 1 passed; 1 failed; 0 left out: it\n", said)
        self.assertIn("\nred: fake::red\n", said)

    def test_a_test_that_passes_alone_is_unstable(self):
        code, said = self.run_tests("blue flaky")
        self.assertEqual(code, 0, said)
        self.assertIn("\nunstable: fake::flaky\n", said)
        self.assertIn("    | panicked: red the first time\n", said)
        self.assertEqual((self.state / "unstable").read_text(), "fake::flaky\n")

    def test_a_unit_test_has_one_try(self):
        code, said = self.run_tests("blue flaky", binary="latchgate")
        self.assertEqual(code, 1, said)
        self.assertIn("\nred: fake::flaky\n", said)
        self.assertNotIn("unstable:", said)

    def test_a_test_that_hangs_is_ended_and_the_others_go_on(self):
        code, said = self.run_tests("hang blue default_signals", "--deadline", "2", "--at-once", "1")
        self.assertEqual(code, 1, said)
        self.assertIn("RED: fake::hang after 2.", said)
        self.assertIn("it has not ended after 2 s; what its processes waited for:\n", said)
        self.assertIn("sleep 1000", said)
        self.assertIn("    | waiting for what never comes\n", said)
        self.assertIn("test result: FAILED. 2 passed; 1 failed; 0 left out: it\n", said)
        self.assert_gone("sleeper")

    def test_a_crash_is_that_of_its_test_alone(self):
        for test, signal_name in (("abort", "SIGABRT"), ("segfault", "SIGSEGV")):
            with self.subTest(test):
                code, said = self.run_tests(f"blue {test} default_signals")
                self.assertEqual(code, 1, said)
                self.assertIn(f"its process was ended by {signal_name}\n", said)
                self.assertIn(f"\nred: fake::{test}\n", said)
                self.assertIn("test result: FAILED. 2 passed; 1 failed; 0 left out: it\n", said)

    def test_a_test_that_was_not_run_is_red(self):
        for test in ("leaves_at_once", "not_run"):
            with self.subTest(test):
                code, said = self.run_tests(f"blue {test}")
                self.assertEqual(code, 1, said)
                self.assertIn("it was not run, although it is listed\n", said)
                self.assertIn(f"\nred: fake::{test}\n", said)

    def test_what_a_test_leaves_behind_is_ended(self):
        code, said = self.run_tests("leaves_a_process_behind")
        self.assertEqual(code, 0, said)
        self.assert_gone("left")

    def test_tests_are_left_out_by_name_only(self):
        code, said = self.run_tests("blue red", "--skip", "fake::red")
        self.assertEqual(code, 0, said)
        self.assertIn("test result: ok. 1 passed; 0 failed; 1 left out: it\n", said)
        for arguments in (["--skip", "nobody"], ["nobody"]):
            code, said = self.run_tests("blue", *arguments)
            self.assertEqual(code, 1, said)
            self.assertIn("there is no test of which the name contains nobody", said)

    def test_no_tests_are_no_success(self):
        code, said = self.run_tests("")
        self.assertEqual(code, 1, said)
        self.assertIn("there are no tests", said)

    def test_what_the_caller_ignores_and_blocks_is_not_passed_on(self):
        def deaf():
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD])

        code, said = self.run_tests("default_signals", preexec_fn=deaf)
        self.assertEqual(code, 0, said)

    def test_whoever_ends_the_run_ends_its_tests(self):
        environment = {**os.environ, "FAKE_TESTS": "hang", "FAKE_STATE": str(self.state)}
        runner = subprocess.Popen(
            [RUNNER, "--binary", f"it={HERE / 'fake_binary.py'}"],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        while not (self.state / "sleeper").exists() or not (self.state / "sleeper").read_text():
            self.assertIsNone(runner.poll())
            time.sleep(0.01)
        runner.terminate()
        self.assertEqual(runner.wait(timeout=30), 128 + signal.SIGTERM)
        self.assert_gone("sleeper")


if __name__ == "__main__":
    unittest.main()
