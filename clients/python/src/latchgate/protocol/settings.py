"""The settings of a client that apply to all of its requests."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Optional
from urllib.parse import urlsplit

from .. import version
from ..durations import Duration, seconds
from .id_token import Exchanger, IdToken
from .process import OfProcess
from .silence import Silence

#: The longest wait of one request, in seconds: shorter than the time-outs of common proxies and load balancers, the
#: shortest of which is 29 seconds.
LONGEST_WAIT = 20.0
#: The time limit for the answer to one copy after its wait, and for connecting, in seconds.
REQUEST_TIMEOUT = 5.0
#: How long a call without a wait is tried, in seconds.
DEADLINE = 10.0

_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Settings:
    """The settings of a client that apply to all of its requests."""

    #: The URL of the gateway, without a slash at its end.
    url: str
    key: Optional[str] = field(default=None, repr=False)
    owner: Optional[str] = None
    request_wait: float = LONGEST_WAIT
    request_timeout: float = REQUEST_TIMEOUT
    deadline: float = DEADLINE
    #: Has the key for which the client exchanges its ID token; ``None`` without an ID token. A forked child exchanges for
    #: itself.
    exchanger: Optional[OfProcess[Exchanger]] = field(default=None, repr=False, compare=False)
    #: What the client has seen of a gateway that does not answer.
    silence: Silence = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "silence", Silence(self.url))

    @classmethod
    def of(
        cls,
        url: str,
        key: Optional[str],
        owner: Optional[str],
        request_wait: Optional[Duration],
        request_timeout: Optional[Duration],
        deadline: Optional[Duration],
        id_token: Optional[IdToken] = None,
        key_name: Optional[str] = None,
    ) -> Settings:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("the url of a gateway begins with http:// or https:// and names a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("the url of a gateway has no user, query or fragment; give the API key as key")
        if key is not None and not _VISIBLE.fullmatch(key):
            raise ValueError("the API key has characters that no key has")

        # An API key counts before an ID token.
        token = id_token if key is None else None
        exchanger = None if token is None else OfProcess(functools.partial(Exchanger, token, key_name))

        def given(value: Optional[Duration], default: float, what: str) -> float:
            return default if value is None else seconds(value, what)

        return cls(
            url=url.rstrip("/"),
            key=key,
            owner=owner,
            request_wait=given(request_wait, LONGEST_WAIT, "request_wait"),
            request_timeout=given(request_timeout, REQUEST_TIMEOUT, "request_timeout"),
            deadline=given(deadline, DEADLINE, "deadline"),
            exchanger=exchanger,
        )

    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        headers = {"Accept": "application/json", "User-Agent": f"latchgate-python/{version.__version__}"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers
