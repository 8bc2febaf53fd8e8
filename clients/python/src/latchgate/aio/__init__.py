"""The client for asyncio. It needs httpx: ``pip install 'latchgate-client[aio]'``.

>>> from latchgate.aio import Latchgate
>>> async with Latchgate("https://locks.example.com", key=KEY) as locks:
...     async with locks("deploy", wait="10m", ttl="1m") as lease:
...         await write(fence=lease.fencing_token)
"""

from .client import Guard, Latchgate
from .lease import Lease

__all__ = ["Guard", "Latchgate", "Lease"]
