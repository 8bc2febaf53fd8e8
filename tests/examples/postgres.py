"""A Postgres of a test's own."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


class Postgres:
    """On a free port, with nothing that survives it."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="latchgate-postgres-")
        home = Path(self._directory.name)
        # Debian has its programs on no path.
        found = [shutil.which("pg_ctl"), *sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))]
        self._control = next((path for path in found if path), None)
        assert self._control, "Postgres is missing: scripts/install postgresql"
        # Postgres refuses to run as root.
        self._as = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(home, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", "--reuid=postgres", f"--regid={user.pw_gid}", "--clear-groups"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._data = home / "data"
        self._run("initdb", "--options", "--no-sync --auth=trust --username=app")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={home} -c fsync=off"
        self._run("start", "--wait", "--log", home / "log", "--options", options)
        self.address = f"host=127.0.0.1 port={port} user=app dbname=postgres"

    def _run(self, command, *more):
        subprocess.run(
            [*self._as, self._control, command, "--pgdata", self._data, "--silent", *more],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )

    def end(self):
        self._run("stop", "--mode", "immediate")
        self._directory.cleanup()
