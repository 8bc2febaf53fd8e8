"""The pages about migrations: during a move, old and new exclude each other, as the pages say."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from gateway import DEADLINE, ROOT, Gateway
from postgres import Postgres
from redis_server import Redis
from test_documents import blocks

NODE_MODULES = ROOT / "target" / "serverless" / "node_modules"
# Works under the lock of the block before it, alone: the second of two who work at once finds the file.
PYTHON = """
import os, sys, time
alone, times, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
for _ in range(times):
    with locked():
        os.close(os.open(alone, os.O_CREAT | os.O_EXCL))
        print("works", flush=True)
        time.sleep(pause)
        os.unlink(alone)
    time.sleep(pause / 2)
"""
JAVASCRIPT = """
import { closeSync, openSync, unlinkSync } from 'node:fs';
const [alone, times, pause] = process.argv.slice(2);
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
for (let time = 0; time < Number(times); time += 1) {
  await locked(async () => {
    closeSync(openSync(alone, 'wx'));
    console.log('works');
    await sleep(Number(pause));
    unlinkSync(alone);
  });
  await sleep(Number(pause) / 2);
}
process.exit(0);
"""


class Move:
    """A page whose blocks are the code before, and after each step."""

    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="latchgate-migrate-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        self.other = self.OTHER()
        self.addCleanup(self.other.end)
        self.gateway = Gateway(store=self.other.url if isinstance(self.other, Redis) else None)
        self.addCleanup(self.gateway.end)
        self.steps = []
        for number, text in enumerate(text for language, text in blocks(self.PAGE) if language == self.LANGUAGE):
            for shown, real in {"http://localhost:7420": self.gateway.url, **self.replaced()}.items():
                text = text.replace(shown, real)
            path = self.home / f"step{number}.{'py' if self.LANGUAGE == 'python' else 'mjs'}"
            path.write_text(text + (PYTHON if self.LANGUAGE == "python" else JAVASCRIPT))
            self.steps.append(path)
        self.assertEqual(len(self.steps), 3)
        if self.LANGUAGE == "js":
            modules = self.home / "node_modules"
            (modules / "@latchgate").mkdir(parents=True)
            (modules / "@latchgate" / "client").symlink_to(ROOT / "clients/js")
            for package in NODE_MODULES.iterdir():
                if not package.name.startswith((".", "@latchgate")):
                    (modules / package.name).symlink_to(package)

    def start(self, step, times, pause):
        environment = {
            "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT / "clients/python/src"),
        }
        program = sys.executable if self.LANGUAGE == "python" else "node"
        process = subprocess.Popen(
            [program, self.steps[step], self.home / "alone", str(times), str(pause)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def exclude_each_other(self, *steps):
        processes = [self.start(step, 8, 0.02) for step in steps]
        for process in processes:
            out, err = process.communicate(timeout=DEADLINE)
            self.assertEqual((process.returncode, out.count("works")), (0, 8), err)

    def test_before_and_after_the_first_step(self):
        self.exclude_each_other(0, 0, 1, 1)

    def test_the_first_and_the_second_step(self):
        self.exclude_each_other(1, 1, 2, 2)

    def test_who_skips_a_step_is_noticed_by_this_test(self):
        holder = self.start(0, 1, DEADLINE)
        self.assertEqual(holder.stdout.readline(), "works\n")
        _, err = self.start(2, 1, 0.01).communicate(timeout=DEADLINE)
        self.assertIn("EEXIST" if self.LANGUAGE == "js" else "FileExistsError", err)


class RedisPy(Move, unittest.TestCase):
    PAGE, LANGUAGE, OTHER = "docs/migrate/redis-py.md", "python", Redis

    def replaced(self):
        return {"redis.Redis()": f"redis.Redis(port={self.other.port})"}


class Redlock(Move, unittest.TestCase):
    PAGE, LANGUAGE, OTHER = "docs/migrate/redlock.md", "js", Redis

    def replaced(self):
        return {"new Redis()": f"new Redis({self.other.port})"}


class AdvisoryLocks(Move, unittest.TestCase):
    PAGE, LANGUAGE, OTHER = "docs/migrate/advisory-locks.md", "python", Postgres

    def replaced(self):
        return {"dbname=app": self.other.address}


class Marked(unittest.TestCase):
    """What is not run says so."""

    def test_the_other_pages_say_that_the_other_program_was_not_run(self):
        run = {move.PAGE for move in (RedisPy, Redlock, AdvisoryLocks)}
        pages = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/migrate").glob("*.md"))
        self.assertEqual(len(pages), 6)
        for page in pages:
            text = (ROOT / page).read_text()
            if page in run:
                self.assertIn("The tests of Latchgate run the blocks of this page against each other", " ".join(text.split()))
            else:
                self.assertRegex(text, r"\*\*\w+ was not (run|called) for this page\.\*\*", page)
                for language, block in blocks(page):
                    for line in block.splitlines() if language == "text" else []:
                        self.assertTrue(line.endswith("# consul"), line)


if __name__ == "__main__":
    unittest.main()
