"""Packs the GitHub action, and runs its tests in the oldest Node that a runner may start it with and in the newest one.

Usage: action.py [--tools DIR] [--program PATH] [TEST..]; `scripts/clients action` installs what it needs.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from js import ARCHITECTURE, NEWEST_NODE, RIG, ROOT, environment, output, program

ACTION = ROOT / "clients" / "github-action"
NODES = {"action-oldest": f"node-action-{ARCHITECTURE}/bin/node", "action-newest": NEWEST_NODE}


def run(name, node, action, arguments):
    began = time.monotonic()
    command = [sys.executable, str(RIG), "--program", arguments.program, "--", sys.executable, "-m", "unittest"]
    command += arguments.tests or ["test_action", "test_oidc", "test_identity"]
    done = subprocess.run(
        command, cwd=ACTION / "tests", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**environment(), "NODE": node, "ACTION": str(action), "PROGRAM": os.path.abspath(arguments.program)},
    )
    count = re.search(r"(?m)^Ran (\d+) test", done.stdout)
    green = done.returncode == 0 and count and count[1] != "0" and "skipped" not in done.stdout
    if not green:
        print(done.stdout)
    version = output([node, "--version"]).strip()
    told = f"{count[1]} tests" if count else "no tests"
    print(f"{name}: Node {version}: {told}, {'green' if green else 'RED'} after {time.monotonic() - began:.0f} s", flush=True)
    return green


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=Path, default=ROOT / "target" / "tools" / "clients")
    parser.add_argument("--program", default=str(ROOT / "target" / "debug" / "latchgate"))
    parser.add_argument("tests", nargs="*", metavar="TEST")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="latchgate-packed-") as home:
        action = Path(home) / "action"
        subprocess.run([ACTION / "pack", action], check=True)
        jobs = {name: (name, program(arguments.tools, path), action, arguments) for name, path in NODES.items()}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            green = dict(zip(jobs, pool.map(lambda job: run(*job), jobs.values())))
        # Once more, alone: what is green then is unstable.
        for name in [name for name in jobs if not green[name]]:
            print(f"once more: {name}")
            green[name] = run(*jobs[name])
            if green[name]:
                with open(os.environ.get("UNSTABLE", os.devnull), "a") as unstable:
                    unstable.write(f"clients {name}\n")
    return 0 if all(green.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
