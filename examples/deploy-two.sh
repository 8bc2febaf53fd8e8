#!/bin/sh
# One idea: a deploy needs the database and the cluster, both or neither.
#
# Somebody who migrates the database and somebody who upgrades the cluster never meet a deploy half-way, and nobody
# holds one of the two while waiting for ever for the other.
set -eu
exec latchgate run database cluster:eu --wait 5m --owner "deploy@$(hostname)" -- sh -c '
    echo "deploying with $LATCHGATE_FENCING_TOKENS"
'
