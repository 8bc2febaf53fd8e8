"""Sends requests over connections that are kept for the next one."""

from __future__ import annotations

import http.client
import os
import select
import socket
import ssl
import threading
from contextlib import contextmanager
from typing import Iterator, Optional
from urllib.parse import urlsplit

from ..protocol.clock import now
from ..protocol.exchange import Answer, Call, Exchange, NoAnswer, NotSent
from ..protocol.settings import Settings

#: How many connections are kept while nobody uses them.
MOST_IDLE = 4
#: How long a connection is kept so: a gateway closes one that asks for nothing after a while.
LONGEST_IDLE = 15.0


class _Idle:
    """A connection that nobody uses, of this process."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection
        self.since = now()
        self.process = os.getpid()

    def is_usable(self) -> bool:
        # What can be read from a connection on which nothing was asked is its end.
        if self.process != os.getpid() or now() - self.since > LONGEST_IDLE or self.connection.sock is None:
            return False
        readable, _, _ = select.select([self.connection.sock], [], [], 0) if _selectable(self.connection) else ([1], 0, 0)
        return not readable


def _selectable(connection: http.client.HTTPConnection) -> bool:
    number: int = connection.sock.fileno()
    # select takes no larger numbers.
    return 0 <= number < 1024


class HttpTransport:
    """The connections of a client to its gateway."""

    def __init__(self, settings: Settings, ssl_context: Optional[ssl.SSLContext]) -> None:
        parts = urlsplit(settings.url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path
        self._headers = settings.headers()
        self._tls: Optional[ssl.SSLContext] = None
        if parts.scheme == "https":
            self._tls = ssl_context or ssl.create_default_context()
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []

    def exchange(self, call: Call, time_out: float, cancelled: Optional[threading.Event] = None) -> Exchange:
        """Sends one copy of a request, and waits for its answer as long as that."""
        deadline = now() + time_out
        sent_at = now()
        connection = self._take()
        try:
            if connection is None:
                connection = self._new(time_out)
                try:
                    connection.connect()
                except (OSError, ValueError) as error:
                    return NotSent(_reason(error), isinstance(error, ssl.SSLCertVerificationError))
            try:
                with _closed_when(cancelled, connection.sock):
                    return self._exchange_on(connection, call, sent_at, deadline)
            except (OSError, http.client.HTTPException) as error:
                return NoAnswer(_reason(error))
        finally:
            # What was not put back by now is not to be used again.
            if connection is not None and not self._is_idle(connection):
                connection.close()

    def _exchange_on(
        self, connection: http.client.HTTPConnection, call: Call, sent_at: float, deadline: float
    ) -> Exchange:
        headers = {**self._headers, **call.headers}
        if call.body is not None:
            headers["Content-Type"] = "application/json"

        def left() -> float:
            return max(deadline - now(), 0.001)

        sock = connection.sock
        sock.settimeout(left())
        connection.request(call.method, self._base + call.path, body=call.body, headers=headers)
        sock.settimeout(left())
        response = connection.getresponse()
        body = b""
        while len(body) <= call.max_answer:
            if not response.isclosed():
                # The response closes the socket with its last byte.
                sock.settimeout(left())
            chunk = response.read1(65536)
            if not chunk:
                break
            body += chunk
        else:
            return NoAnswer("the answer is too long")
        names = {name.lower(): value for name, value in response.getheaders()}
        if response.isclosed() and not response.will_close:
            self._put_back(connection)
        return Answer(response.status, names, body, sent_at, now())

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.connection.close()

    def _new(self, time_out: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=time_out)
        return http.client.HTTPSConnection(self._host, self._port, timeout=time_out, context=self._tls)

    def _take(self) -> Optional[http.client.HTTPConnection]:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                kept = self._idle.pop()
            if kept.is_usable():
                return kept.connection
            if kept.process == os.getpid():
                kept.connection.close()

    def _put_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(_Idle(connection))

    def _is_idle(self, connection: http.client.HTTPConnection) -> bool:
        with self._lock:
            return any(kept.connection is connection for kept in self._idle)


@contextmanager
def _closed_when(cancelled: Optional[threading.Event], sock: socket.socket) -> Iterator[None]:
    """Ends what is read from a socket as soon as an event is set."""
    if cancelled is None:
        yield
        return
    done = threading.Event()

    def watch(cancelled: threading.Event) -> None:
        while not done.is_set():
            if cancelled.wait(0.1):
                try:
                    # Of a TLS socket, too, what is below: the thread that reads is told by the end of the stream.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
                except OSError:
                    pass
                return

    watcher = threading.Thread(target=watch, args=(cancelled,), name="latchgate-cancel", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) or isinstance(error, socket.timeout):
        return "no answer in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # What others say may quote what was sent.
    return type(error).__name__
