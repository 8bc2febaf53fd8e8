"""The shell blocks of the documents, run as they are written."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from gateway import DEADLINE, PROGRAM, ROOT, Gateway, until
from redis_server import Redis

# Blocks that need a whole machine, or that other tests run.
NOT_RUN = {"cargo run --release\n"}
# Languages of blocks that show what a command prints. In a text, "…" stands for more; of JSON, fields are left out.
ANSWERS = ("json", "http", "text")
# Languages of blocks that configure another program.
CONFIGURATION = ("nginx", "haproxy", "caddyfile")
# What the first example of a client is written in.
LANGUAGES = {"js": "js", "python": "python", "rust": "rust"}
# The gateway of pages about several machines: one on each of them, at localhost, would not exclude the others.
SHARED = "http://gateway.example.com:7420"


def blocks(page, section=""):
    """The code blocks of a page, or of one section of it: pairs of a language and a text."""
    text = (ROOT / page).read_text()
    if section:
        text = re.split(r"(?m)^## ", text.partition(f"\n## {section}\n")[2])[0]
    return re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", text)


def steps(found):
    """The commands among blocks, each with the language and the text of what it is said to print, if that is shown."""
    made = []
    for language, text in found:
        if language == "sh":
            made.append((text, None, ""))
        elif language in ANSWERS:
            assert made and made[-1][1] is None, f"the answer to what? {text}"
            made[-1] = (made[-1][0], language, text)
    return made


# What a run gives anew.
CHANGES = re.compile(r"(\w*_ms|fencing_token|token|expires_at|until)$")


def differs(shown, real):
    """The first value that an answer shows and a real one has not. Fields may be left out of what is shown."""
    if isinstance(shown, dict) and isinstance(real, dict):
        for name, value in shown.items():
            if name not in real:
                return f"no {name}"
            if not (CHANGES.match(name) and type(value) is type(real[name])) and (found := differs(value, real[name])):
                return f"{name}: {found}"
        return None
    if isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
        return next((found for pair in zip(shown, real) if (found := differs(*pair))), None)
    return None if shown == real else f"{shown!r} is {real!r}"


def comparable(text):
    """A text without what differs from run to run."""
    return re.sub(r"\s", "", re.sub(r"(retry-after: )\d+", r"\1#", text))


def replaced(text, by):
    for old, new in by.items():
        text = text.replace(old, new)
    return text


class Shell:
    """A shell that is given one command after the other."""

    MARK = "--- exit code "

    def __init__(self, environment, directory):
        self._process = subprocess.Popen(
            ["bash"], env=environment, cwd=directory, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )

    def run(self, command):
        """What a command prints, and its exit code."""
        watchdog = threading.Timer(DEADLINE, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(f'{command}\nprintf "\\n%s%d\\n" "{self.MARK}" $?\n')
            self._process.stdin.flush()
            printed = ""
            for line in self._process.stdout:
                if line.startswith(self.MARK):
                    return printed, int(line.removeprefix(self.MARK))
                printed += line
        finally:
            watchdog.cancel()
        raise AssertionError(f"not within {DEADLINE} s, or the shell has ended: {command}: {printed}")

    def end(self):
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


class Document(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="latchgate-documents-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)

    def begin(self, path=f"{PROGRAM.parent}:", keys=None, store=None, **variables):
        """A gateway, and a shell in which `latchgate` is found."""
        self.gateway = Gateway(keys, environment=variables, store=store)
        self.addCleanup(self.gateway.end)
        self.bin = self.home / "bin"
        self.bin.mkdir()
        environment = {
            "PATH": f"{self.bin}:{path}{os.environ['PATH']}",
            "HOME": str(self.home),
            "LATCHGATE_URL": self.gateway.url,
        }
        self.shell = Shell(environment, self.home)
        self.addCleanup(self.shell.end)

    def program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def assert_prints(self, command, language, shown, printed):
        """What is shown is printed: of a JSON its fields, of a text each piece between its lines and "…", in this order."""
        if language == "json":
            # The commands before the last one may print something, too.
            differing = differs(json.loads(shown), json.loads(printed.strip().splitlines()[-1]))
            self.assertIsNone(differing, f"{command}: {printed}")
            return
        if language == "http" and "\n\n" in shown:
            shown, _, body = shown.partition("\n\n")
            self.assert_prints(command, "json", body, printed)
        at, printed = 0, comparable(printed)
        for piece in [piece for line in shown.splitlines() for piece in comparable(line).split("…") if piece]:
            found = printed.find(piece, at)
            self.assertNotEqual(found, -1, f"{command} does not print {piece} there, but {printed}")
            at = found + len(piece)

    def walk(self, page, beside=()):
        """Runs every block of a page in order, but those in a language of `beside`; answers what each one prints."""
        found = [block for block in blocks(page) if block[1] not in NOT_RUN]
        for language, block in found:
            self.assertIn(language, ("sh", *ANSWERS, *CONFIGURATION, *beside), block)
        return self.run_steps(steps(found))

    def run_steps(self, commands):
        """Runs commands with what each is said to print."""
        host = self.gateway.url.removeprefix("http://")
        all_printed = []
        for command, language, shown in commands:
            printed, code = self.shell.run(command.replace("localhost:7420", host))
            self.assertEqual(code, 0, f"{command}: {printed}")
            if language:
                self.assert_prints(command, language, shown, printed)
            all_printed.append(printed)
        return all_printed


class Readme(Document):
    def test_every_block_does_what_it_shows(self):
        # Nothing is on the path, and the program is where `cargo run --release` leaves it.
        self.begin(path="")
        release = self.home / "target" / "release"
        release.mkdir(parents=True)
        (release / "latchgate").symlink_to(PROGRAM)
        printed = self.walk("README.md")
        self.assertEqual(len(printed), 6)
        waited = [int(ms) for ms in re.findall(r'"waited_ms":(\d+)', "".join(printed))]
        self.assertGreater(waited[-1], 1_000, "the section about waiting shows a wait")

    def test_so_does_every_block_of_the_page_about_http(self):
        self.begin()
        self.assertEqual(len(self.walk("docs/http.md")), 8)

    def test_and_of_the_page_about_the_history(self):
        self.begin()
        self.assertEqual(len(self.walk("docs/history.md")), 1)

    def test_and_of_the_page_about_shared_locks(self):
        self.begin()
        self.program(self.home / "job.sh", "#!/bin/sh\necho $LATCHGATE_SLOT >slot\n")
        for name in ("deploy", "job-of-acme", "change-prod", "change-all", "deploy-web"):
            self.program(self.home / f"{name}.sh", "#!/bin/sh\necho $LATCHGATE_SLOTS >slots\n")
        self.assertGreaterEqual(len(self.walk("docs/sharing.md")), 9)
        self.assertEqual((self.home / "slot").read_text(), "0\n")

    def test_and_of_the_page_about_declared_locks(self):
        file = self.home / "locks.toml"
        file.write_text(next(text for language, text in blocks("docs/declared-locks.md") if language == "toml"))
        self.begin(LATCHGATE_LOCKS_FILE=str(file))
        self.assertEqual(len(self.walk("docs/declared-locks.md", beside=("toml",))), 6)

    def test_and_of_the_page_about_orders(self):
        redis = Redis()
        self.addCleanup(redis.end)
        self.begin(store=redis.url)
        self.program(self.home / "deploy.sh", "#!/bin/sh\necho $LATCHGATE_NAME >>deployed\n")
        commit = "git init -q . && git -c user.name=ann -c user.email=ann@example.com commit -q --allow-empty -m first"
        self.assertEqual(self.shell.run(commit)[1], 0)
        self.assertEqual(len(self.walk("docs/order.md")), 6)
        self.assertEqual((self.home / "deployed").read_text().split(), ["deploy:docs", "deploy:web"])
        _, docs = self.gateway.call("GET", "/locks/deploy:docs")
        self.assertAlmostEqual(docs["granted_order"], time.time(), delta=DEADLINE)

    def test_and_of_the_page_about_checks(self):
        self.begin()
        *commands, (script, _, _) = steps(blocks("docs/check.md"))
        self.assertEqual(len(self.run_steps(commands)), 4)
        # The script writes while its lease lives, and not after the end of the lease.
        script = script.replace("/srv", str(self.home)).replace("report.new", str(self.home / "report.new"))
        for text, code in (("first", 0), ("second", 102)):
            (self.home / "report.new").write_text(text)
            lease = self.gateway.acquire("report", ttl_ms=60_000)
            if code:
                self.gateway.call("DELETE", "/locks/report", headers={"Lock-Token": lease["token"]})
            printed, ended = self.shell.run(f"FENCE={lease['fencing_token']} bash -c '{script}'")
            self.assertEqual(ended, code, printed)
            self.assertEqual((self.home / "report").read_text(), "first")
            if not code:
                self.gateway.call("DELETE", "/locks/report", headers={"Lock-Token": lease["token"]})

    def test_and_of_the_page_about_names(self):
        self.begin()
        self.assertEqual(len(self.walk("docs/names.md")), 4)

    def test_what_is_not_printed_is_found(self):
        shown = 'HTTP/1.1 423 Locked\n\n{"status":423,"retry_after_ms":5000}'
        head = "HTTP/1.1 423 Locked\r\nx: y\r\n\r\n"
        self.assert_prints("ask", "http", shown, head + '{"status":423,"a":1,"retry_after_ms":4711}')
        for printed in ('HTTP/1.1 200 OK\n{"status":423,"retry_after_ms":1}', head + '{"status":423}'):
            with self.assertRaises(AssertionError):
                self.assert_prints("ask", "http", shown, printed)
        self.assert_prints("ask", "text", "a … d\nf", "a b c d e f")
        with self.assertRaises(AssertionError):
            self.assert_prints("ask", "text", "a … e\nd", "a b c d e f")
        for shown, real in (([1], [1, 2]), ({"a": {"b": 1}}, {"a": {}}), ("a", "b"), ({"slot": 1}, {"slot": 0})):
            self.assertTrue(differs(shown, real), shown)


class Pasted(unittest.TestCase):
    """What a reader copies from a page is what a shell takes."""

    def setUp(self):
        listed = subprocess.run(["git", "ls-files", "*.md", "llms.txt"], cwd=ROOT, capture_output=True, text=True, check=True)
        self.pages = listed.stdout.split()
        self.assertIn("docs/http.md", self.pages)

    def test_no_command_stands_behind_a_prompt(self):
        for page in self.pages:
            for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
                self.assertNotRegex(line, r"^\s*(\$ |```console)", f"{page}:{number}")

    def test_no_json_is_cut_in_the_middle(self):
        for page in self.pages:
            for language, text in blocks(page):
                if language == "http":
                    language, text = "json" if "\n\n" in text else "", text.partition("\n\n")[2]
                if language == "json":
                    try:
                        json.loads(text)
                    except ValueError as error:
                        self.fail(f"{page}: {error} in {text}")

    def test_every_command_is_shell(self):
        for page in self.pages:
            for language, text in blocks(page):
                if language == "sh":
                    checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
                    self.assertEqual(checked.returncode, 0, f"{page}: {text}{checked.stderr}")
                    self.assertNotRegex(text, r"Lock-Token: [\w-]{43}", f"{page}: a token of somebody else")


class Clients(Document):
    """The first example of each client runs as it stands: with a gateway on this machine, and without a key."""

    def setUp(self):
        super().setUp()
        self.begin()

    def first(self, language):
        text = next(text for found, text in blocks(f"clients/{language}/README.md") if found == LANGUAGES[language])
        self.assertIn("http://localhost:7420", text)
        return text.replace("http://localhost:7420", self.gateway.url)

    def check(self, command, **environment):
        printed, code = self.shell.run(f"{' '.join(f'{name}={value}' for name, value in environment.items())} {command} 2>&1")
        self.assertEqual(code, 0, printed)
        self.assertRegex(printed, r"^deploying under fencing token \d+\n")
        self.assertEqual(self.gateway.call("GET", "/locks/deploy")[1]["state"], "free")

    def test_javascript(self):
        modules = self.home / "node_modules" / "@latchgate"
        modules.mkdir(parents=True)
        (modules / "client").symlink_to(ROOT / "clients/js")
        (self.home / "first.mjs").write_text(self.first("js"))
        self.check("node first.mjs")

    def test_python(self):
        (self.home / "first.py").write_text(self.first("python"))
        self.check(f"{sys.executable} first.py", PYTHONPATH=ROOT / "clients/python/src", PYTHONDONTWRITEBYTECODE=1)

    def test_the_skill_page_of_coding_agents_runs(self):
        page = dict(blocks("docs/agents/SKILL.md"))
        self.assertEqual([*page], ["sh", "python", "js"])
        modules = self.home / "node_modules" / "@latchgate"
        modules.mkdir(parents=True)
        (modules / "client").symlink_to(ROOT / "clients/js")
        python = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={ROOT}/clients/python/src {sys.executable}"
        for language, command, name in (("python", python, "skill.py"), ("js", "node", "skill.mjs")):
            (self.home / name).write_text(page[language].replace("http://localhost:7420", self.gateway.url))
            printed, code = self.shell.run(f"{command} {name} 2>&1")
            self.assertEqual(code, 0, printed)
            self.assertRegex(printed, r"^settle with \d+\n")
        printed, code = self.shell.run(page["sh"])
        self.assertEqual((code, printed.split("\n")[:3]), (0, ["deployed", "once a night", "one of three"]), printed)

    def test_rust_is_the_example_that_is_compiled(self):
        example = (ROOT / "clients/rust/examples/first.rs").read_text()
        self.assertTrue(example.endswith("]\n" + self.first("rust").replace(self.gateway.url, "http://localhost:7420")))


class Recipes(Document):
    """The recipes of several locks, each with its mode: what their commands do when they are run at once."""

    def setUp(self):
        super().setUp()
        self.begin()
        found = blocks("docs/sharing.md", "Several locks, each with its mode")
        self.commands = [command for command, _, _ in steps(found) if command.startswith("latchgate run ")]
        [self.freeze] = [command.splitlines() for command, _, _ in steps(found) if "acquire freeze" in command]
        self.environment = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "LATCHGATE_URL": self.gateway.url}

    def run_job(self, lock, job, **names):
        """Starts the command of the page for this lock. Its job goes on until it is told to end."""
        [command] = [command for command in self.commands if f" {lock} " in command]
        for name, other in names.items():
            command = command.replace(name, other)
        end = self.home / f"end-{job}"
        self.program(self.home / f"{job}.sh", f"#!/bin/sh\necho >>{job}.log\nwhile [ ! -e {end} ]; do sleep 0.02; done\n")
        self.assertIn(f"./{job}.sh", command)
        errors = (self.home / f"{job}.err").open("a")
        self.addCleanup(errors.close)
        process = subprocess.Popen(["bash", "-c", command], env=self.environment, cwd=self.home, stderr=errors)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    def runs(self, job):
        log = self.home / f"{job}.log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def until_runs(self, job, times=1):
        until(f"{job} runs", lambda: self.runs(job) == times)

    def end(self, job, *processes):
        (self.home / f"end-{job}").touch()
        for process in processes:
            self.assertEqual(process.wait(DEADLINE), 0, (self.home / f"{job}.err").read_text())
        (self.home / f"end-{job}").unlink()

    def lock(self, name):
        return self.gateway.call("GET", f"/locks/{name}")[1]

    def until_waits(self, name, waiters=1):
        until(f"{waiters} wait for {name}", lambda: self.lock(name)["waiter_count"] == waiters)

    def test_one_per_tenant_and_twenty_in_all(self):
        first = self.run_job("jobs=20", "job-of-acme")
        self.until_runs("job-of-acme")
        second = self.run_job("jobs=20", "job-of-acme")
        self.until_waits("job:acme")
        self.assertEqual(self.lock("jobs")["holder_count"], 1, "who waits for its tenant takes no place")
        places = [self.gateway.acquire("jobs", limit=20, ttl_ms=60_000) for _ in range(19)]
        other = self.run_job("jobs=20", "job-of-other", acme="other")
        self.until_waits("jobs")
        self.assertEqual((self.lock("jobs")["holder_count"], self.runs("job-of-other")), (20, 0))
        released = self.gateway.call("DELETE", "/locks/jobs", headers={"Lock-Token": places[0]["token"]})
        self.assertEqual(released[0], 204)
        self.until_runs("job-of-other")
        self.end("job-of-other", other)
        (self.home / "end-job-of-acme").touch()
        self.assertEqual([process.wait(DEADLINE) for process in (first, second)], [0, 0])
        self.assertEqual(self.runs("job-of-acme"), 2)

    def test_a_global_lock_and_environment_locks(self):
        prod = self.run_job("env:prod", "change-prod")
        test = self.run_job("env:prod", "change-test", prod="test")
        for job in ("change-prod", "change-test"):
            self.until_runs(job)
        everything = self.run_job("global", "change-all")
        self.until_waits("global")
        late = self.run_job("env:prod", "change-qa", prod="qa")
        self.until_waits("global", 2)
        self.end("change-prod", prod)
        self.assertEqual((self.runs("change-all"), self.runs("change-qa")), (0, 0))
        self.end("change-test", test)
        self.until_runs("change-all")
        self.assertEqual(self.runs("change-qa"), 0)
        self.end("change-all", everything)
        self.until_runs("change-qa")
        self.end("change-qa", late)

    def test_freeze(self):
        under_way = self.run_job("deploy:web", "deploy-web")
        self.until_runs("deploy-web")
        acquire, export, comment, release = self.freeze
        frozen = threading.Thread(target=lambda: self.assertEqual(self.shell.run(acquire)[1], 0))
        frozen.start()
        self.until_waits("freeze")
        late = self.run_job("deploy:web", "deploy-api", web="api")
        self.until_waits("freeze", 2)
        self.end("deploy-web", under_way)
        frozen.join(DEADLINE)
        self.assertEqual((self.runs("deploy-api"), self.lock("freeze")["holders"][0]["mode"]), (0, "exclusive"))
        self.assertTrue(comment.startswith("#"))
        [command] = [command for command in self.commands if " deploy:web " in command]
        refused = subprocess.run(
            ["bash", "-c", command.replace(" -- ", " --wait 0 -- ")], env=self.environment, cwd=self.home,
            stderr=subprocess.PIPE, text=True, timeout=DEADLINE,
        )
        self.assertEqual(refused.returncode, 100)
        self.assertIn("held by ann, until the release is out", refused.stderr)
        for line in (export, release):
            self.assertEqual(self.shell.run(line)[1], 0, line)
        self.until_runs("deploy-api")
        self.end("deploy-api", late)


class Cron(Document):
    """Runs the lines of the crontab as cron does: by `sh`, with the environment that the crontab sets."""

    def setUp(self):
        super().setUp()
        permissions = re.search(r"`latchgate key new --name cron ([^`]*)`", (ROOT / "docs/cron.md").read_text())[1]
        self.begin(keys={"cron": [*permissions.split(), "--acquire", "report"]})
        key = self.home / "cron.key"
        key.write_text(self.gateway.keys["cron"])
        self.here = {
            SHARED: self.gateway.url, "/etc/latchgate/cron.key": str(key), "/usr/bin/latchgate": str(PROGRAM),
            "/opt/jobs": str(self.home),
        }
        [table] = [block for language, block in blocks("docs/cron.md") if language == "crontab"]
        # What cron itself sets.
        self.environment, self.commands = {"PATH": "/usr/bin:/bin"}, []
        for line in replaced(table, self.here).splitlines():
            if (setting := re.fullmatch(r"(\w+)=(.*)", line)) is not None:
                self.environment[setting[1]] = setting[2]
            else:
                self.commands.append(re.fullmatch(r"(?:\S+\s+){5}(.*)", line)[1])
        self.assertEqual(self.environment["LATCHGATE_URL"], self.gateway.url)

    def job(self, name, body):
        self.program(self.home / name, f"#!/bin/sh\necho ran >>{self.home}/{name}.log\n{body}\n")
        [command] = [command for command in self.commands if name in command]
        return command

    def start(self, command):
        process = subprocess.Popen(
            ["sh", "-c", command.replace("\\%", "%")], env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def runs(self, name):
        log = self.home / f"{name}.log"
        return log.read_text().count("ran") if log.exists() else 0

    def test_a_job_does_not_start_while_its_last_run_is_at_work(self):
        end = self.home / "end"
        os.mkfifo(end)
        command = self.job("sync.sh", f"read -r _ <{end}")
        first = self.start(command)
        until("the job is at work", lambda: self.runs("sync.sh") == 1)
        second = self.start(command)
        said, _ = second.communicate(timeout=DEADLINE)
        self.assertEqual((second.returncode, self.runs("sync.sh")), (100, 1), said)
        self.assertEqual(len(said.splitlines()), 1, said)
        end.write_text("\n")
        self.assertEqual(first.wait(DEADLINE), 0)
        third = self.start(command)
        until("the next run is at work", lambda: self.runs("sync.sh") == 2)
        end.write_text("\n")
        self.assertEqual(third.wait(DEADLINE), 0)

    def test_one_of_several_machines_does_the_nightly_work(self):
        command = self.job("nightly.sh", "")
        machines = [self.start(command) for _ in range(3)]
        self.assertEqual(sorted(machine.wait(DEADLINE) for machine in machines), [0, 100, 100])
        # The clock of one more is late: the job has ended by then.
        self.assertEqual(self.start(command).wait(DEADLINE), 100)
        self.assertEqual(self.runs("nightly.sh"), 1)

    def test_without_the_program_curl_does_it(self):
        self.program(self.home / "report.sh", f"#!/bin/sh\necho ran >>{self.home}/report.sh.log\n")
        [script] = [block for language, block in blocks("docs/cron.md") if language == "sh"]
        script = replaced(script, self.here)
        for runs in (1, 2):
            ran = self.start(script)
            self.assertEqual(ran.wait(DEADLINE), 0, ran.stdout.read())
            self.assertEqual(self.runs("report.sh"), runs)
        self.gateway.acquire("report", ttl_ms=60_000)
        ran = self.start(script)
        said, _ = ran.communicate(timeout=DEADLINE)
        self.assertEqual((ran.returncode, self.runs("report.sh")), (1, 2), said)
        self.assertIn("not now", said)


class Reserve(Document):
    def test_every_block_does_what_it_shows(self):
        self.begin()
        self.assertEqual(len(self.walk("docs/reserve.md")), 5)


class Cooldown(Document):
    def setUp(self):
        super().setUp()
        self.begin()

    def test_every_block_does_what_it_shows(self):
        self.assertEqual(len(self.walk("docs/cooldown.md", beside=("crontab", "python"))), 10)

    def test_a_job_of_three_machines_whose_clocks_differ_runs_once(self):
        [table] = [block for language, block in blocks("docs/cooldown.md") if language == "crontab"]
        here = {SHARED: self.gateway.url, "/usr/bin/latchgate": str(PROGRAM), "/opt/jobs": str(self.home)}
        setting, line = replaced(table, here).splitlines()
        command = f"{setting} " + re.fullmatch(r"(?:\S+\s+){5}(.*)", line)[1]
        self.program(self.home / "nightly.sh", f"#!/bin/sh\necho ran >>{self.home}/log\n")
        codes = []
        for late in (0, 0.5, 2):
            # This machine comes after the job of the machine before it has ended.
            time.sleep(late)
            codes.append(self.shell.run(f"{command} 2>/dev/null")[1])
        self.assertEqual((codes, (self.home / "log").read_text()), ([0, 100, 100], "ran\n"))

    def test_at_most_a_hundred_calls_a_minute_are_made(self):
        [program] = [block for language, block in blocks("docs/cooldown.md") if language == "python"]
        program = program.replace(SHARED, self.gateway.url).replace('wait="5m"', "wait=0")
        made = self.home / "made.py"
        made.write_text(
            f"{program}\nfrom latchgate import LockHeld\ncalls = []\ncall = calls.append\ntry:\n"
            "    for n in range(101):\n        complete(n)\nexcept LockHeld as held:\n"
            "    print(len(calls), 50_000 < held.available_in_ms <= 60_000, held)\n"
        )
        source = ROOT / "clients" / "python" / "src"
        printed, code = self.shell.run(f"PYTHONPATH={source} PYTHONDONTWRITEBYTECODE=1 {sys.executable} {made} 2>&1")
        self.assertEqual(code, 0, printed)
        self.assertRegex(printed, r"^100 True api rests for another \d+ ms")


class Webhooks(Document):
    """The receiver of the page, with a deploy that writes down what it does."""

    def setUp(self):
        super().setUp()
        self.begin()
        self.log = self.home / "log"
        self.program(
            self.home / "deploy.sh",
            '#!/bin/sh\necho "begin $1 $FENCING_TOKEN" >>log\nsleep 0.3\n[ ! -e broken ] || exit 1\n'
            '[ ! -e hangs ] || { sleep 300 & echo $! >child; wait; }\n'
            'echo "end $1" >>log\necho "deployed $1"\n',
        )

    def receive(self):
        [program] = [block for language, block in blocks("docs/webhooks.md") if language == "python"]
        self.assertIn("environment, 20)", program)
        (self.home / "receiver.py").write_text(program.replace("environment, 20)", "environment, 2)"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "clients" / "python" / "src"),
            "PYTHONDONTWRITEBYTECODE": "1", "LATCHGATE_URL": self.gateway.url, "PORT": str(self.port),
        }
        receiver = subprocess.Popen(
            [sys.executable, "receiver.py"], cwd=self.home, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.addCleanup(receiver.wait)
        self.addCleanup(receiver.kill)

        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until("the receiver listens", listens)

    def deliver(self, delivery, repository="shop/web"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("POST", "/", json.dumps({"repository": repository}), {"X-Delivery": delivery})
            return connection.getresponse().status
        finally:
            connection.close()

    def test_deliveries_of_one_repository_run_one_after_the_other_and_each_once(self):
        self.receive()
        statuses = []
        threads = [threading.Thread(target=lambda one=one: statuses.append(self.deliver(one))) for one in ("a", "b", "a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        self.assertEqual(statuses, [200] * 4)
        lines = self.log.read_text().splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["begin", "end"] * 2, lines)
        fences = [int(line.split()[2]) for line in lines if line.startswith("begin")]
        self.assertLess(*fences)

    def test_what_fails_is_to_be_delivered_again(self):
        self.receive()
        (self.home / "broken").touch()
        self.assertEqual(self.deliver("c"), 503)
        (self.home / "broken").unlink()
        self.assertEqual(self.deliver("c"), 200)
        self.assertEqual(self.log.read_text().count("end"), 1)
        self.gateway.stop()
        self.assertEqual(self.deliver("d"), 503)
        self.assertEqual(self.log.read_text().count("begin"), 2)

    def test_a_delivery_that_cannot_be_handled_is_refused_for_good(self):
        self.receive()
        for delivery, repository in (("", "shop/web"), ("a//b", "shop/web"), ("a/renew", "shop/web"), ("f", "shop/my web"), ("f", 7)):
            self.assertEqual(self.deliver(delivery, repository), 400, (delivery, repository))
        self.assertFalse(self.log.exists() and self.log.read_text())
        self.assertEqual(self.deliver("f"), 200)

    def test_a_deploy_that_hangs_is_ended_with_all_that_it_started_before_the_lock_is_released(self):
        self.receive()
        (self.home / "hangs").touch()
        self.assertEqual(self.deliver("e"), 503)
        child = int((self.home / "child").read_text())
        # A process that has ended, and was not waited for yet, has no command line.
        command = Path(f"/proc/{child}/cmdline")
        self.assertFalse(command.exists() and command.read_bytes(), child)
        (self.home / "hangs").unlink()
        self.assertEqual(self.deliver("e"), 200)

    def test_a_receiver_can_run_a_command(self):
        self.assertEqual(len(self.run_steps(steps(blocks("docs/webhooks.md")))), 1)


class Backup(Document):
    """`systemctl` is a program of this test: it asks the test, through two pipes, to do what systemd does."""

    def setUp(self):
        super().setUp()
        self.begin(LATCHGATE_SHUTDOWN_GRACE_MS="0")
        # As systemd has it with DynamicUser: a link to a directory elsewhere.
        self.state = self.home / "state"
        self.state.symlink_to(self.gateway.home / "data")
        self.backup = self.home / "backup"
        self.backup.mkdir()
        self.asked, self.answered = self.home / "asked", self.home / "answered"
        os.mkfifo(self.asked)
        os.mkfifo(self.answered)
        self.program(
            self.bin / "systemctl",
            f'#!/bin/sh\necho "$*" >{self.asked}\nread -r answer <{self.answered}\n'
            'case $answer in done) ;; *) echo "$answer" ;; esac\n',
        )
        threading.Thread(target=self.manage, daemon=True).start()

    def manage(self):
        services = {
            "show --property MainPID --value latchgate": lambda: self.gateway.pid,
            "stop latchgate": self.gateway.shut_down,
            "start latchgate": self.gateway.start,
        }
        while True:
            command = self.asked.read_text().strip()
            answer = services.get(command, lambda: f"unknown: {command}")()
            self.answered.write_text(f"{'done' if answer is None else answer}\n")

    def run_section(self, section):
        (block,) = [text for language, text in blocks("docs/backup.md", section) if language == "sh"]
        block = block.replace("/var/lib/latchgate", str(self.state)).replace("/backup", str(self.backup))
        for line in block.splitlines():
            printed, code = self.shell.run(line)
            self.assertEqual((code, printed.strip()), (0, ""), line)

    def test_what_is_copied_and_restored_as_the_page_says_is_held_again(self):
        self.check_restore(lambda: self.run_section("Copy the files"))

    def test_so_is_what_was_backed_up_online(self):
        def back_up():
            for command, _, _ in steps(blocks("docs/backup.md")[:2]):
                printed, code = self.shell.run(command.replace("/backup", str(self.backup)))
                self.assertEqual(code, 0, printed)

        self.check_restore(back_up)

    def check_restore(self, back_up):
        before = self.gateway.acquire("before", ttl_ms=600_000)
        back_up()
        copied = [path.name for path in self.backup.iterdir()]
        self.assertTrue(copied and all(re.fullmatch(r"latchgate\.\d+\.log", name) for name in copied), copied)
        later = self.gateway.acquire("later", ttl_ms=600_000)
        self.run_section("Restore")
        renewed = self.gateway.call("PUT", "/locks/before/renew", headers={"Lock-Token": before["token"]})
        self.assertEqual(renewed[0], 200, renewed)
        self.assertGreater(self.gateway.acquire("later")["fencing_token"], later["fencing_token"])


if __name__ == "__main__":
    unittest.main()
