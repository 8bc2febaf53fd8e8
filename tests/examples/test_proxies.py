"""What docs/names.md says about proxies: what nginx, Caddy and HAProxy make of a lock name with a slash in a URL."""

import json
import os
import re
import subprocess
import unittest

from gateway import PROGRAM, ROOT, Gateway
from proxy import Proxy, Recorder

# Each passes everything on to a gateway whose address takes the place of GATEWAY.
NGINX = "server { listen 127.0.0.1:{port}; %s }"
HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 75s
    timeout server 75s
frontend locks
    bind 127.0.0.1:{port}
    %s
    default_backend gateways
backend gateways
    server a GATEWAY
"""
CADDY = "{\n admin off\n}\nhttp://127.0.0.1:{port} {\n %s\n}\n"
# Those that leave the path as it is, also where they take a prefix away.
UNCHANGED = {
    "nginx": [
        ("", NGINX % "location / { proxy_pass http://GATEWAY; }"),
    ],
    "haproxy": [
        ("", HAPROXY % ""),
        ("/x", HAPROXY % r"http-request replace-path /x(/.*) \1"),
    ],
    "caddy": [
        ("", CADDY % "reverse_proxy GATEWAY"),
        ("/x", CADDY % "handle_path /x/* {\n reverse_proxy GATEWAY\n }"),
    ],
}
JSON = {"Content-Type": "application/json"}
DECODES = ("", NGINX % "location / { proxy_pass http://GATEWAY/; }")


def section():
    """The section of the page, and the rows of its table: the cells in backticks, and the statuses."""
    text = (ROOT / "docs" / "names.md").read_text().partition("\n## Behind a proxy\n")[2]
    text = re.split(r"(?m)^## ", text)[0]
    return text, re.findall(r"(?m)^\| `(\S+)` \| (\d+) \| `(\S+)` \| (\d+) \|", text)


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = Gateway()
        cls.addClassCleanup(cls.gateway.end)
        cls.recorder = Recorder(cls.gateway.url.removeprefix("http://"))
        cls.addClassCleanup(cls.recorder.end)

    def proxies(self, kinds):
        """Each proxy, and the prefix of the gateway's paths there."""
        for kind, settings in kinds.items():
            for prefix, config in settings:
                proxy = Proxy(kind, config.replace("GATEWAY", f"127.0.0.1:{self.recorder.port}"))
                self.addCleanup(proxy.end)
                yield f"{kind} {prefix}", proxy, prefix

    def check(self, proxy, prefix, target, arrives, answer):
        status, _, _ = proxy.send("GET", f"{prefix}/locks/{target}")
        self.assertEqual((self.recorder.seen[-1][1], status), (arrives, answer), target)

    def test_what_arrives_and_what_is_answered(self):
        text, rows = section()
        self.assertGreaterEqual(len(rows), 6, text)
        for name, proxy, prefix in self.proxies(UNCHANGED):
            for target, answer, _, _ in rows:
                with self.subTest(proxy=name, target=target):
                    self.check(proxy, prefix, target, f"/locks/{target}", int(answer))
        for _, proxy, prefix in self.proxies({"nginx": [DECODES]}):
            for target, _, arrives, answer in rows:
                with self.subTest(proxy="with a URI", target=target):
                    self.check(proxy, prefix, target, arrives, int(answer))

    def test_names_in_a_body_and_in_a_query_arrive_through_each_of_them(self):
        kinds = {**UNCHANGED, "nginx": [*UNCHANGED["nginx"], DECODES]}
        names = ["acme/db", "acme/web"]
        for which, proxy, prefix in self.proxies(kinds):
            with self.subTest(proxy=which):
                status, _, read = proxy.send("POST", f"{prefix}/locks", json.dumps({"names": names}), JSON)
                lease = json.loads(read)
                self.assertEqual((status, [one["name"] for one in lease["leases"]]), (201, names))
                status, _, read = proxy.send("GET", f"{prefix}/locks?prefix=acme/")
                self.assertEqual(sorted(one["name"] for one in json.loads(read)["locks"]), names)
                token = {"Lock-Token": lease["token"]}
                for method in ("PUT", "DELETE"):
                    status, _, read = proxy.send(method, f"{prefix}/locks?names={','.join(names)}", headers=token)
                    self.assertLess(status, 300, read)

    def test_the_commands_need_no_escaping(self):
        for which, proxy, prefix in self.proxies(UNCHANGED):
            with self.subTest(proxy=which):
                url = f"http://127.0.0.1:{proxy.port}{prefix}"
                ran = subprocess.run(
                    [PROGRAM, "run", "acme/web", "--", "true"], env={"PATH": os.environ["PATH"], "LATCHGATE_URL": url},
                    capture_output=True, text=True, timeout=30,
                )
                self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
