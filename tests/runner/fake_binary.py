#!/usr/bin/env python3
"""Stands for a test binary: lists its tests and runs one of them as libtest does, or does what a test must not."""

import os
import pathlib
import signal
import subprocess
import sys
import time


def blue():
    pass


def default_signals():
    status = pathlib.Path("/proc/self/status").read_text()
    sets = {
        line.split(":")[0]: int(line.split()[1], 16)
        for line in status.splitlines()
        if line.startswith(("SigBlk", "SigIgn"))
    }
    # Only the signals that Python itself ignores are ignored.
    python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert sets["SigBlk"] == 0 and sets["SigIgn"] & ~python == 0, status


def red():
    raise AssertionError("what is red says why")


def abort():
    print("before the abort", flush=True)
    os.abort()


def segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves_at_once():
    os._exit(0)


def not_run():
    print("\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out", flush=True)
    os._exit(0)


def hang():
    print("waiting for what never comes", flush=True)
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pathlib.Path(os.environ["FAKE_STATE"], "sleeper").write_text(str(sleeper.pid))
    time.sleep(1000)


def leaves_a_process_behind():
    sleeper = subprocess.Popen(["sleep", "1000"])
    pathlib.Path(os.environ["FAKE_STATE"], "left").write_text(str(sleeper.pid))


def flaky():
    mark = pathlib.Path(os.environ["FAKE_STATE"], "flaky")
    if not mark.exists():
        mark.touch()
        raise AssertionError("red the first time")


TESTS = {
    f"fake::{it.__name__}": it
    for it in (blue, default_signals, red, abort, segfault, leaves_at_once, not_run, hang, leaves_a_process_behind, flaky)
}


def main():
    listed = os.environ.get("FAKE_TESTS", "").split()
    if "--list" in sys.argv:
        print("".join(f"fake::{name}: test\n" for name in listed), end="")
        return 0
    name = sys.argv[sys.argv.index("--exact") + 1]
    print("\nrunning 1 test", flush=True)
    try:
        TESTS[name]()
    except AssertionError as error:
        print(f"panicked: {error}\ntest {name} ... FAILED\n")
        print("test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out")
        return 101
    print(f"test {name} ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
