"""Every example does what it says; a fenced resource loses nothing to a holder that slept, and an unfenced one does."""

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import boto3
from moto import mock_aws

import fenced_write
import object_store
from gateway import PROGRAM, ROOT, Gateway, until

EXAMPLES = ROOT / "examples"


class Example(unittest.TestCase):
    def setUp(self):
        self.gateway = Gateway()
        self.addCleanup(self.gateway.end)
        self.home = tempfile.TemporaryDirectory(prefix="latchgate-examples-")
        self.addCleanup(self.home.cleanup)
        self.environment = {
            "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}",
            "LATCHGATE_URL": self.gateway.url,
        }

    def start(self, *command, **variables):
        process = subprocess.Popen(
            command, env={**self.environment, **variables}, cwd=EXAMPLES, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ran(self, *command, **variables):
        process = self.start(*command, **variables)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def state(self, name):
        return self.gateway.call("GET", f"/locks/{name}")[1]["state"]


class Shell(Example):
    def test_a_deploy_gives_the_lock_back_and_waits_its_turn(self):
        first = self.start("./curl.sh", WORK_SECONDS="2")
        until("the first deploys", lambda: self.state("deploy") == "held")
        began = time.monotonic()
        code, said = self.ran("./curl.sh", WORK_SECONDS="0")
        self.assertEqual(code, 0, said)
        self.assertIn("deployed", said)
        self.assertEqual(first.wait(), 0)
        self.assertGreater(time.monotonic() - began, 0.5)
        self.assertEqual(self.state("deploy"), "free")

    def test_an_interrupted_deploy_gives_the_lock_back(self):
        deploy = self.start("./curl.sh", WORK_SECONDS="1")
        until("it deploys", lambda: self.state("deploy") == "held")
        deploy.send_signal(signal.SIGTERM)
        self.assertEqual(deploy.wait(), 143)
        self.assertEqual(self.state("deploy"), "free")

    def test_one_machine_does_the_nightly_work(self):
        said = [self.ran("./cron-once.sh", "backup", "echo", "backed", "up") for _ in range(3)]
        self.assertEqual([code for code, _ in said], [0, 0, 0], said)
        self.assertEqual(sum(words.endswith("backed up\n") for _, words in said), 1, said)
        self.assertEqual(sum("somebody else does the work of backup:" in words for _, words in said), 2, said)
        # Another job has a lock of its own, and its exit code is that of the command.
        self.assertEqual(self.ran("./cron-once.sh", "report", "sh", "-c", "exit 7")[0], 7)
        # One that there is not takes the work from nobody.
        self.assertEqual(self.ran("./cron-once.sh", "mail", "./typo.sh")[0], 127)
        code, said = self.ran("./cron-once.sh", "mail", "echo", "mailed")
        self.assertEqual((code, said.splitlines()[-1]), (0, "mailed"), said)

    def test_a_deploy_holds_both_of_its_locks(self):
        code, said = self.ran("./deploy-two.sh")
        self.assertEqual(code, 0, said)
        tokens = json.loads(re.search(r"deploying with (\{.*\})", said).group(1))
        self.assertEqual(sorted(tokens), ["cluster:eu", "database"], said)

    def test_cron_hears_of_a_gateway_that_is_away(self):
        code, said = self.ran("./cron-once.sh", "backup", "true", LATCHGATE_URL="http://127.0.0.1:1")
        self.assertEqual(code, 103, said)


class Sharing(Example):
    def holders(self, name):
        return self.gateway.call("GET", f"/locks/{name}")[1]["holder_count"]

    def processes_with(self, file):
        """How many processes have it open, this one included."""
        found = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if os.readlink(link) == file:
                    found.add(link.parts[2])
            except OSError:
                continue
        return len(found)

    def test_three_deploy_at_once_and_the_fourth_waits(self):
        first = [self.start("./three-deploys.sh", str(one), WORK_SECONDS="60") for one in range(3)]
        until("three deploy", lambda: self.holders("deploys") == 3)
        fourth = self.start("./three-deploys.sh", "last", WORK_SECONDS="0")
        until("the fourth waits", lambda: self.gateway.call("GET", "/locks/deploys")[1]["waiter_count"] == 1)
        said = first[1].stdout.readline()
        number = re.fullmatch(r"deploying 1 as one of three, number ([012])\n", said)[1]
        first[1].send_signal(signal.SIGTERM)
        said, _ = fourth.communicate(timeout=60)
        self.assertEqual(fourth.returncode, 0, said)
        self.assertIn(f"number {number}\n", said)
        self.assertIn("deployed last", said)

    def test_only_the_newest_push_that_waits_is_deployed(self):
        running = self.start("./newest-deploy.sh", "first", WORK_SECONDS="60")
        until("the first deploys", lambda: self.holders("deploy") == 1)
        older = self.start("./newest-deploy.sh", "second", WORK_SECONDS="0")
        until("the second waits", lambda: self.gateway.call("GET", "/locks/deploy")[1]["waiter_count"] == 1)
        newest = self.start("./newest-deploy.sh", "third", WORK_SECONDS="0")
        said, _ = older.communicate(timeout=60)
        self.assertEqual((older.returncode, said.splitlines()[-1]), (0, "left out second: a newer push waits"))
        # The signal is for `latchgate run`: the shell would end without it.
        for child in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
        said, _ = newest.communicate(timeout=60)
        self.assertEqual((newest.returncode, said[-31:]), (0, "deploying third\ndeployed third\n"))

    def test_readers_are_together_and_a_writer_is_alone(self):
        file = os.path.join(self.home.name, "catalog")
        os.mkfifo(file)
        # Each of them reads until somebody has written.
        readers = [self.start("./readers-writer.sh", "read", file) for _ in range(2)]
        until("both read", lambda: self.holders("catalog") == 2)
        written = os.path.join(self.home.name, "written")
        with open(os.path.join(self.home.name, "new"), "w+") as new:
            new.write("new")
            new.seek(0)
            writer = subprocess.Popen(
                ["./readers-writer.sh", "write", written], env=self.environment, cwd=EXAMPLES, stdin=new,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            self.addCleanup(writer.wait)
            self.addCleanup(writer.kill)
            until("the writer waits", lambda: self.gateway.call("GET", "/locks/catalog")[1]["waiter_count"] == 1)
            self.assertFalse(os.path.exists(written))
            with open(file, "w") as source:
                # One that opened it later would wait for another who writes.
                until("both have it open", lambda: self.processes_with(file) == 3)
                source.write("old")
            for reader in readers:
                reader.wait(60)
            self.assertEqual(writer.wait(60), 0)
        self.assertEqual(Path(written).read_text(), "new")

    def test_each_job_has_a_gpu_of_its_own(self):
        jobs = [self.start("./gpu-pool.sh", "sleep", "60", GPUS="2") for _ in range(2)]
        self.assertEqual({job.stdout.readline() for job in jobs}, {"on GPU 0\n", "on GPU 1\n"})
        third = self.start("./gpu-pool.sh", "true", GPUS="2")
        until("the third waits", lambda: self.gateway.call("GET", "/locks/gpus")[1]["waiter_count"] == 1)
        jobs[0].send_signal(signal.SIGTERM)
        self.assertEqual(third.wait(60), 0)


class FencedTable(Example):
    def body(self, database):
        table = sqlite3.connect(database)
        try:
            return table.execute("SELECT body FROM report").fetchone()[0]
        finally:
            table.close()

    def sleeper_and_successor(self, *flags):
        """Somebody who writes long after the lease is over, and somebody who has written meanwhile."""
        database = os.path.join(self.home.name, "report.db")
        write = [sys.executable, "fenced_write.py", database]
        sleeper = self.start(*write, "of the sleeper", "--sleep", "3", *flags)
        until("the sleeper holds it", lambda: self.state("report") == "held")
        code, said = self.ran(*write, "of the successor", *flags)
        self.assertEqual(code, 0, said)
        said, _ = sleeper.communicate(timeout=60)
        return sleeper.returncode, said, self.body(database)

    def test_a_sleeper_is_refused(self):
        code, said, body = self.sleeper_and_successor()
        self.assertEqual((code, body), (1, "of the successor"), said)
        self.assertIn("too late", said)

    def test_without_fences_the_successor_is_overwritten(self):
        code, said, body = self.sleeper_and_successor("--unfenced")
        self.assertEqual((code, body), (0, "of the sleeper"), said)


    def test_the_documentation_says_the_statement_that_is_tested(self):
        self.assertIn(fenced_write.FENCED, (ROOT / "docs/semantics.md").read_text())

    def test_one_row_guards_a_whole_transaction(self):
        said = (ROOT / "docs/semantics.md").read_text()
        table, guard = re.search(r"`(CREATE TABLE fence [^`]*)`", said)[1], re.search(r"`(UPDATE fence [^`]*)`", said)[1]
        guard = " ".join(guard.split()).replace("$1", "?1").replace("$2", "?2")
        database = sqlite3.connect(":memory:")
        database.execute(table)
        database.execute("INSERT INTO fence VALUES ('l', 0)")
        accepted = [database.execute(guard, (token, "l")).rowcount for token in (7, 7, 6, 8, 7)]
        self.assertEqual(accepted, [1, 1, 0, 1, 0])


@mock_aws
@mock.patch.dict(os.environ, {
    "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1",
})
class FencedObject(Example):
    def setUp(self):
        super().setUp()
        self.store = boto3.client("s3")
        self.store.create_bucket(Bucket="reports")

    def write(self, body, fence):
        return object_store.write(self.store, "reports", "k", body, fence)

    def body(self):
        return self.store.get_object(Bucket="reports", Key="k")["Body"].read()

    def test_the_program_writes_and_releases(self):
        said = io.StringIO()
        with mock.patch.object(object_store, "GATEWAY", self.gateway.url), \
                mock.patch.object(sys, "argv", ["object_store.py", "reports", "k", "hello"]), redirect_stdout(said):
            object_store.main()
        self.assertIn("written", said.getvalue())
        self.assertEqual(self.body(), b"hello")
        self.assertEqual(self.state("object"), "free")

    def test_a_smaller_token_is_refused_and_the_same_may_write_again(self):
        self.assertTrue(self.write(b"first", 1795222854042642))
        self.assertTrue(self.write(b"again", 1795222854042642))
        self.assertFalse(self.write(b"late", 1795222854042641))
        self.assertEqual(self.body(), b"again")

    def test_who_comes_between_look_and_write_is_noticed(self):
        head = self.store.head_object
        others = [lambda: self.write(b"other", 8)]

        def head_then_other(**asked):
            found = head(**asked)
            if others:
                others.pop()()
            return found

        self.assertTrue(self.write(b"first", 5))
        with mock.patch.object(self.store, "head_object", side_effect=head_then_other):
            # It has looked, found 5, and would have overwritten 8.
            self.assertFalse(self.write(b"late", 7))
        self.assertEqual(self.body(), b"other")

    def test_the_first_of_two_who_find_nothing_is_not_overwritten(self):
        put = self.store.put_object
        others = [lambda: self.write(b"other", 8)]

        def other_then_put(**asked):
            if others:
                others.pop()()
            return put(**asked)

        with mock.patch.object(self.store, "put_object", side_effect=other_then_put):
            self.assertFalse(self.write(b"late", 7))
        self.assertEqual(self.body(), b"other")


class Leader(Example):
    def test_the_next_leads_when_the_leader_is_gone(self):
        one = self.start(sys.executable, "leader.py", "one")
        self.assertIn("one leads", one.stdout.readline())
        two = self.start(sys.executable, "leader.py", "two")
        until("the second waits", lambda: self.gateway.call("GET", "/locks/leader")[1]["waiter_count"] == 1)
        one.kill()
        self.assertIn("two leads", two.stdout.readline())

    def test_a_leader_steps_down_when_it_hears_no_more_renewals(self):
        one = self.start(sys.executable, "leader.py", "one")
        self.assertIn("one leads", one.stdout.readline())
        self.gateway.freeze()
        self.assertIn("one leads no more", one.stdout.readline())
        self.gateway.thaw()
        self.assertIn("one leads", one.stdout.readline())


class Serverless(Example):
    CALL = """
        const { handler } = await import(process.argv[1]);
        console.log(JSON.stringify(await handler({ job: process.argv[2] })));
    """

    def call(self, job):
        code, said = self.ran(
            "node", "--input-type=module", "--eval", self.CALL, str(EXAMPLES / "serverless.mjs"), job,
            FUNCTION_SECRET="of this test",
        )
        self.assertEqual(code, 0, said)
        return said

    def test_it_comes_back_until_it_is_its_turn(self):
        self.assertIn('"done"', self.call("job-1"))
        lease = self.gateway.acquire("invoices", ttl_ms=60000)
        self.assertIn('"again"', self.call("job-2"))
        # Its place is kept: somebody who comes now stands behind it.
        self.assertEqual(self.gateway.call("GET", "/locks/invoices")[1]["waiter_count"], 1)
        self.gateway.call("DELETE", "/locks/invoices", headers={"Lock-Token": lease["token"]})
        self.assertIn('"done"', self.call("job-2"))
        self.assertEqual(self.state("invoices"), "free")


class All(unittest.TestCase):
    def test_no_example_is_left_out(self):
        there = {path.name for path in EXAMPLES.iterdir()} - {"README.md"}
        # The page is tried in a browser. What is in a directory has tests of its own beside this file.
        tried = {"browser.html", "ci", "edge", "serverless"} | {
            name for name in there if name in Path(__file__).read_text() or name == "object_store.py"
        }
        self.assertEqual(there, tried)
        listed = re.findall(r"(?m)^\| \[([^]]*)\]", (EXAMPLES / "README.md").read_text())
        self.assertEqual(sorted(listed), sorted(there))


if __name__ == "__main__":
    unittest.main()
