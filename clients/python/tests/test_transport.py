"""Tests of the connections of the threaded client, with a small HTTP server."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from both import KINDS, Clients, Loop
from rig import until

from latchgate.aio.client import Latchgate as AsyncLatchgate
from latchgate.aio.transport import HttpxTransport
from latchgate.blocking.client import Latchgate
from latchgate.blocking.transport import HttpTransport, _Pool, is_distrust
from latchgate.errors import GatewayUnreachable, LatchgateError
from latchgate.protocol.exchange import Answer, Call, Exchange, NoAnswer, NotSent
from latchgate.protocol.settings import Settings


class Server:
    """A server that answers each request with its path, and keeps the connection. It cuts off the answer to a path that
    begins with ``/half``."""

    def __init__(self, *, silent: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._silent = silent
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            if not self._silent:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            for line in requests:
                while requests.readline().strip():
                    pass
                path = line.split()[1]
                if path.startswith(b"/half"):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")
                    return
                if path.startswith(b"/chunks"):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    connection.sendall(b"".join(b"%x\r\n%s\r\n" % (len(it), it) for it in (path, b"!")) + b"0\r\n\r\n")
                elif path.startswith(b"/nothing"):
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                else:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))

    def close(self) -> None:
        # Closing alone would not wake the thread that accepts connections.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def silent() -> Iterator[Server]:
    server = Server(silent=True)
    yield server
    server.close()


def transport_to(url: str, **settings: Any) -> HttpTransport:
    return HttpTransport(Settings(url, **settings), None)


def body_of(exchange: Exchange) -> bytes:
    assert isinstance(exchange, Answer), exchange
    return exchange.body


def test_a_connection_is_used_again(server: Server) -> None:
    transport = transport_to(server.url)
    assert body_of(transport.exchange(Call("GET", "/a"), 30)) == b"/a"
    assert body_of(transport.exchange(Call("GET", "/chunks"), 30)) == b"/chunks!"
    assert body_of(transport.exchange(Call("DELETE", "/nothing"), 30)) == b""
    assert body_of(transport.exchange(Call("POST", "/b", body=b""), 30)) == b"/b"
    assert len(server.connections) == 1
    transport.close()


def test_half_an_answer_is_none(server: Server) -> None:
    transport = transport_to(server.url)
    assert transport.exchange(Call("GET", "/half"), 30) == NoAnswer("the connection was closed")


def test_a_connection_has_one_user_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = transport_to(server.url)
    put_back, exchange_on = _Pool.put_back, HttpTransport._exchange_on
    begun, may_go_on = threading.Event(), threading.Event()
    second: list[Future[Exchange]] = []

    def slow(self: HttpTransport, connection: Any, call: Call, deadline: float) -> tuple[Exchange, bool]:
        begun.set()
        assert may_go_on.wait(30)
        return exchange_on(self, connection, call, deadline)

    def and_used(pool: _Pool, connection: Any) -> None:
        put_back(pool, connection)
        if not second:
            # Another thread takes the connection from the pool before this exchange has ended.
            monkeypatch.setattr(HttpTransport, "_exchange_on", slow)
            second.append(threads.submit(transport.exchange, Call("GET", "/second"), 60))
            assert begun.wait(30)

    monkeypatch.setattr(_Pool, "put_back", and_used)
    with ThreadPoolExecutor() as threads:
        assert body_of(transport.exchange(Call("GET", "/first"), 30)) == b"/first"
        may_go_on.set()
        assert body_of(second[0].result(30)) == b"/second"
    assert len(server.connections) == 1


def test_many_threads_get_their_own_answers(server: Server) -> None:
    transport = transport_to(server.url)

    def ask(thread: int) -> None:
        for at in range(100):
            path = f"/{thread}/{at}"
            assert body_of(transport.exchange(Call("GET", path), 60)) == path.encode()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))


def test_what_was_cancelled_too_late_cuts_nothing(server: Server) -> None:
    transport = transport_to(server.url)
    for _ in range(3):
        cancelled = threading.Event()
        transport.exchange(Call("GET", "/a"), 30, cancelled)
        cancelled.set()
        # The thread that watches the event checks it every tenth of a second.
        time.sleep(0.3)
        assert body_of(transport.exchange(Call("GET", "/b"), 30)) == b"/b"
    assert len(server.connections) == 1


def test_a_request_is_cut(silent: Server) -> None:
    transport = transport_to(silent.url)
    cancelled = threading.Event()
    with ThreadPoolExecutor() as pool:
        exchange = pool.submit(transport.exchange, Call("GET", "/a"), 100, cancelled)
        until(lambda: silent.connections)
        cancelled.set()
        assert isinstance(exchange.result(5), NoAnswer)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(server: Server) -> None:
    transport = transport_to(server.url)
    body_of(transport.exchange(Call("GET", "/parent"), 30))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if body_of(transport.exchange(Call("GET", "/child"), 30)) == b"/child" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(server.connections) == 2
    assert body_of(transport.exchange(Call("GET", "/parent"), 30)) == b"/parent"
    assert len(server.connections) == 2


def test_a_forked_child_has_connections_of_its_own_with_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = HttpxTransport(Settings("http://gateway.invalid"), None)
    of_parent = transport._client()
    assert transport._client() is of_parent
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert transport._client() is not of_parent


# === Certificates ===

#: A certificate for the servers of these tests only.
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg5s9zxNxPExNUSYZ0
etvUgp8+P3CgsLjomwxQvz8+dBahRANCAARWSt8CJTm44c8WZ6FGyvAsBp2Xaw2i
JPLp5KQ7pg636tTrgFnZX1u7Y/QPxak+0JSXYMlro5/T1kUCNrykRXxx
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBfjCCASWgAwIBAgIULXwOcsro4xFAx1uZ3eJW4AWi+zUwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzAzNDY1MloYDzIxMjYxMTAz
MDM0NjUyWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARWSt8CJTm44c8WZ6FGyvAsBp2Xaw2iJPLp5KQ7pg636tTrgFnZX1u7
Y/QPxak+0JSXYMlro5/T1kUCNrykRXxxo1MwUTAdBgNVHQ4EFgQUqm9QTHnpuYfh
HfLMs22dc+U52e8wHwYDVR0jBBgwFoAUqm9QTHnpuYfhHfLMs22dc+U52e8wDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBAjqkDO16H0cNJtV7BdbXs
zA5SZQ+s9OXyd2Dx7TBbmAIgaFZ9GCxGVVNZhBybM7iTvn/uAj8xfpJG7ucbJeC5
tJc=
-----END CERTIFICATE-----
"""


@pytest.fixture
def wants_certificate(tmp_path: Path) -> Iterator[str]:
    """A TLS server that requires a client certificate, which no client of the tests has."""
    file = tmp_path / "server.pem"
    file.write_text(CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(file))
    context.load_verify_locations(str(file))
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as tls:
                try:
                    tls.settimeout(10)
                    tls.do_handshake()
                except OSError:
                    # Read the request first: closing on unread bytes resets the connection.
                    while socket.socket.recv(tls, 1024):
                        pass

    threading.Thread(target=serve, daemon=True).start()
    yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_gateway_that_misses_a_certificate_was_sent_nothing(wants_certificate: str, kind: str) -> None:
    trusts = ssl.create_default_context()
    trusts.check_hostname = False
    trusts.verify_mode = ssl.CERT_NONE
    clients = Clients(kind)
    begun = time.monotonic()
    with pytest.raises(GatewayUnreachable, match="certificate"):
        clients(wants_certificate, ssl_context=trusts).acquire("x", wait="1m")
    assert time.monotonic() - begun < 10
    clients.close()


def test_an_alert_about_a_certificate_says_that_no_request_was_read() -> None:
    def is_refused(reason: str) -> bool:
        error = ssl.SSLError(1, reason)
        error.reason = reason
        return is_distrust(error)

    for about_certificate in (
        "TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_BAD_CERTIFICATE", "TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_ALERT_DECRYPT_ERROR",
    ):  # fmt: skip
        assert is_refused(about_certificate), about_certificate
    for after_a_request in ("TLSV1_ALERT_INTERNAL_ERROR", "SSLV3_ALERT_BAD_RECORD_MAC", "TLSV1_ALERT_USER_CANCELLED"):
        assert not is_refused(after_a_request), after_a_request


# === A connection that does not come ===


def asked_of_httpx(url: str, time_out: float, **settings: Any) -> Exchange:
    async def asked() -> Exchange:
        transport = HttpxTransport(Settings(url, **settings), None)
        try:
            return await transport.exchange(Call("POST", "/a"), time_out)
        finally:
            await transport.close()

    return Loop().run(asked())


def asked_of_threads(url: str, time_out: float, **settings: Any) -> Exchange:
    return transport_to(url, **settings).exchange(Call("POST", "/a"), time_out)


@pytest.mark.parametrize("ask", [asked_of_threads, asked_of_httpx])
@pytest.mark.parametrize("time_out, request_timeout", [(100, 0.5), (0.5, 100), (0.001, 100)])
def test_connecting_is_bounded_and_nothing_was_sent(
    silent: Server, ask: Callable[..., Exchange], time_out: float, request_timeout: float
) -> None:
    # The server accepts the connection, and never answers the TLS handshake.
    url = silent.url.replace("http:", "https:")
    begun = time.monotonic()
    assert ask(url, time_out, request_timeout=request_timeout) == NotSent("no answer in time")
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("ask", [asked_of_threads, asked_of_httpx])
def test_what_was_sent_is_in_doubt(silent: Server, ask: Callable[..., Exchange]) -> None:
    assert ask(silent.url, 3) == NoAnswer("no answer in time")


@pytest.fixture
def no_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No host name is found until the test ends. The returned event is set when a name is looked up."""
    asked, over = threading.Event(), threading.Event()

    def getaddrinfo(*_: Any, **__: Any) -> Any:
        asked.set()
        over.wait(100)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield asked
    over.set()


def test_a_name_that_is_not_found_is_bounded(no_names: threading.Event) -> None:
    begun = time.monotonic()
    exchange = transport_to("http://gateway.invalid", request_timeout=0.5).exchange(Call("POST", "/a"), 100)
    assert isinstance(exchange, NotSent)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("key", [None, "of-the-caller-0123456789"])
def test_a_cancelled_acquire_does_not_wait_for_a_connection(no_names: threading.Event, key: Any) -> None:
    cancel = threading.Event()
    with ThreadPoolExecutor() as pool:
        locks = Latchgate("http://gateway.invalid", request_timeout="1m")
        acquired = pool.submit(locks.acquire, "x", wait="2m", idempotency_key=key, cancel=cancel)
        assert no_names.wait(30)
        cancel.set()
        cancelled_at = time.monotonic()
        error = acquired.exception(30)
        assert isinstance(error, LatchgateError) and error.code == "cancelled"
        # No gateway knows the acquire, so there is no withdrawal, which could take 3 s.
        assert time.monotonic() - cancelled_at < 2


def test_a_cancelled_task_does_not_wait_for_a_connection(no_names: threading.Event) -> None:
    async def cancelled() -> None:
        transport = HttpxTransport(Settings("http://gateway.invalid", request_timeout=60), None)
        task = asyncio.ensure_future(transport.exchange(Call("POST", "/a"), 120))
        assert await asyncio.get_running_loop().run_in_executor(None, no_names.wait, 30)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass

    begun = time.monotonic()
    Loop().run(cancelled())
    assert time.monotonic() - begun < 5


def test_where_no_thread_can_be_started_it_connects_here(silent: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    # No thread can be started, as at the end of the interpreter.
    monkeypatch.setattr(threading.Thread, "start", start)
    assert transport_to(silent.url).exchange(Call("GET", "/a"), 0.5) == NoAnswer("no answer in time")


def test_the_asyncio_client_trusts_the_same_authorities_in_the_loop_and_in_its_threads() -> None:
    locks = AsyncLatchgate("https://localhost:1")
    assert locks._transport.tls is not None
    assert locks._thread_transport._tls is locks._transport.tls
    assert AsyncLatchgate("http://localhost:1")._transport.tls is None
