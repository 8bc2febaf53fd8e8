"""The shell blocks of the documents, run as they are written."""

import os
import re
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from gateway import DEADLINE, PROGRAM, ROOT, Gateway

# Blocks that need a whole machine, or that other tests run.
NOT_RUN = {"cargo run --release      # needs Rust 1.91 or later; listens on 127.0.0.1:7420\n"}


def blocks(page, section=""):
    """The code blocks of a page, or of one section of it: pairs of a language and a text."""
    text = (ROOT / page).read_text()
    if section:
        text = re.split(r"(?m)^## ", text.partition(f"\n## {section}\n")[2])[0]
    return re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", text)


def steps(block):
    """The commands of a console block, each with the lines that it is said to print."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def comparable(text):
    """A text without what differs from run to run."""
    text = re.sub(r'("(?:\w*_ms|fencing_token)":|retry-after: )\d+', r"\1#", text)
    return re.sub(r"\s", "", re.sub(r'"token":"[\w-]{43}"', '"token":"#"', text))


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

    def begin(self, **variables):
        """A gateway, and a shell in which `latchgate` is found."""
        self.gateway = Gateway(environment=variables)
        self.addCleanup(self.gateway.end)
        self.bin = self.home / "bin"
        self.bin.mkdir()
        environment = {
            "PATH": f"{self.bin}:{PROGRAM.parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LATCHGATE_URL": self.gateway.url,
        }
        self.shell = Shell(environment, self.home)
        self.addCleanup(self.shell.end)

    def program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def assert_prints(self, command, expected, printed):
        """Each piece of what is shown, between its lines and "…", is there, in this order."""
        at, printed = 0, comparable(printed)
        for piece in [piece for line in expected for piece in comparable(line).split("…") if piece]:
            found = printed.find(piece, at)
            self.assertNotEqual(found, -1, f"{command} does not print {piece} there, but {printed}")
            at = found + len(piece)

    def walk(self, page):
        """Runs every block of a page in order, and answers how many commands there were."""
        host = self.gateway.url.removeprefix("http://")
        tokens, ran = {}, 0
        for language, block in blocks(page):
            if block in NOT_RUN:
                continue
            self.assertIn(language, ("console", "sh"), block)
            for command, expected in steps(block) if language == "console" else [(block, [])]:
                for shown, real in tokens.items():
                    command = command.replace(shown, real)
                printed, code = self.shell.run(command.replace("localhost:7420", host))
                self.assertEqual(code, 0, f"{command}: {printed}")
                self.assert_prints(command, expected, printed)
                token = re.compile(r'"token":"([\w-]{43})"')
                shown, real = token.search("".join(expected)), token.search(printed)
                if shown:
                    tokens[shown[1]] = real[1]
                ran += 1
        return ran


class Readme(Document):
    def test_every_block_does_what_it_shows(self):
        self.begin()
        self.program(self.home / "job.sh", "#!/bin/sh\necho $LATCHGATE_FENCING_TOKEN >ran\n")
        self.assertGreaterEqual(self.walk("README.md"), 10)
        self.assertRegex((self.home / "ran").read_text(), r"\d+")

    def test_so_does_every_block_of_the_page_about_http(self):
        self.begin()
        self.assertGreaterEqual(self.walk("docs/http.md"), 8)

    def test_and_of_the_page_about_shared_locks(self):
        self.begin()
        self.program(self.home / "job.sh", "#!/bin/sh\necho $LATCHGATE_SLOT >slot\n")
        self.assertGreaterEqual(self.walk("docs/sharing.md"), 3)
        self.assertEqual((self.home / "slot").read_text(), "0\n")

    def test_what_is_not_printed_is_found(self):
        shown = ['HTTP/1.1 423 Locked', '', '{"status":423, … "retry_after_ms":5000}']
        self.assert_prints("ask", shown, 'HTTP/1.1 423 Locked\r\nx: y\r\n\r\n{"status":423,"a":1,"retry_after_ms":4711}')
        for printed in ('HTTP/1.1 200 OK {"status":423,"retry_after_ms":1}', 'HTTP/1.1 423 Locked {"status":423}'):
            with self.assertRaises(AssertionError):
                self.assert_prints("ask", shown, printed)


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
            (block,) = [text for _, text in blocks("docs/backup.md", "Online backup")]
            for command, _ in steps(block):
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
