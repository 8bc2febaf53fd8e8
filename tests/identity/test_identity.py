"""Programs exchange ID tokens of two issuers that others have written, at the real program."""

import json
import os
import re
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LATCHGATE_PROGRAM", ROOT / "target/debug/latchgate")
AUDIENCE = "https://locks.example.com"

KEYS = """
[[issuer]]
name = "i"
url = "{url}"
audience = "{audience}"

[[key]]
name = "ci"
issuer = "i"
claims = {{ {claims} }}
acquire = ["deploy:"]
view = ["*"]
owner = "{{sub}}"
"""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def call(method, url, body=None, headers=None, form=False):
    """The status, the headers and the JSON of an answer."""
    data = None
    headers = dict(headers or {})
    if body is not None:
        data = urllib.parse.urlencode(body).encode() if form else json.dumps(body).encode()
        headers["Content-Type"] = "application/x-www-form-urlencoded" if form else "application/json"
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
    try:
        answer = opener.open(request, timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    text = answer.read().decode()
    return answer.status, answer.headers, json.loads(text) if text.startswith("{") else text


class Gateway:
    """A gateway on an embedded store, with an issuer."""

    def __init__(self, url, claims, audience=AUDIENCE):
        self.directory = tempfile.TemporaryDirectory()
        keys = Path(self.directory.name, "keys.toml")
        keys.write_text(KEYS.format(url=url, claims=claims, audience=audience))
        environment = {
            "PATH": os.environ["PATH"],
            "LATCHGATE_LISTEN": "127.0.0.1:0",
            "LATCHGATE_STORE": f"embedded:{self.directory.name}/data",
            "LATCHGATE_AUTH_KEYS_FILE": str(keys),
        }
        self.environment = environment
        self.start()

    def start(self):
        self.process = subprocess.Popen([PROGRAM], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first = self.process.stdout.readline()
        self.url = re.search(r"http://\S+", first)[0]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self):
        self.stop()
        self.directory.cleanup()

    def exchange(self, token):
        return call("POST", f"{self.url}/session/token", {"id_token": token})


def has_key(answer):
    assert answer[0] == 201, answer
    return {"Authorization": f"Bearer {answer[2]['key']}"}


class NpmIssuer(unittest.TestCase):
    """oauth2-mock-server."""

    def setUp(self):
        modules = os.environ["IDENTITY_MODULES"]
        script = Path(modules, "issuer.mjs")
        script.write_text((ROOT / "tests/identity/issuer.mjs").read_text())
        self.node = subprocess.Popen(["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.node.stdout.readline().strip()
        self.gateway = Gateway(self.url, 'repository_id = "7", ref = "refs/heads/*"')

    def tearDown(self):
        self.gateway.end()
        self.node.kill()
        self.node.wait()
        self.node.stdin.close()
        self.node.stdout.close()

    def say(self, line):
        self.node.stdin.write(line + "\n")
        self.node.stdin.flush()
        return self.node.stdout.readline().strip()

    def token(self, alg="RS256", **claims):
        usual = {"aud": AUDIENCE, "sub": "repo:acme/web", "repository_id": "7", "ref": "refs/heads/main"}
        return self.say(json.dumps({"alg": alg, "claims": {**usual, **claims}}))

    def test_a_job_takes_a_lock_and_its_subject_is_in_the_history(self):
        key = has_key(self.gateway.exchange(self.token()))
        url = f"{self.gateway.url}/locks/deploy:web"
        status, _, lease = call("POST", url, {"ttl_ms": 60000}, key)
        self.assertEqual((status, lease["name"]), (201, "deploy:web"))
        _, _, seen = call("GET", url, headers=key)
        self.assertEqual(seen["holders"][0]["owner"], "repo:acme/web")
        self.assertEqual(call("DELETE", url, headers={**key, "Lock-Token": lease["token"]})[0], 204)
        _, _, session = call("GET", f"{self.gateway.url}/session", headers=key)
        self.assertEqual(session["name"], "ci (repo:acme/web)")

    def test_both_algorithms_are_verified_and_a_rotation_is_found(self):
        for alg in ["RS256", "ES256"]:
            has_key(self.gateway.exchange(self.token(alg)))
        self.assertEqual(self.say("rotate"), "rotated")
        for alg in ["RS256", "ES256"]:
            has_key(self.gateway.exchange(self.token(alg)))

    def test_what_is_not_meant_for_the_key_is_refused(self):
        for claims, reason in [
            ({"aud": "https://other.example"}, "no key matches"),
            ({"repository_id": "8"}, "no key matches"),
            ({"repository_id": 7}, "no key matches"),
            ({"ref": "refs/tags/v1"}, "no key matches"),
            ({"exp": int(time.time()) - 120}, "time"),
            ({"nbf": int(time.time()) + 120}, "time"),
            ({"iat": int(time.time()) - 90000}, "time"),
        ]:
            status, _, problem = self.gateway.exchange(self.token(**claims))
            self.assertEqual(status, 401, claims)
            self.assertIn(f"({reason})", problem["detail"], claims)

    def test_an_exchanged_key_outlives_a_restart_of_the_gateway(self):
        key = has_key(self.gateway.exchange(self.token()))
        secret = Path(self.gateway.directory.name, "data", "exchange-secret")
        self.assertEqual(secret.stat().st_mode & 0o777, 0o600)
        self.gateway.stop()
        self.gateway.start()
        self.assertEqual(call("POST", f"{self.gateway.url}/locks/deploy:a", headers=key)[0], 201)


class PypiIssuer(unittest.TestCase):
    """oidc-provider-mock."""

    def test_an_id_token_of_the_code_flow_is_exchanged(self):
        with tempfile.TemporaryFile() as log:
            port = 20000 + os.getpid() % 20000
            user = json.dumps({"sub": "ann", "email": "ann@example.com", "email_verified": True})
            program = Path(os.environ["IDENTITY_VENV"], "bin/oidc-provider-mock")
            issuer = subprocess.Popen([program, "-p", str(port), "--user-claims", user], stdout=log, stderr=log)
            self.addCleanup(lambda: (issuer.kill(), issuer.wait()))
            url = f"http://127.0.0.1:{port}"
            for _ in range(200):
                try:
                    call("GET", f"{url}/.well-known/openid-configuration")
                    break
                except urllib.error.URLError:
                    time.sleep(0.1)
            gateway = Gateway(url, 'sub = "ann"', audience="locks")
            self.addCleanup(gateway.end)
            back = "http://127.0.0.1/back"
            query = urllib.parse.urlencode(
                {"client_id": "locks", "redirect_uri": back, "response_type": "code", "scope": "openid email", "state": "x"}
            )
            _, headers, _ = call("POST", f"{url}/oauth2/authorize?{query}", {"sub": "ann"}, form=True)
            code = urllib.parse.parse_qs(urllib.parse.urlsplit(headers["Location"]).query)["code"][0]
            form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": "locks", "client_secret": "x"}
            _, _, answer = call("POST", f"{url}/oauth2/token", form, form=True)
            has_key(gateway.exchange(answer["id_token"]))
            # An access token is no ID token.
            status, _, _ = gateway.exchange(answer["access_token"])
            self.assertEqual(status, 401)


if __name__ == "__main__":
    unittest.main()
