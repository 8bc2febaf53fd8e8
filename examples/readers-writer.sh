#!/bin/sh
# One idea: many read a file at once, and who replaces a part of it does so alone.
#
#   examples/readers-writer.sh read FILE
#   examples/readers-writer.sh write FILE <NEW
#
# A writer waits until those who read are done. Who comes to read meanwhile waits behind it.
set -eu
case $1 in
read) exec latchgate run catalog --shared -- cat "$2" ;;
write) exec latchgate run catalog -- sh -c 'cat >"$1"' sh "$2" ;;
*) echo "read or write?" >&2; exit 2 ;;
esac
