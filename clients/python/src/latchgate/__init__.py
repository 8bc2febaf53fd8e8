"""A client of Latchgate: distributed locks over HTTP.

>>> from latchgate import Latchgate
>>> locks = Latchgate("https://locks.example.com", key=KEY)
>>> with locks("deploy", wait="10m", ttl="1m") as lease:
...     write(fence=lease.fencing_token)
"""

from .blocking.client import Guard, Latchgate
from .blocking.lease import Lease
from .durations import Duration, Wait
from .errors import GatewayUnreachable, LatchgateError, LeaseLost, LockHeld, OutcomeUnknown
from .protocol.id_token import IdToken, environment_id_token
from .protocol.names import LockTerms
from .records import (
    AwaitedLock,
    History,
    HistoryEntry,
    HistoryNote,
    Holder,
    Lock,
    Mode,
    OrderGrant,
    Page,
    ReleaseRequest,
    Reservation,
    Rest,
    ShorterLeases,
    Waiter,
)
from .version import __version__

__all__ = [
    "AwaitedLock",
    "Duration",
    "GatewayUnreachable",
    "Guard",
    "History",
    "HistoryEntry",
    "HistoryNote",
    "Holder",
    "IdToken",
    "Latchgate",
    "LatchgateError",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockHeld",
    "LockTerms",
    "Mode",
    "OrderGrant",
    "OutcomeUnknown",
    "Page",
    "ReleaseRequest",
    "Reservation",
    "Rest",
    "ShorterLeases",
    "Wait",
    "Waiter",
    "__version__",
    "environment_id_token",
]
