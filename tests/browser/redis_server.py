"""A Redis of a test's own, which can be frozen."""

import os
import signal
import socket
import subprocess
import tempfile

from gateway import until


class Redis:
    """On a free port, with nothing on the disk."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="latchgate-redis-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._directory.name],
            stdout=subprocess.DEVNULL,
        )
        until("Redis listens", self._listens)
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def command(self, *words):
        """The last line of a short reply."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            parts = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
            connection.sendall(f"*{len(words)}\r\n{parts}".encode())
            reply = connection.recv(1_000).decode()
            assert reply[0] in "+$:", reply
            return reply.strip().splitlines()[-1]

    def freeze(self):
        self._process.send_signal(signal.SIGSTOP)
        # All threads have stopped then: until that, one of them may still answer.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def end(self):
        self.thaw()
        self._process.kill()
        self._process.wait()
        self._directory.cleanup()
