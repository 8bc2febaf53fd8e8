"""The script of the recipes does not let its command outlive the lease, whatever is killed or hangs."""

import os
import shutil
import signal
import time
import unittest
from pathlib import Path

from ci import LOCK, Proxy, ShellJob
from gateway import until


class Ends(ShellJob, unittest.TestCase):
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
        # Other tests of the machine may run curl, too.
        own = [said for said in seen if self.gateway.url.encode() in said]
        self.assertFalse([said for said in seen if key.encode() in said])
        self.assertFalse([said for said in own if b"Lock-Token" in said])
        self.assertTrue([said for said in own if b"curl" in said])


if __name__ == "__main__":
    unittest.main()
