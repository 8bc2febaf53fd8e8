#!/bin/sh
# One idea: of several pushes that wait for the same deploy lock, only the newest is deployed.
#
#   examples/newest-deploy.sh COMMIT
#
# A deploy that runs is not stopped. A push that waits is left out when a newer push waits.
set -u
latchgate run deploy --latest --wait 10m --owner "push $1" -- sh -c '
    echo "deploying $1"
    sleep "${WORK_SECONDS:-1}"
    echo "deployed $1"
' sh "$1"
code=$?
if [ "$code" = 113 ]; then
    echo "left out $1: a newer push waits"
    exit 0
fi
exit "$code"
