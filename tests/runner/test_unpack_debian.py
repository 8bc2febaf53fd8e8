"""What `scripts/unpack-debian` makes of packages, and which machines it refuses. No package is downloaded."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "unpack-debian"


class Unpack(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.home = pathlib.Path(home.name)
        self.root = self.home / "root"
        self.fake("patchelf", "exit 0")
        self.fake("apt-get", f'[ "$#" = 0 ] || cp {self.home}/*.deb {self.root}/apt/cache/archives/ 2>/dev/null; exit 0')
        (self.home / "keyring").touch()

    def fake(self, name, script):
        file = self.home / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def package(self, name, files=(), links=()):
        tree = self.home / name
        (tree / "DEBIAN").mkdir(parents=True)
        fields = {"Package": name, "Version": "1", "Architecture": "all", "Maintainer": "nobody", "Description": "test"}
        (tree / "DEBIAN" / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
        for file in files:
            (tree / file).parent.mkdir(parents=True, exist_ok=True)
            (tree / file).write_text(file)
        for link, target in links:
            (tree / link).parent.mkdir(parents=True, exist_ok=True)
            (tree / link).symlink_to(target)
        subprocess.run(["dpkg-deb", "--build", tree, self.home / f"{name}.deb"], check=True, capture_output=True)

    def unpack(self):
        environment = {**os.environ, "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "DEBIAN_KEYRING": str(self.home / "keyring")}
        ran = subprocess.run(
            [SCRIPT, "trixie", "one", self.root, "/usr/bin/one"], env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
        )
        return ran.returncode, ran.stdout

    def test_absolute_links_stay_in_the_folder(self):
        outside = self.home / "outside"
        outside.mkdir()
        links = [("usr/bin/one", "/etc/alternatives/one"), ("etc/alternatives/one", "/usr/bin/real"), ("var/out", outside), ("near", "usr/bin")]
        self.package("one", ["usr/bin/real"], links)
        self.package("two", ["var/out/file"])
        code, said = self.unpack()
        self.assertEqual((code, said), (0, ""))
        program = self.root / "usr" / "bin" / "one"
        self.assertEqual(program.resolve(), (self.root / "usr" / "bin" / "real").resolve())
        self.assertEqual(os.readlink(program), "../../etc/alternatives/one")
        self.assertEqual(os.readlink(self.root / "near"), "usr/bin")
        self.assertEqual(list(outside.iterdir()), [])

    def test_another_machine_is_refused_in_a_sentence(self):
        self.package("one", ["usr/bin/one"])
        code, said = self.unpack()
        self.assertEqual((code, said), (0, ""))
        (self.home / "keyring").unlink()
        code, said = self.unpack()
        self.assertEqual(code, 1, said)
        self.assertIn("apt-get install debian-archive-keyring", said)
        self.fake("uname", "echo aarch64")
        code, said = self.unpack()
        self.assertEqual(code, 1, said)
        self.assertIn("one can only be unpacked for x86-64, and this machine is aarch64", said)

    def test_a_download_that_hangs_is_given_up(self):
        self.package("one", ["usr/bin/one"])
        self.fake("timeout", 'shift; case "$*" in *install*) exit 124 ;; *) exec "$@" ;; esac')
        code, said = self.unpack()
        self.assertEqual(code, 1, said)
        self.assertIn("within 15 minutes", said)


if __name__ == "__main__":
    unittest.main()
