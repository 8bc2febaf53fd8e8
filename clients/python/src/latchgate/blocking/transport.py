"""Sends requests over HTTP connections, which are kept for later requests."""

from __future__ import annotations

import functools
import http.client
import io
import re
import select
import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator, Optional, Union, cast
from urllib.parse import urlsplit

from ..protocol.clock import now
from ..protocol.exchange import Answer, Call, Exchange, NoAnswer, NotSent
from ..protocol.id_token import LATE, Exchanger, with_key
from ..protocol.process import OfProcess
from ..protocol.settings import Settings
from .stop import LOOK_EVERY, Stop

#: How many idle connections are kept for later requests.
MOST_IDLE = 4
#: The longest time in seconds that a connection is kept idle: a gateway closes an idle connection after a while.
LONGEST_IDLE = 15.0
#: The TLS alerts by which a server refuses the certificate of its client, or the lack of one.
_REFUSED = re.compile(r"ALERT_.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED|DECRYPT_ERROR)")
#: The type of events that cancel a request: the request is given up as soon as the event is set.
Cancel = Union[threading.Event, Stop]


class _Idle:
    """An idle connection, and when it became idle."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.since = now()

    def is_usable(self) -> bool:
        # The gateway sends nothing on an idle connection, so anything that can be read means that it was closed.
        if now() - self.since > LONGEST_IDLE or self.connection.sock is None:
            return False
        readable, _, _ = select.select([self.connection.sock], [], [], 0) if _selectable(self.connection) else ([1], 0, 0)
        return not readable


class _Reader(io.RawIOBase):
    """A reader from a socket with one deadline for all reads. The time-out of a socket alone would start again with
    each read."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        left = self._deadline - now()
        if left <= 0:
            raise socket.timeout
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An HTTP response whose head and body must arrive before one deadline."""

    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        # Replace the reader of the base class, which has read nothing yet.
        self.fp.close()
        self.fp = io.BufferedReader(_Reader(sock, deadline))


def _selectable(connection: http.client.HTTPConnection) -> bool:
    number: int = connection.sock.fileno()
    # ``select`` accepts only file descriptors below this number.
    return 0 <= number < 1024


class _Pool:
    """The idle connections of a client to its gateway."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []

    def take(self) -> Optional[http.client.HTTPConnection]:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                kept = self._idle.pop()
            if kept.is_usable():
                return kept.connection
            kept.connection.close()

    def put_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(_Idle(connection))
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.connection.close()


class HttpTransport:
    """The HTTP connections of a client to its gateway."""

    def __init__(self, settings: Settings, ssl_context: Optional[ssl.SSLContext]) -> None:
        parts = urlsplit(settings.url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path
        self._headers = settings.headers()
        self._connect_within = settings.request_timeout
        self._exchanger = settings.exchanger
        self._tls: Optional[ssl.SSLContext] = None
        if parts.scheme == "https":
            self._tls = ssl_context or ssl.create_default_context()
        # A forked child gets a pool of its own: it must not read the answers to its parent.
        self._pool = OfProcess(_Pool)

    def exchange(self, call: Call, time_out: float, cancelled: Optional[Cancel] = None) -> Exchange:
        """Sends one copy of a request, and waits ``time_out`` seconds for its answer."""
        deadline = now() + time_out
        if self._exchanger is None:
            return self._send(call, deadline, cancelled)
        exchanger = self._exchanger()
        key = exchanger.key
        if key is None:
            failed = self._exchange_token(exchanger, None, deadline, cancelled)
            if failed is not None:
                return failed
            key = exchanger.key
        elif call.method != "DELETE" and exchanger.is_due():
            # The request goes on with its key meanwhile: no renewal waits for an exchange.
            self._exchange_in_background(exchanger, key)
        exchange = self._send(with_key(call, key), deadline, cancelled)
        if not isinstance(exchange, Answer) or exchange.status != 401:
            return exchange
        # The key was revoked, its rules have changed, or it has ended.
        failed = self._exchange_token(exchanger, key, deadline, cancelled)
        return failed or self._send(with_key(call, exchanger.key), deadline, cancelled)

    def _exchange_token(
        self, exchanger: Exchanger, seen: Optional[str], deadline: float, cancelled: Optional[Cancel]
    ) -> Optional[Exchange]:
        """Exchanges the ID token for a key, unless another thread has done so since the caller has ``seen`` a key. Returns
        ``None``, or the result of the request for which there is no key."""
        while not exchanger.turn.acquire(timeout=max(min(LOOK_EVERY, deadline - now()), 0.0)):
            if now() >= deadline:
                return LATE
            if cancelled is not None and cancelled.is_set():
                return NotSent("it was cancelled")
        try:
            if exchanger.key != seen:
                return None
            attempt = exchanger.begin()
            if isinstance(attempt, Answer):
                return attempt
            return exchanger.end(attempt, self._send(attempt.call, deadline, cancelled))
        finally:
            exchanger.turn.release()

    def _exchange_in_background(self, exchanger: Exchanger, seen: str) -> None:
        if exchanger.turn.locked():
            return
        arguments = (exchanger, seen, now() + self._connect_within, None)
        try:
            threading.Thread(target=self._exchange_token, args=arguments, name="latchgate-exchange", daemon=True).start()
        except RuntimeError:
            # No thread can be started. The next request tries again.
            pass

    def _send(self, call: Call, deadline: float, cancelled: Optional[Cancel]) -> Exchange:
        pool = self._pool()
        connection = pool.take()
        if connection is None:
            try:
                connection = self._connect(min(deadline, now() + self._connect_within), cancelled)
            except (OSError, ValueError) as error:
                return NotSent(_reason(error), is_distrust(error))
        is_reusable = False
        try:
            with _cut_when(cancelled, connection.sock) as cut:
                exchange, is_reusable = self._exchange_on(connection, call, deadline)
            # After the block, `cancelled` can no longer shut the connection down. A connection that was shut down is not kept.
            is_reusable = is_reusable and not cut.is_set()
            return exchange
        except (OSError, http.client.HTTPException) as error:
            return NotSent(_reason(error), for_good=True) if is_distrust(error) else NoAnswer(_reason(error))
        finally:
            if is_reusable:
                pool.put_back(connection)
            else:
                connection.close()

    def _exchange_on(self, connection: http.client.HTTPConnection, call: Call, deadline: float) -> tuple[Exchange, bool]:
        """Sends a request on this connection. Returns its result, and whether the connection can be used for another
        request."""
        headers = {**self._headers, **call.headers}
        if call.body is not None:
            headers["Content-Type"] = "application/json"

        connection.sock.settimeout(max(deadline - now(), 0.001))
        sent_at = now()
        connection.request(call.method, self._base + call.path, body=call.body, headers=headers)
        connection.response_class = cast(Any, functools.partial(_Response, deadline))
        response = connection.getresponse()
        body = b""
        while len(body) <= call.max_answer:
            chunk = response.read1(65536)
            if not chunk:
                break
            body += chunk
        else:
            return NoAnswer("the answer is too long"), False
        if response.length:
            return NoAnswer("the connection was closed"), False
        will_close = response.will_close
        names = {name.lower(): value for name, value in response.getheaders()}
        # Before Python 3.12 a response that is read with ``read1`` does not close itself at its end.
        response.close()
        return Answer(response.status, names, body, sent_at, now()), not will_close

    def close(self) -> None:
        self._pool().close()

    def _connect(self, deadline: float, cancelled: Optional[Cancel]) -> http.client.HTTPConnection:
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        port = connection.port

        def connect() -> socket.socket:
            return _connected(self._host, port, self._tls, deadline)

        connection.sock = _Connecting(connect).wait(deadline, cancelled)
        return connection


class _Connecting:
    """A connection that is made on a thread of its own. Looking up a host name cannot be interrupted, so a caller that
    gives up leaves the thread alone."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._is_given_up = False
        self._sock: Optional[socket.socket] = None
        self._error: Optional[Exception] = None

    def wait(self, deadline: float, cancelled: Optional[Cancel]) -> socket.socket:
        """Waits for the connection; ``None`` if the deadline passes or the event is set before."""
        try:
            threading.Thread(target=self._run, name="latchgate-connect", daemon=True).start()
        except RuntimeError:
            # No thread can be started: there are too many, or the interpreter is ending. The connection is made here.
            return self._connect()
        try:
            while not self._done.wait(min(LOOK_EVERY, max(deadline - now(), 0.0))):
                if now() >= deadline:
                    raise socket.timeout
                if cancelled is not None and cancelled.is_set():
                    raise ConnectionAbortedError(0, "it was cancelled")
        except BaseException:
            with self._lock:
                self._is_given_up = True
                sock, self._sock = self._sock, None
            if sock is not None:
                sock.close()
            raise
        if self._error is not None:
            raise self._error
        assert self._sock is not None
        return self._sock

    def _run(self) -> None:
        try:
            sock = self._connect()
        except Exception as error:
            self._error = error
        else:
            with self._lock:
                if not self._is_given_up:
                    self._sock = sock
            if self._is_given_up:
                sock.close()
        self._done.set()


def _connected(host: str, port: int, tls: Optional[ssl.SSLContext], deadline: float) -> socket.socket:
    """Connects to the first address of the host that answers. The time is shared among the addresses."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = socket.timeout()
    for at, (family, kind, protocol, _, address) in enumerate(addresses):
        left = deadline - now()
        if left <= 0:
            break
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            # The machine may not support this address family, such as IPv6.
            failure = error
            continue
        try:
            sock.settimeout(left / (len(addresses) - at))
            sock.connect(address)
            # The head and the body of a request are two writes. Without this option, the second write would wait until
            # the gateway has acknowledged the first.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            failure = error
            sock.close()
            continue
        if tls is None:
            return sock
        try:
            sock.settimeout(max(deadline - now(), 0.001))
            return tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
    raise failure


@contextmanager
def _cut_when(cancelled: Optional[Cancel], sock: socket.socket) -> Iterator[threading.Event]:
    """Shuts the socket down as soon as ``cancelled`` is set, but not after the block has been left. Yields an event
    that is set if the socket was shut down."""
    done, cut = threading.Event(), threading.Event()
    if cancelled is None:
        yield cut
        return
    lock = threading.Lock()

    def end() -> None:
        cut.set()
        try:
            # The TCP connection below TLS is shut down, so that the reading thread wakes at the end of the stream.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass

    def watch(cancelled: threading.Event) -> None:
        while not done.is_set():
            if not cancelled.wait(LOOK_EVERY):
                continue
            with lock:
                # After the block, another thread may use the socket.
                if done.is_set():
                    return
                end()
            return

    with ExitStack() as while_it_lasts:
        event: Optional[threading.Event]
        if isinstance(cancelled, Stop):
            while_it_lasts.enter_context(cancelled.cuts(end))
            event = cancelled.cancel
        else:
            event = cancelled
        if event is not None:
            threading.Thread(target=watch, args=(event,), name="latchgate-cancel", daemon=True).start()
        try:
            yield cut
        finally:
            with lock:
                done.set()


def is_distrust(error: BaseException) -> bool:
    """Whether one end of the connection refuses the certificate of the other. Then the gateway has read no request.
    With TLS 1.3 the request may have been written nevertheless: the server checks the client's certificate after the
    client has finished its handshake."""
    cause: Optional[BaseException] = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        if isinstance(cause, ssl.SSLError) and _REFUSED.search(cause.reason or ""):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) or isinstance(error, socket.timeout):
        return "no answer in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # The messages of other errors are not shown: they may contain parts of the request, which has secrets.
    return type(error).__name__
