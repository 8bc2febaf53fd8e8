"""What a release is made of, without making one: `scripts/release-test` does that."""

import re
import subprocess
import sys
import tomllib
import unittest
from unittest import mock

import program

sys.path.insert(0, str(program.ROOT / "packaging"))

from release import ROOT, archive, packages, program as build, publish, versions  # noqa: E402

PAGE = (ROOT / "docs/deploy.md").read_text()
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
DEBIAN = CARGO["package"]["metadata"]["deb"]
# Files that `scripts/release` has made before it runs cargo-deb.
MADE = {"target/release/latchgate", "target/release/documents/**/*"}
MADE |= {f"target/release/completions/{name}" for name in build.SHELLS.values()}


def assets():
    """{where it is installed: what}."""
    listed = [a if isinstance(a, dict) else {"source": a[0], "dest": a[1], "mode": a[2]} for a in DEBIAN["assets"]]
    return {asset["dest"]: asset for asset in listed}


class Versions(unittest.TestCase):
    def test_all_packages_say_the_same(self):
        self.assertEqual(versions.disagreements(), [])

    def test_every_client_is_asked(self):
        places = " ".join(place for place, _ in versions.stated())
        for client in (path.parent.relative_to(ROOT) for path in ROOT.glob("clients/*/CHANGELOG.md")):
            self.assertIn(f"{client}/CHANGELOG.md", places)
        for place in ("clients/rust/Cargo.toml", "packaging/npm/package.json, @latchgate/linux-arm64", "clients/js/package.json", "version.py", "Dockerfile", "compose.yaml", "k8s/"):
            self.assertIn(place, places)

    def test_whoever_says_something_else_is_named(self):
        with mock.patch.object(versions, "program", return_value="0.2.0"):
            wrong = versions.disagreements(tag="v0.2.0")
        self.assertTrue(all(line.endswith(" says 0.1.0") or "0.1.0" in line for line in wrong), wrong)
        for place in ("CHANGELOG.md", "clients/python/CHANGELOG.md", "docs/deploy.md", "Cargo.lock, latchgate-client"):
            self.assertTrue(any(line.startswith(place) for line in wrong), f"{place}: {wrong}")
        self.assertEqual(versions.disagreements(tag="v9.0.0"), ["the tag of this commit says 9.0.0"])

    def test_the_notes_are_what_the_changelog_says_of_it(self):
        self.assertTrue(versions.notes().startswith("* **"))
        self.assertNotIn("\n## ", versions.notes())


class Contents(unittest.TestCase):
    def test_every_file_that_is_named_is_there(self):
        for path in [*archive.DOCUMENTS, *archive.BESIDES]:
            self.assertTrue(archive.files(path), path)
        for asset in assets().values():
            self.assertTrue(asset["source"] in MADE or (ROOT / asset["source"]).is_file(), asset)
        self.assertTrue((ROOT / DEBIAN["license-file"][0]).is_file())

    def test_the_package_has_unit_and_configuration_where_the_unit_looks(self):
        installed = assets()
        unit = (ROOT / installed["usr/lib/systemd/system/latchgate.service"]["source"]).read_text()
        self.assertEqual(unit, (ROOT / "packaging/latchgate.service").read_text())
        for path in re.findall(r"^(?:ExecStart=|Environment=LATCHGATE_CONFIG=)/(\S+)", unit, re.M):
            self.assertIn(path, installed)
        self.assertEqual(installed["etc/latchgate/latchgate.toml"]["source"], "config/embedded.toml")
        self.assertEqual({assets()[path].get("mode") for path in installed if path.startswith("etc/")}, {"644"})

    def test_the_scripts_of_the_package_are_shell_and_leave_room(self):
        scripts = [file for file in (ROOT / DEBIAN["maintainer-scripts"]).iterdir() if file.name != "copyright"]
        self.assertEqual({file.name for file in scripts}, {"postinst", "postrm"})
        for file in scripts:
            self.assertEqual(subprocess.run(["sh", "-n", file]).returncode, 0, file.name)
            self.assertIn("\n#DEBHELPER#\n", file.read_text())

    def test_what_builds_the_python_package_is_listed_with_checksums(self):
        listed = set(re.findall(r"^([\w-]+)==", (ROOT / packages.PYTHON_LIST).read_text(), re.M))
        self.assertLessEqual(packages.PYTHON_BUILD, listed)


class Pages(unittest.TestCase):
    def test_deploy_names_the_file_of_each_target(self):
        version = versions.program()
        for target in build.TARGETS.values():
            self.assertIn(f"`latchgate-{version}-{target.triple}.tar.gz`", PAGE)
            if target.debian:
                self.assertIn(f"`latchgate_{version}-1_{target.debian}.deb`", PAGE)
        named = set(re.findall(r"latchgate[-_]\d[\w.-]*?\.(?:tar\.gz|deb)", PAGE))
        self.assertEqual(len(named), len(build.TARGETS) + sum(1 for t in build.TARGETS.values() if t.debian), named)

    def test_deploy_says_what_it_needs(self):
        needs = re.search(build.GLIBC, DEBIAN["depends"])[1]
        self.assertIn(f"glibc {needs} or later", PAGE)
        self.assertLessEqual(tuple(map(int, needs.split("."))), build.NEWEST_GLIBC)

    def test_licences_are_checked_for_every_target(self):
        checked = tomllib.loads((ROOT / "deny.toml").read_text())["graph"]["targets"]
        self.assertLessEqual({target.triple for target in build.TARGETS.values()}, set(checked))

    def test_what_would_be_published_is_a_command_for_each_file(self):
        out = ROOT / "target/dist"
        launcher = f"npm/latchgate-{versions.program()}.tgz"
        names = [launcher, "npm/latchgate-linux-x64.tgz", "npm/latchgate-client.tgz", "python/a.whl", "crates/a.crate", "helm/a.tgz", "github-action/a.tar.gz", "a.deb", "SHA256SUMS"]
        files = [out / name for name in names]
        release = packages.Release(out, versions.program(), "0" * 40, 0, False)
        text = publish.plan(release, files)
        self.assertTrue(text.startswith("Nothing is published."))
        # Cargo takes no file name.
        for file in (file for file in files if file.suffix != ".crate"):
            self.assertIn(str(file), text)
        self.assertGreater(text.index(launcher), text.index("npm/latchgate-linux-x64.tgz"), "it names the other")
        for command in ("git push origin v", "gh release create v", "cargo publish", "helm push", "npm publish --access public", "twine upload"):
            self.assertIn(command, text)


if __name__ == "__main__":
    unittest.main()
