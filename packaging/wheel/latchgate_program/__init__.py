"""The program `latchgate`, and a gateway for a test run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["gateway", "program"]

# The shell outlives a test run that is killed: then its input ends, and it ends the gateway and removes the store.
_SCRIPT = """
folder=$(mktemp -d "${TMPDIR:-/tmp}/latchgate-test.XXXXXX") || exit 1
"$0" serve --listen 127.0.0.1:0 --store "embedded:$folder/store" 2>"$folder/log" &
gateway=$!
exec >&-
read -r _
kill -9 $gateway 2>/dev/null
{ wait $gateway; } 2>/dev/null
[ $? = 137 ] || cat "$folder/log" >&2
rm -rf "$folder"
"""


def program() -> str:
    """The path of the program."""
    return str(Path(__file__).with_name("latchgate"))


@contextmanager
def gateway() -> Iterator[str]:
    """A gateway on a free port of 127.0.0.1, with an empty store of its own: its address.

    The gateway ends with the block, and also if the process is killed.
    """
    # Settings of whoever runs the tests are for other gateways.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LATCHGATE_")}
    with subprocess.Popen(
        ["sh", "-c", _SCRIPT, program()],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            yield _address(shell)
        finally:
            # A line, because a forked process may keep the other end of the pipe open.
            shell.communicate("end\n")


def _address(shell: subprocess.Popen[str]) -> str:
    assert shell.stdout is not None
    for line in shell.stdout:
        found = re.search(r"listens on (http:\S+)", line)
        if found:
            return found[1]
    raise RuntimeError("the gateway did not start: the reason is on standard error")


def main() -> None:
    """The command `latchgate`: the program in the place of Python."""
    os.execv(program(), [program(), *sys.argv[1:]])
