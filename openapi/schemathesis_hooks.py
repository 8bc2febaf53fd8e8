"""Four rules that a schema cannot say."""

import schemathesis

DEFAULT_TTL_MS = 30_000


def size(metadata):
    return sum(len(name.encode()) + len(str(value).encode()) for name, value in metadata.items())


@schemathesis.hook
def before_call(context, case, kwargs):
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
