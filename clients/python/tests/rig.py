"""The rig of the tests: gateways, a proxy in front of them, and the faults that the proxy causes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[3]
SAY_WHERE = "import os, sys; print(os.environ['LATCHGATE_RIG'], flush=True); sys.stdin.read()"


class Rig:
    """A rig in a process of its own, which ends with this process."""

    def __init__(self) -> None:
        program = os.environ.get("LATCHGATE_PROGRAM", str(ROOT / "target" / "debug" / "latchgate"))
        rig = str(ROOT / "clients" / "rig" / "rig.py")
        # The rig runs on the machine's Python, whatever Python runs the tests.
        python = os.environ.get("RIG_PYTHON", sys.executable)
        self._process = subprocess.Popen(
            [python, rig, "--program", program, "--", python, "-c", SAY_WHERE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._url = self._process.stdout.readline().strip()
        assert self._url, "the rig did not start"
        urls = self.ask("GET", "/rig")
        self.a: str = urls["a"]
        self.b: str = urls["b"]
        self.proxy: str = urls["proxy"]
        self.nobody: str = urls["nobody"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=70) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def fault(self, kind: str, **more: Any) -> None:
        self.ask("POST", "/rig/fault", {"kind": kind, **more})

    def no_faults(self) -> None:
        self.ask("DELETE", "/rig/fault")

    def log(self, method: str = "", name: str = "") -> list[dict[str, Any]]:
        log: list[dict[str, Any]] = self.ask("GET", "/rig/log")
        return [it for it in log if it["method"].startswith(method) and name in it["path"] + json.dumps(it["body"])]

    def forget(self) -> None:
        self.ask("DELETE", "/rig/log")

    def to(self, which: str) -> None:
        self.ask("POST", "/rig/proxy", {"to": which})

    def gateway(self, which: str, do: str, **more: Any) -> None:
        self.ask("POST", "/rig/gateway", {"which": which, "do": do, **more})

    def reset(self) -> None:
        self.ask("POST", "/rig/reset")

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def until(condition: Callable[[], Any], within: float = 10, what: str = "it") -> Any:
    """Polls until a condition is true, and returns its value."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not happen within {within} s"
        time.sleep(0.02)
