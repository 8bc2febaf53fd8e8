"""Sends requests with httpx."""

from __future__ import annotations

import asyncio
import ssl
from typing import Awaitable, Callable, Optional, Union

try:
    import httpx
except ImportError as error:
    raise ImportError("latchgate.aio needs httpx: pip install 'latchgate-client[aio]'") from error

from ..blocking.transport import is_distrust
from ..protocol.clock import now
from ..protocol.exchange import Answer, Call, Exchange, NoAnswer, NotSent
from ..protocol.id_token import LATE, Exchanger, with_key
from ..protocol.process import OfProcess
from ..protocol.settings import Settings

#: The type of a function to which httpcore reports the progress of a request.
Trace = Callable[[str, object], Awaitable[None]]


class HttpxTransport:
    """The HTTP connections of an asyncio client to its gateway."""

    def __init__(self, settings: Settings, ssl_context: Optional[ssl.SSLContext]) -> None:
        if ssl_context is None and settings.url.startswith("https:"):
            ssl_context = httpx.create_ssl_context(trust_env=False)
        #: The TLS context with the authorities that the client trusts; ``None`` for plain HTTP. Renewals use another
        #: transport, which must trust the same authorities: otherwise an acquired lease could not be renewed.
        self.tls = ssl_context
        verify: Union[ssl.SSLContext, bool] = ssl_context or True
        # As in the client for threads, proxies and passwords in the environment are ignored. A forked child gets a
        # client of its own: it must not read the answers to its parent.
        self._client = OfProcess(
            lambda: httpx.AsyncClient(
                headers=settings.headers(),
                verify=verify,
                timeout=httpx.Timeout(None, connect=settings.request_timeout),
                trust_env=False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=4, keepalive_expiry=15),
            )
        )
        self._url = settings.url
        self._exchanger = settings.exchanger
        self._exchange_within = settings.request_timeout
        # The exchange under way.
        self._exchanging: Optional[asyncio.Task[Optional[Exchange]]] = None

    async def exchange(self, call: Call, time_out: float) -> Exchange:
        """Sends one copy of a request, and waits ``time_out`` seconds for its answer."""
        if self._exchanger is None:
            return await self._send(call, time_out)
        exchanger, deadline = self._exchanger(), now() + time_out
        key = exchanger.key
        if key is None:
            failed = await self._exchange_token(exchanger, deadline)
            if failed is not None:
                return failed
            key = exchanger.key
        elif call.method != "DELETE" and exchanger.is_due():
            # The request goes on with its key meanwhile: no renewal waits for an exchange.
            self._begin_exchange(exchanger)
        exchange = await self._send(with_key(call, key), deadline - now())
        if not isinstance(exchange, Answer) or exchange.status != 401:
            return exchange
        # The key was revoked, its rules have changed, or it has ended.
        failed = None if exchanger.key != key else await self._exchange_token(exchanger, deadline)
        return failed or await self._send(with_key(call, exchanger.key), deadline - now())

    async def _exchange_token(self, exchanger: Exchanger, deadline: float) -> Optional[Exchange]:
        """Exchanges the ID token for a key. Returns ``None``, or the result of the request for which there is no key."""
        exchanging = self._begin_exchange(exchanger)
        # The exchange goes on if this request is given up, because others may wait for it.
        await asyncio.wait([exchanging], timeout=max(deadline - now(), 0.0))
        return exchanging.result() if exchanging.done() else LATE

    def _begin_exchange(self, exchanger: Exchanger) -> asyncio.Task[Optional[Exchange]]:
        """Begins an exchange, unless one is under way."""

        async def exchange() -> Optional[Exchange]:
            # The token may be in a file, or come from a function that waits.
            attempt = await asyncio.get_running_loop().run_in_executor(None, exchanger.begin)
            if isinstance(attempt, Answer):
                return attempt
            return exchanger.end(attempt, await self._send(attempt.call, self._exchange_within))

        if self._exchanging is None or self._exchanging.done():
            self._exchanging = asyncio.ensure_future(exchange())
        return self._exchanging

    async def _send(self, call: Call, time_out: float) -> Exchange:
        if self._client().is_closed:
            return NotSent("the client is closed", for_good=True)
        sent_at = now()
        headers = {"Accept-Encoding": "identity", **call.headers}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        is_sent = False

        async def trace(event: str, info: object) -> None:
            # Events of the connection come first; the first other event is the beginning of the request.
            nonlocal is_sent
            is_sent = is_sent or not event.startswith("connection.")

        try:
            return await asyncio.wait_for(self._exchange(call, headers, sent_at, trace), time_out)
        except (asyncio.TimeoutError, httpx.TimeoutException):
            return NoAnswer("no answer in time") if is_sent else NotSent("no answer in time")
        except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
            return NotSent(_reason(error), is_distrust(error))
        except (httpx.HTTPError, OSError) as error:
            # A TLS alert after the handshake is an ssl.SSLError, which httpx does not wrap.
            return NotSent(_reason(error), for_good=True) if is_distrust(error) else NoAnswer(_reason(error))

    async def _exchange(self, call: Call, headers: dict[str, str], sent_at: float, trace: Trace) -> Exchange:
        client = self._client()
        url, extensions = self._url + call.path, {"trace": trace}
        request = client.build_request(call.method, url, headers=headers, content=call.body, extensions=extensions)
        response = await client.send(request, stream=True)
        try:
            body = b""
            # Count raw bytes: a compressed body could expand beyond the limit.
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > call.max_answer:
                    return NoAnswer("the answer is too long")
        finally:
            await response.aclose()
        names = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, names, body, sent_at, now())

    async def close(self) -> None:
        await self._client().aclose()


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.RemoteProtocolError):
        return "the connection was closed"
    cause: Optional[BaseException] = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    # The messages of other errors are not shown: they may contain parts of the request, which has secrets.
    return type(error).__name__
