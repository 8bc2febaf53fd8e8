"""A small issuer at which people sign in, by the code flow of OpenID Connect."""

import base64
import hashlib
import html
import json
import secrets
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

CLIENT = {"client_id": "page", "client_secret": "s3cret"}
PEOPLE = {
    "Ann": {"sub": "1", "email": "ann@example.com", "email_verified": True, "groups": ["ops"]},
    "Bob": {"sub": "2", "email": "bob@example.com", "email_verified": True, "groups": ["sales"]},
}


def text(of):
    return base64.urlsafe_b64encode(of).rstrip(b"=").decode()


class Issuer:
    """`url` is another site than a gateway on 127.0.0.1."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="latchgate-issuer-")
        self._key = Path(self._directory.name, "key.pem")
        subprocess.run(["openssl", "genrsa", "-out", self._key, "2048"], check=True, capture_output=True)
        modulus = subprocess.run(
            ["openssl", "rsa", "-in", self._key, "-noout", "-modulus"], check=True, capture_output=True, text=True
        ).stdout.strip().partition("=")[2]
        self.keys = {"keys": [{"kty": "RSA", "kid": "r", "n": text(bytes.fromhex(modulus)), "e": "AQAB"}]}
        self.codes = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                issuer.get(self)

            def do_POST(self):
                issuer.post(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self):
        self._server.shutdown()
        self._server.server_close()
        self._directory.cleanup()

    def get(self, request):
        to = urlsplit(request.path)
        query = dict(parse_qsl(to.query))
        if to.path == "/.well-known/openid-configuration":
            document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            for name in ("authorization", "token", "end_session"):
                document[f"{name}_endpoint"] = f"{self.url}/{name}"
            answer(request, 200, json.dumps(document), "application/json")
        elif to.path == "/keys":
            answer(request, 200, json.dumps(self.keys), "application/json")
        elif to.path == "/authorization":
            links = "".join(f'<a href="/as/{name}?{html.escape(to.query)}">{name}</a> ' for name in PEOPLE)
            answer(request, 200, f"<!doctype html><title>Who are you?</title><h1>Who are you?</h1>{links}", "text/html")
        elif to.path.startswith("/as/"):
            code = secrets.token_urlsafe()
            self.codes[code] = (to.path.removeprefix("/as/"), query)
            back = urlencode({"code": code, "state": query["state"]})
            answer(request, 302, location=f"{query['redirect_uri']}?{back}")
        elif to.path == "/favicon.ico":
            answer(request, 204)
        elif to.path == "/end_session" and query["client_id"] == CLIENT["client_id"]:
            answer(request, 302, location=query["post_logout_redirect_uri"])
        else:
            answer(request, 404)

    def post(self, request):
        form = request.rfile.read(int(request.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(form).items()}
        name, query = self.codes.pop(form["code"])
        challenge = text(hashlib.sha256(form["code_verifier"].encode()).digest())
        pair = base64.b64encode(":".join(CLIENT.values()).encode()).decode()
        same = query["code_challenge"] == challenge and query["redirect_uri"] == form["redirect_uri"]
        if not same or request.headers["Authorization"] != f"Basic {pair}":
            return answer(request, 400, json.dumps({"error": "invalid_grant"}), "application/json")
        now = int(time.time())
        claims = {"iss": self.url, "aud": "page", "iat": now, "exp": now + 300, "nonce": query["nonce"], **PEOPLE[name]}
        return answer(request, 200, json.dumps({"id_token": self.signed(claims)}), "application/json")

    def signed(self, claims):
        head = {"alg": "RS256", "kid": "r", "typ": "JWT"}
        message = ".".join(text(json.dumps(part).encode()) for part in (head, claims))
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self._key], input=message.encode(), check=True, capture_output=True
        ).stdout
        return f"{message}.{text(signature)}"


def answer(request, status, body="", media="text/plain", location=None):
    request.send_response(status)
    request.send_header("Content-Type", media)
    request.send_header("Content-Length", str(len(body.encode())))
    if location:
        request.send_header("Location", location)
    request.end_headers()
    request.wfile.write(body.encode())
