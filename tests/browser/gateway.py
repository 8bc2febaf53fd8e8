"""A gateway of a test's own, as a process that can be stopped, frozen and started again; and what callers do."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlparse

import dispositions

# Of everything that the tests start, for which they all need a gateway.
dispositions.default_in_children()

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("LATCHGATE_PROGRAM") or ROOT / "target" / "debug" / "latchgate")
DEADLINE = 60
# Of sessions: they outlive the process, as they do where several gateways share one.
SECRET = "0123456789abcdef" * 4


def until(what, ask, deadline=DEADLINE):
    """Asks again and again until there is an answer that is true; fails with `what` after the deadline."""
    end = time.monotonic() + deadline
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {what}")
        time.sleep(0.05)


def lock(name, verb=None):
    """The path of a lock, or of what can be done with it."""
    path = f"/locks/{quote(name, safe=':@~')}"
    return f"{path}/{verb}" if verb else path


class Gateway:
    """`keys` are those of the keys file, by name: the arguments of `latchgate key new`."""

    def __init__(self, keys=None, base_path="", environment=None, store=None, secret=SECRET):
        self._directory = tempfile.TemporaryDirectory(prefix="latchgate-browser-")
        self.home = Path(self._directory.name)
        self._environment = {"PATH": os.environ["PATH"], **(environment or {})}
        if base_path:
            self._environment["LATCHGATE_HTTP_BASE_PATH"] = base_path
        self.base_path = base_path
        self.keys = {}
        self._tables = {}
        for name, arguments in (keys or {}).items():
            self._mint(name, arguments)
        if keys:
            self._environment["LATCHGATE_AUTH_KEYS_FILE"] = str(self.home / "keys.toml")
            self._environment["LATCHGATE_AUTH_SESSION_SECRET_FILE"] = self._secret(secret)
            self._write_keys()
        self._store = store or f"embedded:{self.home / 'data'}"
        self._listen = "127.0.0.1:0"
        self._process = None
        self.start()

    def _secret(self, secret):
        path = self.home / "session-secret"
        path.write_text(secret)
        path.chmod(0o600)
        return str(path)

    def _mint(self, name, arguments):
        made = subprocess.run(
            [PROGRAM, "key", "new", "--json", "--name", name, *arguments],
            capture_output=True, text=True, check=True,
        )
        said = json.loads(made.stdout)
        self.keys[name] = said["key"]
        self._tables[name] = said["toml"]

    def _write_keys(self):
        new = self.home / "keys.new"
        new.write_text("\n".join(self._tables.values()))
        new.rename(self.home / "keys.toml")

    def revoke(self, name):
        """Takes a key out of the file, and has the file read."""
        del self._tables[name]
        self._write_keys()
        self._process.send_signal(signal.SIGHUP)

    def permit(self, name, **lines):
        """Changes what a key may do: `view=["team:"]`, `metrics=False`. And has the file read."""
        for what, value in lines.items():
            said = f"{what.rstrip('_')} = {json.dumps(value)}"
            self._tables[name], found = re.subn(rf"(?m)^{what.rstrip('_')} = .*$", said, self._tables[name])
            assert found == 1, self._tables[name]
        self._write_keys()
        self._process.send_signal(signal.SIGHUP)

    # The process

    def start(self):
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "serve", "--listen", self._listen, "--store", self._store],
                env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True,
            )
        for line in self._process.stdout:
            found = re.search(r"http://(127\.0\.0\.1:\d+)", line)
            if found:
                break
        else:
            raise AssertionError(f"the gateway did not start: {(self.home / 'log').read_text()}")
        self._listen = found[1]
        # The rest is read, or the gateway would wait for somebody to.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()
        self.url = f"http://{self._listen}{self.base_path}"

    def stop(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def shut_down(self):
        """Stops it as a service manager does."""
        self._process.terminate()
        self._process.wait(DEADLINE)
        self._process.stdout.close()

    @property
    def pid(self):
        return self._process.pid

    def freeze(self):
        self._process.send_signal(signal.SIGSTOP)
        # All threads have stopped then: until that, one of them may still answer.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def end(self):
        self.thaw()
        self.stop()
        self._directory.cleanup()

    # What callers do

    def call(self, method, path, body=None, key=None, headers=None, timeout=70):
        """A request: (status, JSON)."""
        to = urlparse(self.url)
        headers = dict(headers or {})
        key = key or next(iter(self.keys), None)
        if key and "Authorization" not in headers:
            headers["Authorization"] = f"Bearer {self.keys[key]}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(to.hostname, to.port, timeout=timeout)
        try:
            connection.request(method, self.base_path + path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            read = answer.read()
            return answer.status, json.loads(read) if read else None
        finally:
            connection.close()

    def acquire(self, name, key=None, **body):
        """A lease; whoever asks here finds the lock free."""
        status, lease = self.call("POST", lock(name), body, key)
        assert status == 201, lease
        return lease

    def wait_for(self, name, owner, wait_ms=40_000):
        """Somebody who stands in the queue from now on: a thread whose `lease` comes when it is granted."""
        waiter = Waiter(self, name, owner, wait_ms)
        waiter.start()
        until(f"{owner} waits for {name}", lambda: self.waits(name, owner))
        return waiter

    def waits(self, name, owner):
        _, seen = self.call("GET", lock(name))
        return any(waiter["owner"] == owner for waiter in seen["waiters"])


class Waiter(threading.Thread):
    """Somebody who waits for a lock."""

    def __init__(self, gateway, name, owner, wait_ms):
        super().__init__(daemon=True)
        self.lease = None
        self._ask = lambda: gateway.call("POST", lock(name), {"wait_ms": wait_ms, "owner": owner})

    def run(self):
        try:
            status, answer = self._ask()
            self.lease = answer if status == 201 else None
        except (OSError, http.client.HTTPException):
            pass  # The gateway was stopped.
