"""Installs a release in a Debian 12 as docs/deploy.md says, and runs the gateway as its unit says.

`installed.py RELEASE DEBIAN`, as root, in namespaces of its own for mounts and network: `scripts/release-test`
calls it. There is no systemd in that Debian, so what it would do for the unit is done here.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/deploy.md").read_text()
CONFIG, ENVIRONMENT = "etc/latchgate/latchgate.toml", "etc/latchgate/environment"
ENABLED = "etc/systemd/system/multi-user.target.wants/latchgate.service"
UNITS = {"package": "usr/lib/systemd/system/latchgate.service", "archive": "etc/systemd/system/latchgate.service"}
# A user id of the range that systemd uses for services with DynamicUser.
USER = 61184
# An absolute path, because the command is started with another PATH.
CHROOT = shutil.which("chroot")
# Files that record an installation, and are not part of what was installed.
NOTES = re.compile(r"(var/(lib/dpkg|lib/apt|log|cache)|run|tmp|proc|release)(/|$)|etc/ld.so.cache$")


def say(text):
    print(f"release-test: {text}", flush=True)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def shell_of(heading):
    """The first block of commands below a heading of the page."""
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.M | re.S)[1]
    return re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S)[1]


class Machine:
    """A Debian as it was made, in a layer of its own, with the files of the release in /release."""

    def __init__(self, debian, release, systemd=False):
        self.layer = Path(tempfile.mkdtemp(prefix="lg-"))
        mount("-t", "tmpfs", "tmpfs", self.layer)
        self.root = self.layer / "m"
        for name in ("u", "w", "m"):
            (self.layer / name).mkdir(mode=0o755)
        layers = f"lowerdir={debian},upperdir={self.layer}/u,workdir={self.layer}/w"
        mount("-t", "overlay", "overlay", "-o", layers, self.root)
        (self.root / "release").mkdir()
        mount("--bind", "-o", "ro", release, self.root / "release")
        if systemd:
            return
        mount("-t", "proc", "proc", self.root / "proc")
        # Records the calls of systemctl; all other steps of the page are carried out.
        self.stand_in = self.root / "usr/local/bin/systemctl"
        self.stand_in.write_text('#!/bin/sh\necho "systemctl $*" >>/tmp/systemctl\n')
        self.stand_in.chmod(0o755)
        self.before = self.files()

    def close(self):
        subprocess.run(["umount", "--recursive", self.layer], check=True)
        self.layer.rmdir()

    def path(self, name):
        return self.root / name

    def files(self):
        found = set()
        for folder, folders, names in os.walk(self.root):
            here = os.path.relpath(folder, self.root)
            folders[:] = [name for name in folders if not NOTES.match(os.path.normpath(f"{here}/{name}"))]
            found |= {os.path.normpath(f"{here}/{name}") for name in [*folders, *names]}
        return {name for name in found if not NOTES.match(name)}

    def shell(self, script):
        """Runs a script there as root, which must succeed."""
        ran = subprocess.run(
            [CHROOT, self.root, "/bin/sh", "-euc", script],
            env={
                "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                "DEBIAN_FRONTEND": "noninteractive",
            },
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        )
        if ran.returncode != 0:
            sys.exit(f"{ran.stdout}\nrelease-test: this fails: {script}")
        return ran.stdout


class Unit:
    """The service as systemd would start it."""

    def __init__(self, machine, file):
        self.machine = machine
        self.settings = {}
        for line in machine.path(file).read_text().splitlines():
            if line and line[0] not in "#[":
                name, _, value = line.partition("=")
                self.settings.setdefault(name, []).append(value)
        self.process = None

    def one(self, name):
        (value,) = self.settings[name]
        return value

    def environment(self):
        variables = list(self.settings["Environment"])
        file = self.machine.path(self.one("EnvironmentFile").lstrip("-/"))
        if file.exists():
            variables += [line for line in file.read_text().splitlines() if line and line[0] != "#"]
        return dict(variable.split("=", 1) for variable in variables)

    def start(self):
        """Starts it, and waits until it says that it serves; gives the exit code if it ends before."""
        assert self.one("DynamicUser") == "yes" and self.one("Type") == "notify"
        # systemd shows the service only its own directory, whatever the mode of `private` is.
        private, link = self.machine.path("var/lib/private"), self.machine.path("var/lib") / self.one("StateDirectory")
        private.mkdir(mode=0o755, exist_ok=True)
        state = private / link.name
        state.mkdir(mode=int(self.one("StateDirectoryMode"), 8), exist_ok=True)
        os.chown(state, USER, USER)
        if not link.is_symlink():
            link.symlink_to(f"private/{link.name}")
        told = self.machine.path("run/notify")
        told.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(told))
            told.chmod(0o666)
            notices.settimeout(0.2)
            command = f"cd {self.one('WorkingDirectory')}; umask {self.one('UMask')}; exec {self.one('ExecStart')}"
            self.process = subprocess.Popen(
                [CHROOT, f"--userspec={USER}:{USER}", "--groups=", self.machine.root, "/bin/sh", "-c", command],
                env={"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": "/run/notify", **self.environment()},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                try:
                    if "READY=1" in notices.recv(4096).decode().splitlines():
                        return None
                except TimeoutError:
                    if self.process.poll() is not None:
                        return self.process.returncode
        sys.exit("release-test: it does not say that it serves")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=int(self.one("TimeoutStopSec")))
        assert self.process.returncode == 0, out

    def ask(self, *command, **environment):
        """Runs a command of the program as nobody, who is told no more than is given."""
        ran = subprocess.run(
            [CHROOT, "--userspec=65534:65534", "--groups=", self.machine.root, "/usr/bin/latchgate", *command],
            env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=60,
        )
        return ran.returncode, ran.stdout, ran.stderr


def curl(*arguments):
    ran = subprocess.run(["curl", "--silent", "--show-error", *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def take_and_give_back(unit):
    """A lock through its life, by curl and by the commands."""
    held = json.loads(curl("--json", '{"ttl_ms": 60000, "owner": "curl"}', "localhost:7420/locks/deploy"))
    code, out, err = unit.ask("inspect", "deploy")
    assert code == 0 and "curl" in out, (code, out, err)
    code, out, _ = unit.ask("acquire", "deploy", "--json")
    assert code == 100 and json.loads(out)["code"] == "locked", (code, out)
    token = f"Lock-Token: {held['token']}"
    given_back = curl("--write-out", "%{http_code}", "-X", "DELETE", "-H", token, "localhost:7420/locks/deploy")
    assert given_back == "204", given_back
    code, out, err = unit.ask("run", "deploy", "--", "/bin/echo", "locked")
    assert code == 0 and out == "locked\n", (code, out, err)


def wrong_configuration(unit):
    """Is refused with the code after which systemd does not try again."""
    file = unit.machine.path(CONFIG)
    right = file.read_text()
    file.write_text(right + '\nlistn = "127.0.0.1:7420"\n')
    assert str(unit.start()) == unit.one("RestartPreventExitStatus"), "a wrong configuration is served"
    assert "listn" in unit.process.stdout.read()
    file.write_text(right)


def newer(machine, package):
    """The same package as a later version, with another configuration in it. Its name there."""
    made = machine.path("tmp/newer")
    subprocess.run(["dpkg-deb", "--raw-extract", package, made], check=True)
    control = made / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*", "Version: 9999", control.read_text(), flags=re.M))
    (made / CONFIG).write_text((made / CONFIG).read_text() + "# Of the later version.\n")
    subprocess.run(["dpkg-deb", "--build", made, machine.path("tmp/newer.deb")], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(made)
    return "/tmp/newer.deb"


def the_package(machine, package):
    said = machine.shell("cd /release\n" + shell_of("From the Debian package"))
    assert package.name in shell_of("From the Debian package"), "the page names another file"
    # The page is for a machine with systemd: systemctl must not be called unless systemd runs.
    assert not machine.path("tmp/systemctl").exists(), said
    assert machine.path(UNITS["package"]).read_text() == (REPOSITORY / "packaging/latchgate.service").read_text()
    assert machine.path(CONFIG).read_text() == (REPOSITORY / "config/embedded.toml").read_text()
    assert machine.path(ENABLED).is_symlink(), "it is not enabled"
    assert machine.shell("dpkg --verify latchgate") == ""
    assert CONFIG in machine.shell("dpkg-query --showformat '${Conffiles}' --show latchgate")
    assert machine.path("usr/share/doc/latchgate/docs/deploy.md").read_text() == PAGE
    size = machine.shell("dpkg-query --showformat '${Installed-Size}' --show latchgate")
    say(f"{package.name} is installed ({int(size):,} KiB)")

    unit = Unit(machine, UNITS["package"])
    wrong_configuration(unit)
    # The service has the user id that the unit gave it.
    assert unit.start() is None
    status = Path(f"/proc/{unit.process.pid}/status").read_text()
    assert re.search(rf"^Uid:\s+{USER}\s", status, re.M), status
    take_and_give_back(unit)
    unit.stop()
    say("its unit starts with the configuration that came with it; a wrong one is refused")

    # The waits of a drain are not tested here.
    machine.shell("install -m 0600 /dev/null /etc/latchgate/environment")
    machine.path(ENVIRONMENT).write_text("LATCHGATE_SHUTDOWN_GRACE_MS=0\n")
    edited = machine.path(CONFIG).read_text() + '\nlisten = "127.0.0.1:7421"\n'
    machine.path(CONFIG).write_text(edited)
    assert unit.start() is None
    url = {"LATCHGATE_URL": "http://127.0.0.1:7421"}
    code, token, err = unit.ask("acquire", "migration", "--ttl", "1h", **url)
    assert code == 0, err
    unit.stop()
    machine.shell(f"dpkg --install /release/{package.name}")
    assert machine.path(CONFIG).read_text() == edited
    # Runs like an unattended upgrade, without a person to ask.
    machine.shell(f"dpkg --force-confdef --force-confold --install {newer(machine, package)}")
    assert machine.path(CONFIG).read_text() == edited
    assert "later version" in machine.path(f"{CONFIG}.dpkg-dist").read_text()
    assert unit.start() is None
    code, out, err = unit.ask("acquire", "migration", "--json", **url)
    assert code == 100, (code, out, err)
    code, _, err = unit.ask("release", "migration", LATCHGATE_TOKEN=token.strip(), **url)
    assert code == 0, err
    unit.stop()
    say("an upgrade keeps the configuration that was edited, and the locks")

    machine.shell("dpkg --remove latchgate")
    assert not machine.path("usr/bin/latchgate").exists() and not machine.path(UNITS["package"]).exists()
    assert machine.path(CONFIG).read_text() == edited and machine.path(ENVIRONMENT).exists()
    said = machine.shell("dpkg --purge latchgate")
    kept = "rm -rf /var/lib/private/latchgate /var/lib/latchgate"
    assert f"To delete them: {kept}" in said, said
    machine.shell(kept)
    left = machine.files() - machine.before - {"var/lib/private"}
    assert not left, f"these are left: {sorted(left)}"
    say("removed, it leaves its configuration; purged, its leases, as it says")


def the_archive(machine, archive):
    script = shell_of("From an archive")
    assert archive.name in script, "the page names another file"
    machine.shell("cp /release/SHA256SUMS /release/*.tar.gz /tmp\ncd /tmp\n" + script)
    asked = machine.path("tmp/systemctl").read_text().splitlines()
    assert asked == ["systemctl daemon-reload", "systemctl enable --now latchgate"], asked
    unit = Unit(machine, UNITS["archive"])
    assert unit.start() is None
    take_and_give_back(unit)
    unit.stop()
    say(f"{archive.name} is installed as the page says, and serves")


def main(release, debian):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    (package,) = release.glob("latchgate_*_amd64.deb")
    (archive,) = release.glob("latchgate-*-x86_64-unknown-linux-gnu.tar.gz")
    for test, file in ((the_package, package), (the_archive, archive)):
        machine = Machine(debian, release)
        test(machine, file)
        machine.close()


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
