#!/bin/sh
# One idea: a deploy script that nobody runs twice at once, with nothing but curl.
#
#   latchgate serve            # in another terminal
#   examples/curl.sh
#
# It waits up to 25 seconds for its turn, renews nothing (the TTL is longer than the work may take), and gives
# the lock back however it ends.
set -eu
gateway=${LATCHGATE_URL:-http://localhost:7420}
lock="$gateway/locks/deploy"

# The lock is given back however this ends, also if a signal comes just when it is granted.
answer=
field() { printf '%s' "$answer" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",]*\).*/\1/p"; }
release() {
    [ -z "$(field token)" ] ||
        curl --silent --show-error --fail --retry 3 -X DELETE --header "Lock-Token: $(field token)" "$lock"
}
trap release EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A fresh key for this run: if the answer gets lost, curl asks again and is given the same lease, not a second one.
key=$(uuidgen 2>/dev/null || cat /proc/sys/kernel/random/uuid)
answer=$(curl --silent --show-error --fail-with-body --retry 3 --retry-all-errors --max-time 40 \
    --header "Idempotency-Key: $key" \
    --json '{"ttl_ms": 120000, "wait_ms": 25000, "owner": "curl example"}' "$lock") || {
    echo "not my turn: $answer" >&2
    exit 1
}

echo "deploying under fencing token $(field fencing_token)"
sleep "${WORK_SECONDS:-1}"
echo "deployed"
