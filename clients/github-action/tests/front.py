"""GitHub and a gateway with an issuer, as far as a job sees them: they give ID tokens, and keys for these tokens.

What comes with a key that lives is passed on to a gateway that has no keys. After the end of a key, only
renewals and releases are.
"""

import http.client
import http.server
import json
import threading
import time
from urllib.parse import parse_qs, urlsplit

REQUEST_TOKEN = "request-token-of-the-job"
AWAY = (503, {"status": 503, "code": "issuer-unavailable", "title": "Away", "detail": "The issuer cannot be asked now.", "retry_after_ms": 100})


def refused(text):
    return 401, {"status": 401, "code": "unauthorized", "title": "Refused", "detail": text}


class Front(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, case, gateway):
        super().__init__(("127.0.0.1", 0), Handler)
        self.gateway = urlsplit(gateway).netloc
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.lock = threading.Lock()
        # How long an ID token and a key live, in seconds.
        self.token_lives, self.key_lives = 300, 3600
        self.tokens, self.keys = {}, {}
        # How many tokens were sent to be exchanged.
        self.asked = 0
        # What is answered next instead: a status of GitHub; a status and a document of the gateway, or of all exchanges.
        self.github, self.exchanges, self.all_exchanges = [], [], None
        self.log = []
        threading.Thread(target=self.serve_forever, daemon=True).start()
        case.addCleanup(self.server_close)
        case.addCleanup(self.shutdown)

    def variables(self):
        """What the runner sets in a job with the permission."""
        return {
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}/github/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": REQUEST_TOKEN,
        }

    def sent(self, method, key=None):
        """The requests for locks with this method, and with this key."""
        return [one for one in self.log if one[0] == method and key in (None, one[2])]

    def give_token(self, handler):
        assert handler.headers["Authorization"] == f"Bearer {REQUEST_TOKEN}"
        if self.github:
            return self.github.pop(0), {}
        (audience,) = parse_qs(urlsplit(handler.path).query)["audience"]
        return 200, {"value": self.token(audience)}

    def token(self, audience=None):
        token = f"eyJ{len(self.tokens)}.c2VjcmV0.c2ln"
        self.tokens[token] = (audience or self.url, time.monotonic() + self.token_lives)
        return token

    def exchange(self, body):
        self.asked += 1
        if self.exchanges:
            return self.exchanges.pop(0)
        if self.all_exchanges:
            return self.all_exchanges
        asked = json.loads(body)
        audience, ends = self.tokens.get(asked["id_token"], ("", 0))
        if audience != self.url or asked.get("name") not in (None, "ci-web"):
            return refused("The ID token is refused (no key matches).")
        if time.monotonic() > ends:
            return refused("The ID token is refused (time).")
        key = f"lgx_{len(self.keys)}_of_the_job"
        self.keys[key] = time.monotonic() + self.key_lives
        return 201, {"key": key, "expires_in_ms": int(self.key_lives * 1000), "name": "ci-web"}

    def refusal(self, method, key):
        if key not in self.keys:
            return refused("No such key.")
        if method not in ("PUT", "DELETE") and time.monotonic() > self.keys[key]:
            return refused("The key has ended.")
        return None

    def handle_error(self, *_):
        """A caller that has hung up is no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        front = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        key = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        with front.lock:
            if path == "/github/token":
                answer = front.give_token(self)
            elif path == "/session/token":
                answer = front.exchange(body)
            else:
                front.log.append((self.command, self.path, key))
                answer = front.refusal(self.command, key)
        if answer:
            self.reply(answer[0], json.dumps(answer[1], separators=(",", ":")).encode(), "application/json")
            return
        connection = http.client.HTTPConnection(front.gateway, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("authorization", "host", "connection")}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            self.reply(answer.status, answer.read(), answer.headers["Content-Type"])
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def reply(self, status, body, kind):
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != 204:
            self.wfile.write(body)

    def log_message(self, *_):
        pass
