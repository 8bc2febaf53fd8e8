"""Builds the program for a target, and looks at what came of it."""

import os
import platform
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from . import ROOT, fail, output, run

# Debian 12's. What needs a newer one does not start there.
NEWEST_GLIBC = (2, 36)
# What the Debian package says that it needs, and docs/deploy.md says of the archives.
GLIBC = r"libc6 \(>= ([\d.]+)\)"
SHELLS = {"bash": "latchgate.bash", "zsh": "_latchgate", "fish": "latchgate.fish"}


@dataclass(frozen=True)
class Target:
    """How something is built and tried for one target, on x86_64."""

    triple: str
    # Debian's name of it, if there is a package for it.
    debian: str | None
    # The compiler of C, which is found by its name, and the Debian packages that it is in.
    compiler: str
    packages: tuple[str, ...]
    # What links, if that is not the compiler of this machine.
    linker: str | None = None
    # What starts a program of this target.
    runner: tuple[str, ...] = field(default=())

    @property
    def folder(self):
        return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / self.triple / "release"

    @property
    def program(self):
        return self.folder / "latchgate"

    @property
    def machine(self):
        return self.triple.partition("-")[0]

    @property
    def is_static(self):
        return self.triple.endswith("-musl")


TARGETS = {
    target.triple: target
    for target in (
        Target("x86_64-unknown-linux-gnu", "amd64", "gcc", ("gcc",)),
        Target(
            "aarch64-unknown-linux-gnu", "arm64", "aarch64-linux-gnu-gcc",
            ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"),
            "aarch64-linux-gnu-gcc", ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        ),
        # Rust comes with the C library of this target; what musl-gcc links is not static and does not start.
        Target("x86_64-unknown-linux-musl", None, "musl-gcc", ("musl-tools",)),
        # Debian has no compiler of C for musl on this machine. The C in the program calls no function of a C library
        # that musl does not have, and what links finds Rust's copy of musl.
        Target(
            "aarch64-unknown-linux-musl", None, "aarch64-linux-gnu-gcc",
            ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"),
            "aarch64-linux-gnu-gcc", ("qemu-aarch64",),
        ),
    )
}


def prepare(target):
    """Makes sure that there is what builds and starts programs of the target."""
    if platform.machine() != "x86_64":
        fail("builds on x86_64 only, because it tries what it builds")
    for tool in filter(None, ["gcc", target.compiler, *target.runner[:1], "readelf"]):
        if not shutil.which(tool):
            run("scripts/install", "gcc", "binutils", *target.packages)
            break
    library = Path(output("rustc", "--print", "sysroot")) / "lib/rustlib" / target.triple / "lib"
    if not library.exists():
        if not shutil.which("rustup"):
            fail(f"this Rust has no {target.triple}, and there is no rustup to add it with")
        run("rustup", "target", "add", target.triple)


def build(target, commit):
    """Builds it, so that it does not tell where the repository and Cargo's home were."""
    # Of nobody who has set something else for his own builds.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CARGO_PROFILE_") and name not in ("RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS")
    }
    renamed = {cargo_home(): "/cargo", ROOT: "/latchgate"}
    environment |= {
        "LATCHGATE_COMMIT": commit,
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(f"--remap-path-prefix={old}={new}" for old, new in renamed.items()),
    }
    if target.linker:
        environment[f"CARGO_TARGET_{target.triple.upper().replace('-', '_')}_LINKER"] = target.linker
        environment[f"CC_{target.triple.replace('-', '_')}"] = target.compiler
    run(
        "cargo", "build", "--locked", "--release", "--quiet", "--bin", "latchgate", "--target", target.triple,
        env=environment,
    )


def cargo_home():
    return os.environ.get("CARGO_HOME", Path.home() / ".cargo")


def complete(target):
    """Lets it write its completions beside itself."""
    folder = target.folder / "completions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for shell, name in SHELLS.items():
        (folder / name).write_text(output(*target.runner, target.program, "completions", shell) + "\n")


def check(target, version, commit):
    """Says what the program needs of a machine, in a line; refuses what runs nowhere."""
    said = output(*target.runner, target.program, "--version")
    if said != f"latchgate {version} ({commit[:12]})":
        fail(f"the program for {target.triple} says that it is {said}")
    for path in (ROOT, cargo_home()):
        if f"{path}/".encode() in target.program.read_bytes():
            fail(f"the program for {target.triple} tells where it was built: {path}")
    dynamic = output("readelf", "--wide", "--dynamic", "--version-info", target.program)
    libraries = sorted(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"\bGLIBC_([\d.]+)", dynamic)}
    if target.is_static:
        if libraries:
            fail(f"the program for {target.triple} is not static: it needs {libraries}")
        return "any Linux: it is static"
    newest = max(versions)
    if newest > NEWEST_GLIBC:
        fail(f"the program needs glibc {dotted(newest)}, and Debian 12 has {dotted(NEWEST_GLIBC)}: build it there")
    promised = re.search(GLIBC, (ROOT / "Cargo.toml").read_text())[1]
    if newest > tuple(map(int, promised.split("."))):
        fail(f"the program needs glibc {dotted(newest)}: say so in Cargo.toml and docs/deploy.md, not {promised}")
    return f"glibc {dotted(newest)} or later ({', '.join(libraries)})"


def dotted(version):
    return ".".join(map(str, version))
