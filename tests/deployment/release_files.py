"""Looks into every file of a release, and uses each package in an empty place. `release_files.py RELEASE COMMIT`."""

import contextlib
import json
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

import program

sys.path.insert(0, str(program.ROOT / "packaging"))

from release import archive, carried, chart, packages, program as build, versions  # noqa: E402

RELEASE, COMMIT = Path(sys.argv[1]).resolve(), sys.argv[2]
VERSION = versions.program()
ARCHIVES = sorted(RELEASE.glob("latchgate-*.tar.gz"))
# Builds are kept here, so that the next run is fast.
KEPT = program.ROOT / "target/release-test"


def do(*command, **options):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, **options)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def target_of(path):
    return build.TARGETS[re.search(rf"{re.escape(VERSION)}-(.*?)\.(?:tar\.gz|cdx\.json)$", path.name)[1]]


def unpacked(path, folder):
    """Unpacks an archive as a user does, and gives the folder that it makes."""
    do("tar", "-xf", path, "-C", folder)
    (made,) = [entry for entry in Path(folder).iterdir() if path.name.startswith(entry.name)]
    return made


class Place(unittest.TestCase):
    """A test with an empty folder, and with no more of the environment than is needed."""

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.place = Path(made.name)


class Archives(Place):
    def test_there_is_one_for_each_bill(self):
        bills = sorted(RELEASE.glob("*.cdx.json"))
        self.assertEqual([target_of(path) for path in bills], [target_of(path) for path in ARCHIVES])
        self.assertIn(build.TARGETS["x86_64-unknown-linux-gnu"], [target_of(path) for path in ARCHIVES])

    def test_their_members_say_nothing_of_who_packed_them(self):
        # npm packs its own archive of the client.
        of_npm = [path for path in RELEASE.glob("npm/*.tgz") if "-client-" not in path.name]
        for path in [*ARCHIVES, *of_npm, *RELEASE.glob("github-action/*.tar.gz")]:
            with tarfile.open(path) as packed:
                members = packed.getmembers()
            names = [member.name for member in members]
            self.assertEqual(names, sorted(names), path.name)
            self.assertEqual({(m.uid, m.gid, m.uname, m.gname) for m in members}, {(0, 0, "", "")}, path.name)
            self.assertEqual(len({member.mtime for member in members}), 1, path.name)
            self.assertLessEqual({stat.S_IMODE(member.mode) for member in members}, {0o644, 0o755}, path.name)
            # Four bytes of the gzip header that would contain the time of packing.
            self.assertEqual(path.read_bytes()[4:8], bytes(4), path.name)

    def test_each_has_what_the_repository_has_and_a_program_that_starts(self):
        expected = archive.files(*archive.DOCUMENTS, *archive.BESIDES)
        for path in ARCHIVES:
            made, target = unpacked(path, self.place), target_of(path)
            found = {file.relative_to(made).as_posix() for file in made.rglob("*") if file.is_file()}
            completions = {f"completions/{name}" for name in build.SHELLS.values()}
            self.assertEqual(found, {"latchgate", archive.LICENCES, *expected, *completions}, path.name)
            for name in expected:
                self.assertEqual((made / name).read_bytes(), (program.ROOT / name).read_bytes(), name)
            said = do(*target.runner, made / "latchgate", "--version", env={"PATH": os.environ["PATH"]})
            self.assertEqual(said.strip(), f"latchgate {VERSION} ({COMMIT[:12]})")
            do("bash", "-n", made / "completions/latchgate.bash")
            licences = (made / archive.LICENCES).read_text()
            self.assertRegex(licences, r"\ntokio 1\.\S+ \(MIT\)")
            self.assertIn("THE SOFTWARE IS PROVIDED", licences)
            # The file that the page names must not need more than the page says.
            self.assertRegex(build.check(target, VERSION, COMMIT), "static|^glibc 2.34 or later")

    def test_each_bill_is_whole_and_of_this_commit(self):
        for path in RELEASE.glob("*.cdx.json"):
            bill = json.loads(path.read_text())
            component = bill["metadata"]["component"]
            self.assertEqual((component["name"], component["version"]), ("latchgate", VERSION))
            said = {fact["name"]: fact["value"] for fact in bill["metadata"]["properties"]}
            self.assertEqual(said, {"latchgate:target": target_of(path).triple, "latchgate:commit": COMMIT})
            do(program.ROOT / "scripts/sbom", "--check", "--target", target_of(path).triple)


class Carried(Place):
    """`test_carried.py` uses those for this machine."""

    def test_every_static_program_is_in_a_package_of_npm_and_in_a_wheel(self):
        static = {target_of(path).machine: path for path in ARCHIVES if target_of(path).is_static}
        wheels = {path.stem.rpartition("musllinux_1_1_")[2]: path for path in RELEASE.glob(f"python/latchgate-{VERSION}-*.whl")}
        self.assertEqual(wheels.keys(), static.keys())
        for machine, path in static.items():
            expected = (unpacked(path, self.place) / "latchgate").read_bytes()
            with zipfile.ZipFile(wheels[machine]) as packed:
                self.assertEqual(packed.read("latchgate_program/latchgate"), expected, machine)
            with tarfile.open(RELEASE / f"npm/latchgate-linux-{carried.NODE[machine]}-{VERSION}.tgz") as packed:
                self.assertEqual(packed.extractfile("package/latchgate").read(), expected, machine)
                self.assertEqual(json.load(packed.extractfile("package/package.json"))["version"], VERSION)


class Chart(unittest.TestCase):
    """`test_chart.py` renders it."""

    def test_it_is_what_the_sources_make(self):
        with tarfile.open(RELEASE / f"helm/latchgate-chart-{VERSION}.tgz") as packed:
            found = {m.name: packed.extractfile(m).read() for m in packed.getmembers()}
        self.assertEqual(found, {f"latchgate/{name}": data for name, (data, _) in chart.contents(VERSION).items()})


class Debian(Place):
    def test_there_is_one_for_each_machine(self):
        expected = {target_of(path).debian for path in ARCHIVES} - {None}
        found = {path.name: do("dpkg-deb", "--field", path, "Architecture").strip() for path in RELEASE.glob("*.deb")}
        self.assertEqual(found, {f"latchgate_{VERSION}-1_{machine}.deb": machine for machine in expected})

    def test_each_has_the_program_and_the_documents_of_its_archive(self):
        machines = {target_of(path).debian: path for path in ARCHIVES}
        for package in RELEASE.glob("*.deb"):
            of_package, of_archive = self.place / package.name, self.place / "archive"
            of_archive.mkdir()
            do("dpkg-deb", "--extract", package, of_package)
            made = unpacked(machines[do("dpkg-deb", "--field", package, "Architecture").strip()], of_archive)
            same = {"usr/bin/latchgate": "latchgate", "usr/lib/systemd/system/latchgate.service": archive.BESIDES[1]}
            same |= {f"usr/share/doc/latchgate/{name}": name for name in archive.files(*archive.DOCUMENTS)}
            for here, there in same.items():
                self.assertEqual((of_package / here).read_bytes(), (made / there).read_bytes(), here)
                self.assertEqual((of_package / here).stat().st_mode, (made / there).stat().st_mode, here)
            # The dependencies of the package are those of the program.
            needs = do("dpkg-deb", "--field", package, "Depends")
            self.assertIn("libc6 (>= 2.34), libgcc-s1", needs)
            shutil.rmtree(of_archive)


class Clients(Place):
    """Each is installed without its repository, and takes a lock of a gateway out of the archive."""

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (path,) = RELEASE.glob(f"*-{platform.machine()}-unknown-linux-gnu.tar.gz")
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        cls.url = f"http://{address}"
        gateway = subprocess.Popen(
            [unpacked(path, folder) / "latchgate", "serve", "--listen", address, "--store", f"embedded:{folder}/store"],
            env={"LATCHGATE_SHUTDOWN_GRACE_MS": "0"}, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        stack.callback(gateway.wait)
        stack.callback(gateway.terminate)
        deadline = time.monotonic() + 20
        while subprocess.run(["curl", "--silent", "--fail", f"{cls.url}/readyz"], stdout=subprocess.DEVNULL).returncode:
            assert gateway.poll() is None and time.monotonic() < deadline, "the gateway does not start"
            time.sleep(0.05)

    def holds(self, *command, **options):
        """Runs a program that takes a lock, and prints its fencing token and who holds it."""
        fence, owner = do(*command, **options).split()
        self.assertGreater(int(fence), 0)
        self.assertEqual(owner, self.id().rpartition(".")[2])

    def test_python(self):
        (wheel,) = RELEASE.glob("python/latchgate_client-*.whl")
        venv = KEPT / "venv"
        packages.make_venv(venv)
        do(venv / "bin/pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps", wheel)
        script = (
            "import sys, latchgate\n"
            "assert latchgate.__version__ == sys.argv[3], latchgate.__version__\n"
            "locks = latchgate.Latchgate(sys.argv[1], owner=sys.argv[2])\n"
            "with locks('package', ttl='10s') as lease:\n"
            "    print(lease.fencing_token, locks.inspect('package').holders[0].owner)\n"
        )
        self.holds(venv / "bin/python", "-I", "-c", script, self.url, "test_python", VERSION, cwd=self.place)

    def test_javascript(self):
        (package,) = RELEASE.glob("npm/latchgate-client-*.tgz")
        (self.place / "package.json").write_text('{"private": true, "type": "module"}')
        do("npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", package, cwd=self.place)
        installed = json.loads((self.place / "node_modules/@latchgate/client/package.json").read_text())
        self.assertEqual(installed["version"], VERSION)
        (self.place / "main.js").write_text(
            "import { Latchgate } from '@latchgate/client';\n"
            "const [url, owner] = process.argv.slice(2);\n"
            "const locks = new Latchgate(url, { owner });\n"
            "await locks.with('package', { ttl: '10s' }, async (lease) => {\n"
            "  console.log(lease.fencingToken, (await locks.inspect('package')).holders[0].owner);\n"
            "});\n"
        )
        self.holds("node", "main.js", self.url, "test_javascript", cwd=self.place)

    def test_rust(self):
        crates = sorted(RELEASE.glob("crates/*.crate"))
        client, vocabulary = [unpacked(crate, self.place).name for crate in crates]
        (self.place / "src").mkdir()
        (self.place / "Cargo.toml").write_text(
            '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[profile.dev]\ndebug = false\n'
            f'[dependencies]\nlatchgate-client = {{ version = "={VERSION}", path = "{client}" }}\n'
            f'[patch.crates-io]\nlatchgate-vocabulary = {{ path = "{vocabulary}" }}\n'
            'tokio = { version = "1", features = ["macros", "rt"] }\n'
        )
        # The versions with which all other tests run; unneeded packages are left out.
        shutil.copy(program.ROOT / "Cargo.lock", self.place)
        (self.place / "src/main.rs").write_text(
            "use latchgate_client::{AcquireRequest, Client, ClientOptions, LockName};\n"
            '#[tokio::main(flavor = "current_thread")]\n'
            "async fn main() {\n"
            "    let [url, owner] = [1, 2].map(|at| std::env::args().nth(at).unwrap());\n"
            "    let client = Client::new(ClientOptions { url, ..ClientOptions::default() }).unwrap();\n"
            '    let name = LockName::new("package").unwrap();\n'
            "    let request = AcquireRequest::default();\n"
            '    let work = async |lease: &latchgate_client::Lease| println!("{} {owner}", lease.fence);\n'
            "    client.with_lock(&name, &request, work).await.unwrap();\n"
            "}\n"
        )
        environment = {**os.environ, "CARGO_TARGET_DIR": str(KEPT / "crate")}
        do("cargo", "build", "--quiet", cwd=self.place, env=environment)
        self.holds(KEPT / "crate/debug/user", self.url, "test_rust", cwd=self.place)

    def test_github_action(self):
        for path in RELEASE.glob("github-action/*.tar.gz"):
            made = unpacked(path, self.place)
            for script in ["src/main.mjs", "src/post.mjs"]:
                do("node", "--check", made / script)
                self.assertIn(script, (made / "action.yml").read_text())


class Whole(unittest.TestCase):
    def test_every_file_has_its_checksum(self):
        listed = {line.split("  ")[1] for line in (RELEASE / "SHA256SUMS").read_text().splitlines()}
        found = {file.relative_to(RELEASE).as_posix() for file in RELEASE.rglob("*") if file.is_file()}
        self.assertEqual(listed, found - {"SHA256SUMS"})
        do("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=RELEASE)

    def test_the_page_names_every_file(self):
        page = (program.ROOT / "docs/deploy.md").read_text()
        for path in [*ARCHIVES, *RELEASE.glob("*.deb")]:
            self.assertIn(f"`{path.name}`", page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
