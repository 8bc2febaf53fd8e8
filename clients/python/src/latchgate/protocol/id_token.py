"""ID tokens of OpenID Connect, and the key of the gateway for which a client exchanges them."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional, Union

from .clock import now
from .exchange import Answer, Call, Exchange, NotSent

#: An ID token: its text, the path of a file that is read again for each exchange, or a function that returns the text.
IdToken = Union[str, "os.PathLike[str]", Callable[[], str]]

#: The longest ID token, in bytes, that a gateway reads.
MAX_LEN = 16 * 1024
#: How long before its end a key is exchanged for a new one, at most, in seconds. A shorter key: in the last fifth of its
#: life.
EARLY = 60.0
#: For how long a token that the gateway has refused is not sent again, in seconds: refusals count for the address of the
#: program.
REFUSED_FOR = 60.0
#: What a program is told whose token was given as a text and has expired.
NOT_RENEWED = (
    " Nothing renews a token that is given as a text (LATCHGATE_ID_TOKEN). A file (LATCHGATE_ID_TOKEN_FILE) is read again"
    " for each exchange."
)
LATE = NotSent("the gateway has not exchanged the ID token for a key in time")


def environment_id_token() -> str:
    """Returns the ID token in ``LATCHGATE_ID_TOKEN``, or in the file that ``LATCHGATE_ID_TOKEN_FILE`` names."""
    text, path = os.environ.get("LATCHGATE_ID_TOKEN"), os.environ.get("LATCHGATE_ID_TOKEN_FILE")
    if text is not None:
        return text
    if not path:
        raise ValueError("there is no ID token: neither LATCHGATE_ID_TOKEN nor LATCHGATE_ID_TOKEN_FILE is set")
    return _read_file(path)


def _read_file(path: Union[str, os.PathLike[str]]) -> str:
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_LEN + 1)
        if len(text) > MAX_LEN:
            raise ValueError(f"cannot read the ID token from {os.fspath(path)}: it is longer than {MAX_LEN} bytes")
        return text.decode()
    except UnicodeDecodeError:
        # The error is dropped, because it contains the content of the file.
        raise ValueError(f"cannot read the ID token from {os.fspath(path)}: it is not UTF-8") from None
    except OSError as error:
        raise ValueError(f"cannot read the ID token from {os.fspath(path)}: {error.strerror}") from None


@dataclass(frozen=True)
class Attempt:
    """An exchange that is to be sent."""

    token: str = field(repr=False)
    call: Call


class Exchanger:
    """The key for which a client has exchanged its ID token. Several threads may use it."""

    def __init__(self, token: IdToken, key_name: Optional[str]) -> None:
        self._token = token
        self._key_name = key_name
        # The key, and from when on it is exchanged again.
        self._key: Optional[tuple[str, float]] = None
        # A refused token, until when it is not sent again, and the answer of the gateway.
        self._refused: Optional[tuple[str, float, Answer]] = None
        #: Held during an exchange of a thread, so that there is one at a time.
        self.turn = threading.Lock()

    @property
    def key(self) -> Optional[str]:
        return None if self._key is None else self._key[0]

    def is_due(self) -> bool:
        """Whether the key is about to end. It stays if no further exchange succeeds: the gateway renews leases with it
        until a day after the exchange."""
        return self._key is not None and self._key[1] <= now()

    def begin(self) -> Union[Attempt, Answer]:
        """Reads the token. Returns the exchange to send, or the answer to the request for which there is no key."""
        try:
            token = self._read().strip()
            if not token:
                raise ValueError("the ID token is empty")
        except Exception as error:
            return _problem(401, "no-id-token", str(error) or type(error).__name__)
        if self._refused is not None and self._refused[0] == token and now() < self._refused[1]:
            return self._refused[2]
        body: dict[str, Any] = {"id_token": token}
        if self._key_name is not None:
            body["name"] = self._key_name
        return Attempt(token, Call("POST", "/session/token", body=json.dumps(body).encode()))

    def _read(self) -> str:
        if isinstance(self._token, str):
            return self._token
        return self._token() if callable(self._token) else _read_file(self._token)

    def end(self, attempt: Attempt, exchange: Exchange) -> Optional[Exchange]:
        """Takes the result of an exchange. Returns ``None`` if there is a key now; otherwise the result of the request for
        which there is none. That request was not sent, so nothing is in doubt."""
        if not isinstance(exchange, Answer):
            for_good = isinstance(exchange, NotSent) and exchange.for_good
            return NotSent(f"the ID token was not exchanged for a key: {exchange.reason}", for_good)
        if exchange.status == 201 and self._take(exchange):
            return None
        problem = exchange.problem()
        if problem is not None and exchange.status in (408, 429, 503):
            return exchange
        if problem is not None and 400 <= exchange.status < 500:
            if self._is_fixed() and "(time)" in str(problem.get("detail")):
                body = {**problem, "detail": f"{problem['detail']}{NOT_RENEWED}"}
                exchange = replace(exchange, body=json.dumps(body).encode())
            self._refused = (attempt.token, now() + REFUSED_FOR, exchange)
            return exchange
        return NotSent(f"the ID token was not exchanged for a key: status {exchange.status}")

    def _take(self, answer: Answer) -> bool:
        document = answer.document() or {}
        key, lives = document.get("key"), document.get("expires_in_ms")
        if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key:
            return False
        if not isinstance(lives, int) or lives <= 0:
            return False
        seconds = min(lives, 86_400_000) / 1000
        self._key = (key, answer.sent_at + seconds - min(seconds / 5, EARLY))
        self._refused = None
        return True

    def _is_fixed(self) -> bool:
        """Whether nothing renews the token."""
        return isinstance(self._token, str) or (
            self._token is environment_id_token and "LATCHGATE_ID_TOKEN" in os.environ
        )


def with_key(call: Call, key: Optional[str]) -> Call:
    """The request with the key in its headers."""
    return replace(call, headers={**call.headers, "Authorization": f"Bearer {key}"})


def _problem(status: int, code: str, detail: str) -> Answer:
    body = {"status": status, "code": code, "title": "There is no key for the request", "detail": detail}
    return Answer(status, {}, json.dumps(body).encode(), now(), now())
