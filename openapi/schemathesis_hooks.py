"""Rules that a schema cannot say, and bounds to how long an answer takes."""

import schemathesis

DEFAULT_TTL_MS = 30_000
# A lease that is over before the disk has it is told as unknown (504), which is right and no mistake in the
# document. No disk takes that long.
LONG_ENOUGH_MS = 5_000
# For a stream, which lasts as long: the store of the run is in memory where there is room for it.
STREAM_MS = 400


def size(metadata):
    return sum(len(name.encode()) + len(str(value).encode()) for name, value in metadata.items())


def shorten(case):
    """A stream goes on for as long as the lease, and the lease for as long as the stream: bound it."""
    if case.operation.path.endswith("/hold"):
        if not isinstance(case.body, (dict, list, str, int, float, bool, type(None))):
            case.body, case.media_type = {}, "application/json"
        if isinstance(case.body, dict):
            for name in "ttl_ms", "max_hold_ms":
                value = case.body.get(name)
                if value is None or (type(value) in (int, float) and 100 <= value <= 604_800_000):
                    case.body[name] = STREAM_MS
    elif isinstance(case.body, dict):
        for name in "ttl_ms", "max_hold_ms":
            value = case.body.get(name)
            if type(value) in (int, float) and 100 <= value < LONG_ENOUGH_MS:
                case.body[name] = LONG_ENOUGH_MS
    if isinstance(case.body, dict):
        wait = case.body.get("wait_ms")
        if type(wait) in (int, float) and 20 < wait <= 55_000:
            case.body["wait_ms"] = 20


@schemathesis.hook
def before_call(context, case, kwargs):
    shorten(case)
    # A wait that is preferred is one like any other.
    if case.headers and "Prefer" in case.headers:
        case.headers["Prefer"] = "wait=0"
    # The token of a release is in the header if the body is left out; no schema can say that either.
    if case.operation.path.endswith("/release") and not isinstance(case.body, dict):
        case.headers = case.headers or {}
        case.headers.setdefault("Lock-Token", "A" * 43)
    # A cursor is what an earlier page gave out, and is checked; no schema can say that.
    if case.query:
        case.query.pop("cursor", None)
    body = case.body
    if not isinstance(body, dict):
        return
    # Whole numbers are written as such: a schema takes 30000.0 for an integer, the gateway does not.
    for name, value in body.items():
        if isinstance(value, float) and value.is_integer():
            body[name] = int(value)
    # `max_hold_ms` is never less than `ttl_ms`.
    ttl, hold = body.get("ttl_ms"), body.get("max_hold_ms")
    ttl = DEFAULT_TTL_MS if ttl is None else ttl
    if type(ttl) is int and type(hold) is int and 100 <= hold < ttl <= 86_400_000:
        body["max_hold_ms"] = ttl
    # All names and values of `metadata` together are at most 2048 bytes.
    metadata = body.get("metadata")
    while isinstance(metadata, dict) and size(metadata) > 2048:
        metadata.pop(max(metadata, key=lambda name: len(str(metadata[name])) + len(name)))
    # A token in the header and another one in the body is refused.
    if "token" in body and "Lock-Token" in (case.headers or {}):
        del case.headers["Lock-Token"]
