"""The packages of npm and PyPI that carry the program, used as strangers use them: without a network, in empty places.

They carry the debug program here. LATCHGATE_RELEASE names a folder of `scripts/release` whose packages are taken
instead; `scripts/release-test` does that.
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
import zipfile
from functools import cache
from pathlib import Path
from unittest import mock

import program

sys.path.insert(0, str(program.ROOT / "packaging"))

from release import archive, carried, versions  # noqa: E402

VERSION, MACHINE = versions.program(), platform.machine()
RELEASE = os.environ.get("LATCHGATE_RELEASE")
# The longest time in seconds from the installation to the first answer. The debug program is larger and slower.
PATIENCE = 10 if RELEASE else 60
NPM_README, WHEEL_README, PAGE = "packaging/npm/README.md", "packaging/wheel/README.md", "docs/testing.md"
# A package of npm with a program, for the tests that need a Node that can be replaced.
NODES = program.ROOT / "target/tools/clients/node_modules"


def do(*command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def blocks(page, language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", (program.ROOT / page).read_text())


def answers(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(url), timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def until(what, ask):
    deadline = time.monotonic() + 30
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within 30 s: {what}"
        time.sleep(0.02)
    return answer


def folders(home):
    return list(Path(home).glob("latchgate-test.*"))


def write(folder, carries, moment):
    of_machine = MACHINE, carries, b"licences\n", VERSION, moment
    carried.npm_platform(folder / "npm", *of_machine)
    carried.npm_launcher(folder / "npm", VERSION, moment)
    carried.wheel(folder / "python", *of_machine)


@cache
def packages():
    """The three packages for this machine."""
    if RELEASE:
        folder = Path(RELEASE).resolve()
    else:
        folder = Path(tempfile.mkdtemp(prefix="latchgate-carried-"))
        unittest.addModuleCleanup(shutil.rmtree, folder)
        do("strip", "-o", folder / "program", program.PROGRAM)
        # A quick test, not a small package.
        with mock.patch.object(carried.archive, "LEVEL", 1):
            write(folder, (folder / "program").read_bytes(), 1_700_000_001)
    names = (
        f"npm/latchgate-{VERSION}.tgz", f"npm/latchgate-linux-{carried.NODE[MACHINE]}-{VERSION}.tgz",
        f"python/latchgate-{VERSION}-*_{MACHINE}.whl",
    )
    return [next(folder.glob(name)) for name in names]


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.launcher, cls.platform, cls.wheel = packages()
        cls.place = Path(tempfile.mkdtemp(prefix="latchgate-place-"))
        cls.addClassCleanup(shutil.rmtree, cls.place)
        cls.install()

    @classmethod
    def install(cls):
        """Installs what the tests of the class need, in a place of their own."""

    def broken(self, path):
        """Puts something that does not start in the place of the program, for this test."""
        path.rename(path.with_suffix(".kept"))
        self.addCleanup(path.with_suffix(".kept").rename, path)
        path.write_text("#!/bin/sh\necho 'no room' >&2\nexit 111\n")
        path.chmod(0o755)

    def setUp(self):
        home = tempfile.TemporaryDirectory(prefix="latchgate-place-")
        self.addCleanup(home.cleanup)
        self.home = Path(home.name)
        (self.home / "tmp").mkdir()
        # Nothing of whoever runs this, but one setting that the gateway of a test must not follow.
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home / "tmp"),
            "LATCHGATE_STORE": "redis://127.0.0.1:1",
        }

    def serves(self, *command, environment=None, cwd=None):
        """Starts a command that serves; its address, and the process."""
        served = subprocess.Popen(
            [*command, "serve", "--listen", "127.0.0.1:0", "--store", f"embedded:{self.home}/store"],
            env=environment or self.environment, cwd=cwd or self.home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        self.addCleanup(served.stdout.close)
        self.addCleanup(served.wait)
        self.addCleanup(self.kill, served)
        for line in served.stdout:
            if found := re.search(r"listens on (\S+)", line):
                return found[1], served
        self.fail(f"{command} does not serve")

    def kill(self, served):
        """With all that it has started: npm has a shell and a Node in between."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(served.pid, signal.SIGKILL)

    def assert_replaced_or_ends(self, served, url):
        """TERM ends the program behind it with the code of the program."""
        served.send_signal(signal.SIGTERM)
        self.assertEqual(served.wait(30), 0)
        self.assertIsNone(answers(f"{url}/healthz"))


class Npm(Packages):
    @classmethod
    def install(cls):
        (cls.place / "package.json").write_text('{"private": true, "type": "module"}')
        do(
            "npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", "--ignore-scripts",
            cls.launcher, cls.platform, cwd=cls.place, env={"PATH": os.environ["PATH"], "HOME": str(cls.place)},
        )
        cls.command = cls.place / "node_modules/.bin/latchgate"
        cls.carrier = cls.place / f"node_modules/@latchgate/linux-{carried.NODE[MACHINE]}"

    def test_npx_starts_a_gateway_within_ten_seconds(self):
        began = time.monotonic()
        url, served = self.serves(
            "npm", "exec", "--offline", "--yes", f"--package={self.launcher}", f"--package={self.platform}", "--", "latchgate",
        )
        answer = urllib.request.urlopen(f"{url}/locks/deploy", b"")
        self.assertEqual(answer.status, 201)
        self.assertLess(time.monotonic() - began, PATIENCE)

    def test_the_command_passes_words_output_and_codes_on(self):
        for words in (["--version"], ["acquire", "--ttl", "x", "a b"], ["run", "a", "--", "sh", "-c", "exit 7"], ["openapi"]):
            options = {"env": self.environment | {"LATCHGATE_URL": "http://127.0.0.1:1"}, "capture_output": True}
            direct = subprocess.run([program.PROGRAM, *words], **options)
            started = subprocess.run([self.command, *words], **options)
            self.assertEqual(started.returncode, direct.returncode, words)
            if not RELEASE:
                self.assertEqual((started.stdout, started.stderr), (direct.stdout, direct.stderr), words)

    def test_signals_reach_the_program(self):
        url, served = self.serves(self.command)
        self.assertEqual(answers(f"{url}/healthz"), 200)
        self.assert_replaced_or_ends(served, url)

    def test_a_newer_node_is_replaced_by_the_program(self):
        """Where `scripts/clients js` has brought one: the Node of the machine may be older."""
        found = list(NODES.glob(f"node-newest-{carried.NODE[MACHINE]}/bin/node"))
        found = found or [Path(shutil.which("node"))]
        url, served = self.serves(found[0], self.place / "node_modules/latchgate/latchgate.js")
        can = do(found[0], "-p", "typeof process.execve").strip() == "function"
        name = Path(f"/proc/{served.pid}/comm").read_text().strip()
        self.assertEqual(name.startswith("latchgate"), can, name)
        self.assert_replaced_or_ends(served, url)

    def test_without_a_program_for_the_platform_it_says_so(self):
        self.carrier.rename(self.place / "elsewhere")
        self.addCleanup((self.place / "elsewhere").rename, self.carrier)
        ran = subprocess.run([self.command, "--version"], env=self.environment, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 127)
        self.assertIn(f"no package @latchgate/linux-{carried.NODE[MACHINE]}", ran.stderr)
        self.assertEqual(len(ran.stderr.splitlines()), 1)

    def test_the_tests_of_the_pages_pass_and_leave_nothing(self):
        [readme], [page, whole_file] = blocks(NPM_README, "js"), blocks(PAGE, "js")
        whole_file += "import { test } from 'node:test';\ntest('one', async () => { if (!(await fetch(url + '/healthz')).ok) throw 1; });\n"
        client = self.place / "node_modules/@latchgate/client"
        client.symlink_to(program.ROOT / "clients/js")
        self.addCleanup(client.unlink)
        for name, text in {"readme": readme, "page": page, "file": whole_file}.items():
            (self.place / f"{name}.test.js").write_text(text)
        printed = do("node", "--test", "--test-reporter=tap", cwd=self.place, env=self.environment)
        self.assertIn("# pass 3", printed)
        self.assertEqual(folders(self.home / "tmp"), [])

    def test_a_run_that_is_killed_leaves_no_gateway(self):
        script = (
            "import { gateway } from 'latchgate';\n"
            "const { url } = await gateway();\nconsole.log(url);\nsetInterval(() => {}, 1000);\n"
        )
        self.killed("node", "--input-type=module", "--eval", script)

    def test_a_run_that_has_nothing_else_to_do_ends(self):
        script = "import { gateway } from 'latchgate';\nconst { url } = await gateway();\nconsole.log((await fetch(url + '/healthz')).status);\n"
        self.assertEqual(do("node", "--input-type=module", "--eval", script, cwd=self.place, env=self.environment).strip(), "200")
        until("the store is removed", lambda: not folders(self.home / "tmp"))

    def test_a_gateway_that_does_not_start_is_an_error(self):
        script = "import { gateway } from 'latchgate';\nawait gateway();\n"
        self.broken(self.carrier / "latchgate")
        ran = subprocess.run(
            ["node", "--input-type=module", "--eval", script], cwd=self.place, env=self.environment, capture_output=True, text=True,
        )
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no room", ran.stderr)
        self.assertIn("the gateway did not start", ran.stderr)
        self.assertEqual(folders(self.home / "tmp"), [])

    def killed(self, *command):
        run = subprocess.Popen(command, cwd=self.place, env=self.environment, stdout=subprocess.PIPE, text=True)
        self.addCleanup(run.stdout.close)
        url = run.stdout.readline().strip()
        self.assertEqual(answers(f"{url}/healthz"), 200)
        self.assertEqual(len(folders(self.home / "tmp")), 1)
        run.kill()
        run.wait()
        until("the gateway ends", lambda: answers(f"{url}/healthz") is None)
        until("the store is removed", lambda: not folders(self.home / "tmp"))

    def test_types_name_what_the_module_exports(self):
        declared = re.findall(r"^export function (\w+)", (program.ROOT / carried.NPM / "gateway.d.ts").read_text(), re.M)
        module = (program.ROOT / carried.NPM / "gateway.js").as_uri()
        exported = do("node", "--input-type=module", "--eval", f"console.log(Object.keys(await import('{module}')).join())")
        self.assertEqual(sorted(declared), sorted(exported.strip().split(",")))


class Wheel(Packages):
    killed = Npm.killed

    @classmethod
    def install(cls):
        """A Python of its own, with the wheel and nothing else."""
        cls.python, cls.command = cls.place / "bin/python", cls.place / "bin/latchgate"
        do(sys.executable, "-m", "venv", cls.place)
        do(cls.python, "-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--quiet", cls.wheel)

    def test_an_installed_wheel_starts_a_gateway_within_ten_seconds(self):
        began = time.monotonic()
        url, served = self.serves(self.command)
        self.assertEqual(urllib.request.urlopen(f"{url}/locks/deploy", b"").status, 201)
        self.assertLess(time.monotonic() - began, PATIENCE)
        self.assertTrue(Path(f"/proc/{served.pid}/comm").read_text().startswith("latchgate"), "Python is still there")
        self.assert_replaced_or_ends(served, url)

    def test_pip_finds_every_file_as_it_is_recorded(self):
        with zipfile.ZipFile(self.wheel) as packed:
            record = packed.read(f"latchgate-{VERSION}.dist-info/RECORD").decode().splitlines()
            files = {name: packed.read(name) for name in packed.namelist()}
            modes = {member.filename: stat.S_IMODE(member.external_attr >> 16) for member in packed.infolist()}
        self.assertEqual(len(record), len(files))
        for name, checksum, size in (line.rsplit(",", 2) for line in record):
            if not name.endswith("/RECORD"):
                self.assertEqual((checksum, int(size)), (f"sha256={carried.checksum(files[name])}", len(files[name])), name)
        self.assertEqual([name for name, mode in modes.items() if mode == 0o755], ["latchgate_program/latchgate"])
        self.assertFalse([name for name in files if name.startswith("latchgate/")], "this module is of the client")

    def test_pip_takes_it_with_either_c_library(self):
        tags = self.wheel.name.removesuffix(".whl").split("-")[-1].split(".")
        self.assertEqual(tags, [f"{tag}_{MACHINE}" for tag in carried.TAGS])
        with zipfile.ZipFile(self.wheel) as packed:
            said = packed.read(f"latchgate-{VERSION}.dist-info/WHEEL").decode()
        self.assertEqual(re.findall(r"^Tag: py3-none-(\S+)$", said, re.M), tags)

    def test_the_tests_of_the_pages_pass_and_leave_nothing(self):
        [readme], [page, other] = blocks(WHEEL_README, "python"), blocks(PAGE, "python")
        (self.home / "test_readme.py").write_text(readme)
        (self.home / "test_page.py").write_text(page)
        # pytest comes from where this runs, the client from its sources; the package is found in the empty place.
        found = [Path(importlib.util.find_spec("pytest").origin).parents[1], program.ROOT / "clients/python/src"]
        environment = self.environment | {"PYTHONPATH": os.pathsep.join(map(str, found)), "PYTHONDONTWRITEBYTECODE": "1"}
        printed = do(self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=self.home, env=environment)
        self.assertIn("2 passed", printed)
        self.assertRegex(do(self.python, "-c", other, env=self.environment), "^a gateway at http://127.0.0.1:")
        self.assertEqual(folders(self.home / "tmp"), [])

    def test_a_run_that_is_killed_leaves_no_gateway(self):
        script = "import latchgate_program, time\nwith latchgate_program.gateway() as url:\n    print(url, flush=True)\n    time.sleep(300)\n"
        self.killed(self.python, "-c", script)

    def test_a_gateway_that_does_not_start_is_an_error(self):
        [carries] = (self.place / "lib").glob("python*/site-packages/latchgate_program/latchgate")
        self.broken(carries)
        script = "import latchgate_program\nwith latchgate_program.gateway() as url:\n    pass\n"
        ran = subprocess.run([self.python, "-c", script], env=self.environment, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no room", ran.stderr)
        self.assertIn("the gateway did not start", ran.stderr)
        self.assertEqual(folders(self.home / "tmp"), [])


class Files(Packages):
    def test_the_page_starts_a_gateway_in_a_shell(self):
        (self.home / "latchgate").symlink_to(program.PROGRAM)
        environment = {"PATH": f"{self.home}:{os.environ['PATH']}", "TMPDIR": str(self.home / "tmp")}
        [script] = blocks(PAGE, "sh")
        self.assertIn('"fencing_token":', do("bash", "-euc", script, env=environment))
        self.assertEqual(list((self.home / "tmp").iterdir()), [])

    def test_the_same_program_gives_the_same_bytes(self):
        names = []
        for folder in ("a", "b"):
            os.environ["TZ"] = {"a": "UTC", "b": "Pacific/Auckland"}[folder]
            time.tzset()
            write(self.home / folder, b"program", 1_700_000_001)
        for path in sorted((self.home / "a").rglob("*.*")):
            other = self.home / "b" / path.relative_to(self.home / "a")
            self.assertEqual(hashlib.sha256(path.read_bytes()).digest(), hashlib.sha256(other.read_bytes()).digest(), path.name)
            names.append(path.name)
        self.assertEqual(len(names), 3)

    def test_both_readmes_and_fixtures_start_a_gateway_alike(self):
        module = (program.ROOT / carried.NPM / "gateway.js").read_text()
        other = (program.ROOT / carried.WHEEL / "latchgate_program/__init__.py").read_text()
        script = re.search(r"(?s)SCRIPT = `(.*?)`", module)[1].replace("\\$", "$")
        self.assertEqual(re.search(r'(?s)_SCRIPT = """(.*?)"""', other)[1], script)

    def test_nothing_of_npm_runs_when_it_is_installed(self):
        manifest = json.loads((program.ROOT / carried.NPM / "package.json").read_text())
        self.assertNotIn("scripts", manifest)
        self.assertEqual(set(manifest["optionalDependencies"]), {f"@latchgate/linux-{cpu}" for cpu in carried.NODE.values()})

    def test_whoever_gets_the_program_gets_its_licences(self):
        listed = do("tar", "-tzf", self.platform).split()
        self.assertIn(f"package/{archive.LICENCES}", listed)
        with zipfile.ZipFile(self.wheel) as packed:
            self.assertIn(f"latchgate-{VERSION}.dist-info/licenses/{archive.LICENCES}", packed.namelist())


if __name__ == "__main__":
    unittest.main()
