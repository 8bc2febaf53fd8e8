"""The recipes of examples/edge, in nginx, Caddy and HAProxy: a holder that was paused for longer than its lease writes
nothing any more, and without the check it tears what others have written."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import edge
from edge import HALVES, put
from gateway import PROGRAM, ROOT, Gateway, until
from proxy import Proxy, Recorder, changed
from redis_server import Redis
from test_documents import blocks

RECIPES = ROOT / "examples" / "edge"
# A server for files that asks nobody.
FILES = """
server {
    listen 127.0.0.1:{port};
    location / { root %s; dav_methods PUT; create_full_put_path on; client_max_body_size 100m; }
}
"""
# Of the holder that is paused.
TTL_MS = 500


class Recipe:
    """The cases of every recipe. A recipe says how it is set up, how its check is left out, what a late body is
    answered, and what a write without a number, or with a gateway that is silent or away."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="latchgate-edge-")
        self.addCleanup(directory.cleanup)
        self.home = Path(directory.name)
        self.home.chmod(0o755)
        self.files = self.home / "files"
        self.files.mkdir()
        self.redis = self.ended(Redis())
        self.gateway = self.ended(Gateway(
            keys={"jobs": ["--acquire", "*", "--view", "*"], "edge": ["--check", "*"]}, store=self.redis.url,
        ))

    def ended(self, server):
        self.addCleanup(server.end)
        return server

    def edge(self, checked=True, for_ms=10_000, changes=(), gateway=None, origin=None):
        """The proxy with this recipe, as it is written, or without the lines that ask for the check."""
        self.for_ms = {"for_ms=10000": f"for_ms={for_ms}"}
        text = changed((RECIPES / self.FILE).read_text(), dict(changes))
        if not checked:
            text = self.unchecked(text)
        asked = gateway or self.gateway.url.removeprefix("http://")
        origin = origin or self.ended(Proxy("nginx", FILES % self.home)).port
        return self.ended(self.proxy(text, asked, origin))

    def lease(self, lock="report", **body):
        return self.gateway.acquire(lock, **{"ttl_ms": 60_000, **body})

    def read(self, lock):
        return [(self.files / lock / half).read_text() for half in HALVES]

    def written(self):
        return sorted(str(path.relative_to(self.files)) for path in self.files.rglob("*") if path.is_file())

    def lane(self, proxy, lock, rounds, outcomes):
        """One holder that pauses itself in each round, and one that writes meanwhile."""
        holder = subprocess.Popen(
            [sys.executable, edge.__file__, self.gateway.url.removeprefix("http://"), self.gateway.keys["jobs"],
             str(proxy.port), lock, str(rounds), str(TTL_MS)],
            stdout=subprocess.PIPE, text=True,
        )
        try:
            for number in range(rounds):
                assert holder.stdout.readline() == "half\n"
                os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
                lease = self.lease(lock, wait_ms=50_000)
                text = f"of the next holder, {number}"
                wrote = [put(proxy.port, lock, half, text, lease["fencing_token"]) for half in HALVES]
                holder.send_signal(signal.SIGCONT)
                late = int(holder.stdout.readline())
                outcomes.append((max(wrote) < 300, late, self.read(lock) == [text, text]))
                self.gateway.call("DELETE", f"/locks/{lock}", headers={"Lock-Token": lease["token"]})
            assert holder.wait(30) == 0
        finally:
            holder.kill()
            holder.wait()
            holder.stdout.close()

    def rounds(self, proxy, rounds, lanes):
        outcomes = []
        threads = [
            threading.Thread(target=self.lane, args=(proxy, f"report-{lane}", rounds // lanes, outcomes), daemon=True)
            for lane in range(lanes)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 100
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        self.assertEqual(len(outcomes), rounds)
        return outcomes

    def test_whoever_was_paused_for_too_long_is_refused_each_time(self):
        outcomes = self.rounds(self.edge(for_ms=100), 200, lanes=20)
        self.assertEqual(set(outcomes), {(True, 403, True)})

    def test_without_the_check_the_file_is_torn(self):
        outcomes = self.rounds(self.edge(checked=False), 8, lanes=4)
        self.assertTrue(all(wrote and late < 300 and not whole for wrote, late, whole in outcomes), outcomes)

    def test_a_body_whose_end_comes_after_the_lease_is_not_written(self):
        proxy = self.edge(for_ms=1_500, changes=self.IN_TIME)
        late = self.lease(ttl_ms=4_000)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
            head = f"PUT /files/report/one HTTP/1.1\r\nHost: x\r\nFencing-Token: {late['fencing_token']}\r\nContent-Length: 8\r\n\r\n"
            connection.sendall(f"{head}late".encode())
            lease = self.lease(wait_ms=50_000)
            self.assertLess(put(proxy.port, "report", "one", "next", lease["fencing_token"]), 300)
            connection.sendall(b"late")
            self.assertRegex(connection.recv(1_000), self.TOO_LATE)
        self.assertEqual(self.written(), ["report/one"])
        self.assertEqual((self.files / "report" / "one").read_text(), "next")

    def test_a_lease_that_may_end_on_the_way_is_refused_and_a_long_one_is_not(self):
        proxy = self.edge()
        short = self.lease("short", ttl_ms=9_000)
        self.assertEqual(put(proxy.port, "short", "one", "x", short["fencing_token"]), 403)
        fence = self.lease()["fencing_token"]
        self.assertLess(put(proxy.port, "report", "one", "x" * 10_000, fence), 300)
        self.assertEqual(put(proxy.port, "report", "two", "x" * 20_000, fence) < 300, self.ANY_SIZE)
        self.assertEqual(self.written(), ["report/one", "report/two"][: 1 + self.ANY_SIZE])
        # Whoever only reads needs no lease.
        status, _, read = proxy.send("GET", "/files/report/one")
        self.assertEqual((status, len(read)), (200, 10_000))

    def test_who_has_no_living_lease_of_this_lock_writes_nothing(self):
        proxy = self.edge()
        lease, other = self.lease(), self.lease("other")
        for fence, expected in ((None, self.UNNUMBERED), ("x", self.UNNUMBERED), ("", self.UNNUMBERED), (1, 403), (other["fencing_token"], 403)):
            self.assertEqual(put(proxy.port, "report", "one", "x", fence), expected, fence)
        self.gateway.call("DELETE", "/locks/report", headers={"Lock-Token": lease["token"]})
        self.assertEqual(put(proxy.port, "report", "one", "x", lease["fencing_token"]), 403)
        self.assertEqual(self.written(), [])

    def test_no_spelling_of_a_path_writes_what_another_lock_guards(self):
        proxy = self.edge()
        fence = self.lease("mine")["fencing_token"]
        self.lease("theirs")
        (self.files / "theirs").mkdir()
        for path in (
            "/files/mine/../theirs/x", "/files/mine%2F..%2Ftheirs/x", "/files/mine/..%2Ftheirs%2Fx", "/files/theirs/x?/files/mine/x",
            "/files/theirs/x#/files/mine/x", "/files//theirs/x", "//files/theirs/x", "/files/theirs//x", "/files/./theirs/x",
            "/files/%74heirs/x", "/files/theirs%2Fx", "/files/mine%5C..%5Ctheirs/x", "/files/mine/..%5Ctheirs%5Cx", "/files/mine/%2e%2e/theirs/x",
            "/files/mine%252F..%252Ftheirs/x", "/files/theirs/x%00/files/mine/x", "/files/theirs;/files/mine/x", "/files/mine/x/../../theirs/x",
            "/files/x", "/files/.mine/x", "http://x/files/theirs/x", "/FILES/theirs/x", "/files/mine/.theirs", "/files/theirs/x/",
        ):
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.assertGreaterEqual(put(proxy.port, None, None, "x", fence, path), 400, path)
        self.assertEqual(self.written(), [])

    def test_while_nobody_can_say_who_holds_it_nothing_is_written(self):
        proxy = self.edge()
        fence = self.lease()["fencing_token"]
        self.redis.freeze()
        # A slow gateway says so later than the proxy waits.
        self.assertIn(put(proxy.port, "report", "one", "x", fence), (503, self.SILENT))
        self.redis.thaw()
        until("it is served again", lambda: put(proxy.port, "report", "two", "x", fence) < 300)
        self.gateway.freeze()
        self.assertEqual(put(proxy.port, "report", "one", "x", fence), self.SILENT)
        self.gateway.thaw()
        until("it is served again", lambda: put(proxy.port, "report", "two", "x", fence) < 300)
        self.gateway.stop()
        self.assertEqual(put(proxy.port, "report", "one", "x", fence), self.AWAY)
        self.assertEqual(self.written(), ["report/two"])

    def test_the_gateway_sees_its_own_key_and_no_secret_of_the_client(self):
        gateway, origin = self.ended(Recorder()), self.ended(Recorder())
        proxy = self.edge(gateway=f"127.0.0.1:{gateway.port}", origin=origin.port)
        self.assertLess(put(proxy.port, "report", "one", "x", 7), 300)
        [(method, path, headers, body)] = gateway.seen
        self.assertEqual((method, path, body), ("GET", "/locks/report/check?for_ms=10000", b""))
        self.assertEqual(headers.get_all("Fencing-Token"), ["7"])
        self.assertEqual(headers.get_all("Authorization"), [f"Bearer {self.gateway.keys['edge']}"])
        self.assertNotIn("Cookie", headers)
        # The server that is written to has accounts of its own, and sees no key of the gateway.
        for _, path, headers, body in origin.seen:
            self.assertEqual((path, body), ("/files/report/one", b"x"))
            self.assertEqual(headers.get_all("Authorization"), ["Bearer of-the-client"])
        self.assertEqual(len(origin.seen), self.HAS_ORIGIN)


class Nginx(Recipe, unittest.TestCase):
    """Stores the files itself."""

    FILE, IN_TIME, TOO_LATE = "nginx.conf", {}, rb"HTTP/1.1 403 "
    ANY_SIZE, HAS_ORIGIN = True, False
    UNNUMBERED, SILENT, AWAY = 503, 503, 503

    def unchecked(self, text):
        return changed(text, {"auth_request /check;": ""})

    def proxy(self, text, gateway, _):
        key = self.home / "key"
        key.write_text(f'proxy_set_header Authorization "Bearer {self.gateway.keys["edge"]}";\n')
        return Proxy("nginx", changed(text, {
            **self.for_ms, "listen 8080": "listen 127.0.0.1:{port}", "unix:/run/": "unix:{home}/", "root /srv": f"root {self.home}",
            "127.0.0.1:7420": gateway, "/etc/nginx/latchgate-key": str(key),
        }))

    def test_the_writer_of_the_page_writes_both_files(self):
        [block] = [text for language, text in blocks("examples/edge/README.md") if language == "sh"]
        proxy = self.edge()
        for file in ("one.txt", "two.txt"):
            (self.home / file).write_text(file)
        ran = subprocess.run(
            ["sh", "-ec", changed(block, {"localhost:8080": f"localhost:{proxy.port}"})], cwd=self.home, capture_output=True, text=True,
            env={
                "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "LATCHGATE_URL": self.gateway.url,
                "LATCHGATE_KEY": self.gateway.keys["jobs"],
            },
        )
        self.assertEqual((ran.returncode, self.written()), (0, ["report/one.txt", "report/two.txt"]), ran.stderr)
        # Programs that read run as other users.
        modes = [(self.files / path).stat().st_mode & 0o777 for path in ("report", "report/one.txt", "report/two.txt")]
        self.assertEqual(modes, [0o755, 0o644, 0o644])


class Caddy(Recipe, unittest.TestCase):
    FILE, IN_TIME, TOO_LATE = "Caddyfile", {"read_timeout 5s": "read_timeout 1s"}, rb"HTTP/1.1 502 "
    ANY_SIZE, HAS_ORIGIN = True, True
    UNNUMBERED, SILENT, AWAY = 400, 504, 502

    def unchecked(self, text):
        return changed(text, {"forward_auth @write 127": "@no method NONE\n\t\tforward_auth @no 127"})

    def proxy(self, text, gateway, origin):
        return Proxy("caddy", "{\n\tadmin off\n}\n" + changed(text, {
            **self.for_ms, ":8080 {": ":{port} {\n\tbind 127.0.0.1",
            "127.0.0.1:7420": gateway, "127.0.0.1:9000": f"127.0.0.1:{origin}",
        }), LATCHGATE_KEY=self.gateway.keys["edge"])


class HAProxy(Recipe, unittest.TestCase):
    FILE, IN_TIME, TOO_LATE = "haproxy.cfg", {}, rb"HTTP/1.1 403 "
    ANY_SIZE, HAS_ORIGIN = False, True
    UNNUMBERED, SILENT, AWAY = 400, 503, 503

    def unchecked(self, text):
        return changed(text, {"lua.latchgate_check unless read": "set-var(txn.check) int(204)"})

    def proxy(self, text, gateway, origin):
        script = self.home / "latchgate.lua"
        script.write_text(changed((RECIPES / "latchgate.lua").read_text(), {**self.for_ms, "127.0.0.1:7420": gateway}))
        return Proxy("haproxy", changed(text, {
            "bind :8080": "bind 127.0.0.1:{port}", "/etc/haproxy/latchgate.lua": str(script),
            "127.0.0.1:9000": f"127.0.0.1:{origin}",
        }), LATCHGATE_KEY=self.gateway.keys["edge"])

    def test_a_script_that_fails_lets_nothing_pass(self):
        text = changed((RECIPES / "latchgate.lua").read_text(), {"answer.status)": "answer.status.missing.missing)"})
        broken = self.home / "broken.lua"
        broken.write_text(text)
        proxy = self.edge()
        config = changed((proxy.home / "config").read_text(), {str(self.home / "latchgate.lua"): str(broken), str(proxy.port): "{port}"})
        other = self.ended(Proxy("haproxy", config, LATCHGATE_KEY="none"))
        self.assertEqual(put(other.port, "report", "one", "x", 7), 503)
        self.assertEqual(self.written(), [])


if __name__ == "__main__":
    unittest.main()
