"""Installs the Debian package on a Debian 12 that has booted, and lets systemd do what it is told.

`booted.py RELEASE DEBIAN`, as root, in a namespace of its own for mounts: `scripts/release-test` calls it. The
machine is a container of systemd-nspawn; `booted.sh` is what runs there.
"""

import os
import subprocess
import sys
from pathlib import Path

from installed import Machine, say

UNIT = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /booted.sh
ExecStopPost=/bin/systemctl poweroff --no-block
StandardOutput=file:/said
StandardError=file:/said
"""


def main(release, debian):
    machine = Machine(debian, release, systemd=True)
    machine.path("booted.sh").write_text((Path(__file__).parent / "booted.sh").read_text())
    machine.path("etc/systemd/system/booted.service").write_text(UNIT)
    wants = machine.path("etc/systemd/system/multi-user.target.wants")
    wants.mkdir(exist_ok=True)
    (wants / "booted.service").symlink_to("../booted.service")
    environment = dict(os.environ)
    # If this machine has cgroups of version 1, the container must have them as well.
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        environment["UNIFIED_CGROUP_HIERARCHY"] = "no"
    command = ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network"]
    ran = subprocess.run(
        [*command, "--console=pipe", f"--directory={machine.root}"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )
    said = machine.path("said").read_text() if machine.path("said").exists() else ran.stdout.decode(errors="replace")
    if not said.endswith("\nall good\n"):
        sys.exit(f"{said}\nrelease-test: this fails where systemd runs")
    machine.close()
    say("where systemd runs, the package starts the gateway, restarts it on an upgrade, and leaves it alone where it should")


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
