#!/bin/sh
# One idea: the same crontab on many machines, and each night one of them does the work.
#
#   15 3 * * *  LATCHGATE_URL=http://locks:7420 /opt/examples/cron-once.sh backup /opt/backup.sh --all
#
# `latchgate run backup --min-hold 10m --wait 0 -- /opt/backup.sh --all` does the same without this program, with every
# store but a quorum. LATCHGATE_URL must lead all machines to one store, so it is not localhost.
#
# The lock is named after the job and the day in UTC, and is not released: a machine whose clock is some minutes late finds
# the lock held, and does nothing. The lease ends an hour later. The exit code is that of the command.
#
# Do not start a job near midnight UTC: two machines whose clocks differ would take the locks of two days. At 15 minutes
# past an hour, midnight UTC is at least 15 minutes away in every time zone. On a quorum (redlock://) a TTL is at most
# redlock.max_ttl_ms, a minute by default: write --ttl 1m below.
set -eu
[ $# -ge 2 ] || { echo "usage: cron-once.sh JOB COMMAND [ARG..]" >&2; exit 2; }
lock=$1:$(date -u +%F)
shift
command -v "$1" >/dev/null || { echo "cron-once.sh: there is no command $1" >&2; exit 127; }
status=0
latchgate acquire "$lock" --ttl 1h --owner "$(hostname)" >/dev/null || status=$?
case $status in
0) exec "$@" ;;
100) echo "somebody else does the work of $lock" ;;
*) exit "$status" ;; # No gateway, or no answer: cron sends a mail.
esac
