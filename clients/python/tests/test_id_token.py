"""Clients that exchange ID tokens for keys, with a small HTTP server in place of a gateway."""

from __future__ import annotations

import http.server
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest
from both import KINDS, Clients
from rig import until

from latchgate import GatewayUnreachable, LatchgateError, LeaseLost, environment_id_token
from latchgate.protocol.id_token import NOT_RENEWED

TOKEN = "eyJhbGciOiJSUzI1NiJ9.dGhlIHNlY3JldA.c2lnbmF0dXJl"
FREE = {"name": "x", "state": "free", "holders": [], "holder_count": 0, "waiters": [], "waiter_count": 0}
LEASE = {"name": "x", "token": "t" * 43, "fencing_token": 7, "mode": "exclusive", "ttl_ms": 60_000, "expires_in_ms": 60_000}
#: An answer: a status, and a document or the text of a proxy. ``None`` never comes.
Reply = Optional[tuple[int, Any]]


def key(number: int, lives_ms: int = 3_600_000) -> Reply:
    return 201, {"key": f"lgx_{number}", "expires_in_ms": lives_ms, "name": "ci"}


def problem(status: int, code: str, detail: str = "d") -> Reply:
    return status, {"status": status, "code": code, "title": code, "detail": detail}


UNAUTHORIZED = problem(401, "unauthorized", "No such key.")


def lock(method: str, _key: str) -> Reply:
    if method == "POST":
        return 201, {**LEASE, "renew_after_ms": 20}
    if method == "PUT":
        return 200, {**LEASE, "renew_after_ms": 20}
    return (204, None) if method == "DELETE" else (200, FREE)


class Gateway(http.server.ThreadingHTTPServer):
    """Answers the exchange with a number by ``exchange``, and other requests with a method and a key by ``other``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.exchange: Callable[[int], Reply] = key
        self.other: Callable[[str, str], Reply] = lock
        self.bodies: list[Any] = []
        self.asked: list[tuple[str, str]] = []
        self.going_on = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def tokens(self) -> list[str]:
        return [body["id_token"] for body in self.bodies]

    @property
    def keys(self) -> list[str]:
        return [key for _, key in self.asked]

    def handle_error(self, *_: Any) -> None:
        """A client that has hung up is no error."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Gateway

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        authorization = self.headers["Authorization"] or ""
        if self.path == "/session/token":
            assert authorization == ""
            self.server.bodies.append(json.loads(body))
            reply = self.server.exchange(len(self.server.bodies))
        else:
            self.server.asked.append((self.command, authorization))
            reply = self.server.other(self.command, authorization)
        if reply is None:
            self.server.going_on.wait(60)
            return
        status, document = reply
        text = document if isinstance(document, str) else json.dumps(document)
        data = b"" if status == 204 else text.encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.going_on.set()
    gateway.shutdown()
    gateway.server_close()


@pytest.fixture(params=KINDS)
def kinds(request: pytest.FixtureRequest) -> Iterator[Clients]:
    kinds = Clients(request.param)
    yield kinds
    kinds.close()


def test_one_exchange_serves_all_requests_and_nothing_shows_its_secrets(kinds: Clients, gateway: Gateway) -> None:
    locks = kinds(gateway.url, id_token=f"{TOKEN}\n", key_name="ci")
    for _ in range(3):
        assert locks.inspect("x").state == "free"
    assert gateway.bodies == [{"id_token": TOKEN, "name": "ci"}]
    assert gateway.keys == ["Bearer lgx_1"] * 3
    shown = repr(vars(locks))
    assert TOKEN not in shown and "lgx_" not in shown


def test_several_threads_exchange_once(gateway: Gateway) -> None:
    kinds = Clients("threads")
    locks = kinds(gateway.url, id_token=TOKEN)

    def slow(number: int) -> Reply:
        time.sleep(0.2)
        return key(number)

    gateway.exchange = slow
    threads = [threading.Thread(target=locks.inspect, args=("x",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (gateway.tokens, gateway.keys) == ([TOKEN], ["Bearer lgx_1"] * 4)
    kinds.close()


def test_an_api_key_counts_before_an_id_token(kinds: Clients, gateway: Gateway) -> None:
    kinds(gateway.url, key="lgk_a", id_token=TOKEN).inspect("x")
    assert (gateway.tokens, gateway.keys) == ([], ["Bearer lgk_a"])


def test_a_key_that_is_refused_is_exchanged_again(kinds: Clients, gateway: Gateway) -> None:
    gateway.other = lambda method, key: UNAUTHORIZED if key == "Bearer lgx_1" else lock(method, key)
    locks = kinds(gateway.url, id_token=TOKEN)
    assert locks.inspect("x").state == "free"
    assert (len(gateway.tokens), gateway.keys) == (2, ["Bearer lgx_1", "Bearer lgx_2"])
    # A key that the gateway refuses at once is not exchanged without an end.
    gateway.other = lambda *_: UNAUTHORIZED
    with pytest.raises(LatchgateError, match="No such key"):
        locks.inspect("x")
    assert len(gateway.tokens) == 3


def test_a_key_that_is_about_to_end_is_exchanged_while_requests_go_on(kinds: Clients, gateway: Gateway) -> None:
    gateway.exchange = lambda number: key(number, 1) if number == 1 else None
    locks = kinds(gateway.url, id_token=TOKEN)
    began = time.monotonic()
    for _ in range(3):
        locks.inspect("x")
        time.sleep(0.02)
    assert time.monotonic() - began < 3
    until(lambda: len(gateway.tokens) == 2)
    assert gateway.keys == ["Bearer lgx_1"] * 3


def test_a_lease_is_renewed_and_released_with_the_last_key(kinds: Clients, gateway: Gateway) -> None:
    expired = problem(401, "unauthorized", "The ID token is refused (time): it has expired.")
    gateway.exchange = lambda number: key(number, 1) if number == 1 else expired
    lease = kinds(gateway.url, id_token=TOKEN).acquire("x")
    until(lambda: [method for method, _ in gateway.asked].count("PUT") >= 3)
    lease.release()
    assert set(gateway.keys) == {"Bearer lgx_1"}
    assert gateway.asked[-1][0] == "DELETE"
    # A refused token is not sent again. The renewals of an asyncio client run on threads, beside its other requests.
    assert len(gateway.tokens) <= 3


def test_a_refused_token_says_why_and_is_not_sent_again(kinds: Clients, gateway: Gateway, tmp_path: Path) -> None:
    refused = problem(401, "unauthorized", "The ID token is refused (no key matches): it is valid.")
    gateway.exchange = lambda number: refused if number == 1 else key(number)
    file = tmp_path / "token"
    file.write_text("old\n")
    locks = kinds(gateway.url, id_token=file)
    for _ in range(2):
        with pytest.raises(LatchgateError, match=r"\(no key matches\)") as error:
            locks.acquire("x", wait="1m")
        assert (error.value.status, error.value.code) == (401, "unauthorized")
    assert gateway.tokens == ["old"]
    file.write_text("new")
    locks.inspect("x")
    assert gateway.tokens == ["old", "new"]


def test_an_expired_token_that_nothing_renews_says_what_to_do(kinds: Clients, gateway: Gateway) -> None:
    gateway.exchange = lambda _: problem(401, "unauthorized", "The ID token is refused (time): it has expired.")
    with pytest.raises(LatchgateError) as error:
        kinds(gateway.url, id_token=TOKEN).inspect("x")
    assert error.value.detail.endswith(NOT_RENEWED)


def test_what_is_away_is_asked_again_and_leaves_nothing_in_doubt(kinds: Clients, gateway: Gateway) -> None:
    replies: list[Reply] = [problem(503, "issuer-unavailable"), (502, "<html>"), problem(500, "internal"), (200, {}), key(5)]
    gateway.exchange = lambda number: replies[number - 1]
    gateway.other = lambda *_: problem(410, "lease-lost")
    with pytest.raises(LeaseLost):
        kinds(gateway.url, id_token=TOKEN).acquire("x", wait="1m")
    assert len(gateway.tokens) == 5


def test_an_exchange_without_an_answer_is_no_request(kinds: Clients, gateway: Gateway) -> None:
    gateway.exchange = lambda _: None
    locks = kinds(gateway.url, id_token=TOKEN, request_timeout=0.3)
    with pytest.raises(GatewayUnreachable, match="ID token"):
        locks.acquire("x", wait=0.2)
    assert gateway.keys == []


def test_the_token_may_come_from_the_environment(
    kinds: Clients, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LATCHGATE_ID_TOKEN", "LATCHGATE_ID_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    locks = kinds(gateway.url, id_token=environment_id_token)
    with pytest.raises(LatchgateError, match="neither LATCHGATE_ID_TOKEN nor") as error:
        locks.inspect("x")
    assert (error.value.status, error.value.code) == (401, "no-id-token")
    file = tmp_path / "token"
    monkeypatch.setenv("LATCHGATE_ID_TOKEN_FILE", os.fspath(file))
    with pytest.raises(LatchgateError, match="cannot read the ID token from .*: No such file"):
        locks.inspect("x")
    for content, text in ((b" \n", "is empty"), (b"s3cret\xff", "is not UTF-8"), (b"x" * 20_000, "longer than 16384")):
        file.write_bytes(content)
        with pytest.raises(LatchgateError, match=text) as error:
            locks.inspect("x")
        assert "s3cret" not in str(error.value)
    assert gateway.tokens == []
    file.write_text("of the file")
    locks.inspect("x")
    gateway.other = lambda method, key: UNAUTHORIZED if key == "Bearer lgx_1" else lock(method, key)
    monkeypatch.setenv("LATCHGATE_ID_TOKEN", TOKEN)
    locks.inspect("x")
    assert gateway.tokens == ["of the file", TOKEN]


def test_a_forked_child_exchanges_for_itself(gateway: Gateway) -> None:
    kinds = Clients("threads")
    locks = kinds(gateway.url, id_token=TOKEN)
    locks.inspect("x")
    child = os.fork()
    if child == 0:
        try:
            locks.inspect("x")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert gateway.keys == ["Bearer lgx_1", "Bearer lgx_2"]
    kinds.close()
