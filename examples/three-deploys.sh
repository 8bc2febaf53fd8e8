#!/bin/sh
# One idea: at most three deploys at once, on whatever machines, and the next one waits its turn.
#
#   examples/three-deploys.sh SERVICE
#
# Whoever deploys names the same limit: it binds at one's own grant only.
set -eu
exec latchgate run deploys --limit 3 --owner "deploy of $1" -- sh -c '
    echo "deploying $1 as one of three, number $LATCHGATE_SLOT"
    sleep "${WORK_SECONDS:-1}"
    echo "deployed $1"
' sh "$1"
