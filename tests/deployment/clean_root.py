"""Carries out the stages of the Dockerfile in a root of its own, for `scripts/clean-root`.

`build ROOT TOOLCHAIN` runs the first stage in ROOT/debian; `serve ROOT` makes the last one in ROOT/image
and serves from it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import dockerfile

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD, IMAGE = dockerfile.stages((REPOSITORY / "Dockerfile").read_text())
# The steps work whatever the compiler optimizes, and are faster without optimization.
QUICK = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}
# The packages of gcr.io/distroless/cc that a program can use.
PACKAGES = ["libc6", "libgcc-s1", "ca-certificates"]

# Absolute paths, because the commands are started with another PATH.
CHROOT, SETPRIV = shutil.which("chroot"), shutil.which("setpriv")


def say(text):
    print(f"clean-root: {text}", flush=True)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def build(root, toolchain):
    """Runs every instruction of the first stage."""
    debian = root / "debian"
    for directory in ("build", "out"):
        shutil.rmtree(debian / directory, ignore_errors=True)
    rust = debian / "usr/local/rust"
    rust.mkdir(parents=True, exist_ok=True)
    mount("--bind", "-o", "ro", toolchain, rust)
    mount("-t", "proc", "proc", debian / "proc")
    # The way to crates.io and the trusted certificates are those of this machine.
    shutil.copy("/etc/resolv.conf", debian / "etc/resolv.conf")
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", debian / "tmp/trusted.crt")
    environment = {
        "PATH": "/usr/local/rust/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/root",
        "CARGO_HOME": "/usr/local/cargo",
        "CARGO_HTTP_CAINFO": "/tmp/trusted.crt",
        **QUICK,
    }
    workdir = None
    outputs = []
    for instruction, rest in BUILD:
        if instruction == "WORKDIR":
            workdir = rest
            (debian / rest.lstrip("/")).mkdir(parents=True)
        elif instruction == "COPY":
            *sources, target = rest.split()
            into = debian / workdir.lstrip("/") / target
            if target.endswith("/"):
                into.mkdir(parents=True, exist_ok=True)
            for source in sources:
                copy(REPOSITORY / source, into)
        elif instruction == "RUN":
            say(f"RUN {rest}")
            ran = subprocess.run(
                [CHROOT, debian, "/bin/sh", "-c", f"cd {workdir}; {rest}"],
                env=environment, stderr=subprocess.PIPE, text=True,
            )
            if ran.returncode != 0:
                sys.exit(f"{ran.stderr}\nclean-root: this step fails: {rest}")
            outputs.append(re.findall(r"^\s+Compiling (\S+)", ran.stderr, re.M))
    # The first step builds the dependencies, and the second only the program, so the image layer of the first saves
    # time.
    first, second = outputs
    if len(first) < 100 or sorted(second) != ["latchgate", "latchgate-client", "latchgate-vocabulary"]:
        sys.exit(f"clean-root: the first step built {len(first)} crates, the second {second}")
    say(f"built {len(first)} crates, then the program alone, with its client and their vocabulary")


def copy(source, target):
    """As COPY does: a directory's contents, or a file into a directory."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def image(root):
    """Makes the last stage."""
    debian, made = root / "debian", root / "image"
    shutil.rmtree(made, ignore_errors=True)
    listed = subprocess.run(
        [CHROOT, debian, "dpkg", "-L", *PACKAGES], check=True, capture_output=True, text=True
    )
    files = listed.stdout.split() + ["/etc/ssl/certs/ca-certificates.crt"]
    for link, target in {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin"}.items():
        made.mkdir(exist_ok=True)
        (made / link).symlink_to(target)
        (made / target).mkdir(parents=True)
    for file in files:
        source = debian / file.lstrip("/")
        target = made / file.lstrip("/")
        # Directories are made when they have content; /lib exists already.
        if (source.is_symlink() or source.is_file()) and not target.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    for directory in ("proc", "tmp", "dev"):
        (made / directory).mkdir()
    for rest in dockerfile.all_of(IMAGE, "COPY"):
        of, owner, source, target = rest.split()
        assert of == "--from=build", rest
        source, target = debian / source.lstrip("/"), made / target.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(source, target)
        # An empty directory keeps its mode, which copytree sets.
        user, group = owner.removeprefix("--chown=").split(":")
        os.chown(target, int(user), int(group))
    return made


def serve(root):
    """Starts the gateway as a container would, with a root that is read-only."""
    made = image(root)
    (volume,) = dockerfile.command(dockerfile.one_of(IMAGE, "VOLUME"))
    mount("--bind", made, made)
    mount("-t", "tmpfs", "-o", "mode=0700,uid=65532,gid=65532", "tmpfs", made / volume.lstrip("/"))
    mount("-t", "proc", "proc", made / "proc")
    mount("-o", "remount,bind,ro", made)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    user = dockerfile.one_of(IMAGE, "USER")
    environment = {**dockerfile.pairs(IMAGE, "ENV"), "LATCHGATE_INSECURE_NO_AUTH": "true"}
    entry = dockerfile.command(dockerfile.one_of(IMAGE, "ENTRYPOINT"))

    def start(command, **more):
        confined = [SETPRIV, "--no-new-privs", "--bounding-set=-all,+setuid,+setgid,+sys_chroot", CHROOT]
        return subprocess.Popen(
            [*confined, f"--userspec={user}", "--groups=", made, *command],
            env=environment, stdin=subprocess.DEVNULL, text=True, **more,
        )

    def ask(*command):
        process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    check = dockerfile.command(dockerfile.one_of(IMAGE, "HEALTHCHECK").partition(" CMD ")[2])

    def until_healthy(gateway):
        deadline = time.monotonic() + 20
        while ask(*check)[0] != 0:
            assert gateway.poll() is None, "the gateway does not start"
            assert time.monotonic() < deadline, "it does not get healthy"

    code, _, err = ask(*check)
    assert code == 1, f"healthy without a gateway? {code} {err}"
    gateway = start([*entry, *dockerfile.command(dockerfile.one_of(IMAGE, "CMD"))])
    until_healthy(gateway)
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    assert re.search(r"^Uid:\s+65532", status, re.M), status
    assert re.search(r"^CapEff:\s+0+$", status, re.M), status
    code, token, err = ask(*entry, "acquire", "deploy", "--ttl", "10m")
    assert code == 0, err
    # The gateway is killed, so that only data on the volume is found afterwards.
    gateway.send_signal(signal.SIGKILL)
    gateway.wait()
    gateway = start([*entry, "serve"])
    until_healthy(gateway)
    code, out, err = ask(*entry, "acquire", "deploy", "--json")
    assert code == 100 and json.loads(out)["code"] == "locked", (code, out, err)
    environment["LATCHGATE_TOKEN"] = token.strip()
    assert ask(*entry, "release", "deploy")[0] == 0
    gateway.send_signal(signal.SIGTERM)
    assert gateway.wait(timeout=20) == 0
    say("the image serves as nobody on a read-only root, is healthy, and keeps its leases on its volume")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", root, toolchain]:
            build(Path(root).resolve(), toolchain)
        case ["serve", root]:
            serve(Path(root).resolve())
