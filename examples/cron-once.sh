#!/bin/sh
# One idea: the same crontab on many machines, and each night one of them does the work.
#
#   0 3 * * *  LATCHGATE_URL=http://locks:7420 /opt/examples/cron-once.sh
#
# The lock is named after the day and is not given back: a machine whose clock is some minutes late finds it held and
# goes back to sleep. It ends by itself, an hour later.
set -eu
day=$(date -u +%F)
status=0
latchgate acquire "nightly:$day" --ttl 1h --owner "$(hostname)" >/dev/null || status=$?
case $status in
0) echo "the nightly work of $day is mine" ;;
100) echo "somebody else does the nightly work of $day"; exit 0 ;;
*) exit "$status" ;; # No gateway, or no answer: cron sends a mail.
esac
