"""Makes each file of a release from the program and the sources."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import ROOT, archive, carried, chart, fail, licences, output, run

CARGO_DEB = "3.8.0"
CRATES = ["latchgate-vocabulary", "latchgate-client"]
ACTION = ROOT / "clients/github-action/pack"
# What builds the Python package: those of the packages in this list, which its tests are run with as well.
PYTHON_LIST = "clients/python/tests/requirements/newest.txt"
PYTHON_BUILD = {"build", "hatchling", "packaging", "pathspec", "pluggy", "pyproject-hooks", "tomlkit", "trove-classifiers"}


class Release:
    """Where the files go, and what is the same for all of them."""

    def __init__(self, out, version, commit, time, dirty):
        self.out, self.version, self.commit, self.time = out, version, commit, time
        self.may_be_dirty = ["--allow-dirty"] if dirty else []
        # Every tool asks this what time it is.
        self.environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "LATCHGATE_COMMIT": commit}

    # Programs.

    def of_target(self, target):
        """The archive, the bill of materials and the Debian package of a target; of a static one those of npm and PyPI."""
        bill = output("scripts/sbom", "--target", target.triple, env=self.environment) + "\n"
        documents = archive.of_repository(*archive.DOCUMENTS)
        others = licences.third_party(bill, target.triple, target.is_static)
        documents[archive.LICENCES] = (others.encode(), 0o644)
        completions = {
            f"completions/{name}": file for name, file in archive.of_folder(target.folder / "completions").items()
        }
        name = f"latchgate-{self.version}-{target.triple}"
        contents = {
            "latchgate": (target.program.read_bytes(), 0o755),
            **documents, **archive.of_repository(*archive.BESIDES), **completions,
        }
        archive.write(self.out / f"{name}.tar.gz", name, contents, self.time)
        (self.out / f"{name}.cdx.json").write_text(bill)
        if target.debian:
            self.debian(target, documents)
        if target.is_static:
            program = target.machine, target.program.read_bytes(), others.encode(), self.version, self.time
            carried.npm_platform(self.folder("npm"), *program)
            carried.wheel(self.folder("python"), *program)

    def debian(self, target, documents):
        # Where Cargo.toml says that they are: patterns there would find what git does not know as well.
        folder = target.folder / "documents"
        shutil.rmtree(folder, ignore_errors=True)
        for path, (data, mode) in documents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            (folder / path).chmod(mode)
        run(
            cargo_deb(), "deb", "--quiet", "--no-build", "--no-strip", "--locked", "--target", target.triple,
            "--output", self.out / f"latchgate_{self.version.replace('-', '~')}-1_{target.debian}.deb",
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    # Clients, and what starts the program.

    def npm(self):
        folder = self.folder("npm")
        carried.npm_launcher(folder, self.version, self.time)
        if not shutil.which("npm"):
            run("scripts/install", "npm")
        run(
            "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder,
            cwd=ROOT / "clients/js", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def python(self):
        folder = self.folder("python")
        run(
            python_build(), "-m", "build", "--no-isolation", "--outdir", folder, "clients/python",
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    def crates(self):
        # Compiled by `scripts/test` before, and by cargo once more when it is published.
        named = [word for crate in CRATES for word in ("--package", crate)]
        run("cargo", "package", "--locked", "--quiet", "--no-verify", *self.may_be_dirty, *named)
        target, folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")), self.folder("crates")
        for crate in CRATES:
            shutil.copy(target / "package" / f"{crate}-{self.version}.crate", folder)

    def action(self):
        """The GitHub action, if it is here, as the root of its own repository has it."""
        if not ACTION.exists():
            return
        made = ROOT / "target/release-action"
        run(ACTION, made)
        name = f"latchgate-github-action-{self.version}"
        archive.write(self.folder("github-action") / f"{name}.tar.gz", name, archive.of_folder(made), self.time)

    def helm(self):
        chart.write(self.folder("helm"), self.version, self.time)

    def folder(self, name):
        """A folder for each registry: npm and Python would both have a `latchgate-VERSION`."""
        (self.out / name).mkdir(exist_ok=True)
        return self.out / name


def cargo_deb():
    """Of its version, compiled once; it takes two minutes."""
    tool = ROOT / "target/tools/bin/cargo-deb"
    known = subprocess.run([tool, "--version"], capture_output=True, text=True) if tool.exists() else None
    if not known or known.stdout.strip() != CARGO_DEB:
        run("cargo", "install", "--locked", "--quiet", "--root", "target/tools", f"cargo-deb@{CARGO_DEB}")
    return tool


def python_build():
    """A Python with what builds the package, of the versions and checksums that are listed."""
    blocks = re.findall(r"^(([\w-]+)==.*\\\n(?:.*\\\n)*.*\n)", (ROOT / PYTHON_LIST).read_text(), re.M)
    wanted = "".join(block for block, name in blocks if name in PYTHON_BUILD)
    venv = ROOT / "target/release-venv"
    listed = venv / "requirements.txt"
    if not listed.exists() or listed.read_text() != wanted:
        make_venv(venv)
        new = venv / "requirements.new"
        new.write_text(wanted)
        run(
            venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
            "--no-deps", "--requirement", new,
        )
        new.rename(listed)
    return venv / "bin/python"


def make_venv(venv):
    """A new venv. Debian's python3 comes without what makes one, and fails half-way."""
    for attempt in ("with what is there", "with what it needs"):
        shutil.rmtree(venv, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", venv], stdout=subprocess.DEVNULL)
        if made.returncode == 0:
            return
        if attempt == "with what is there":
            run("scripts/install", "python3-venv")
    fail(f"cannot make {venv}")
