#!/bin/sh
# Runs a command under a lock, with nothing but curl:
#
#   LATCHGATE_URL=https://locks.example.com ./locked.sh deploy:production ./deploy.sh
#
# README.md has the settings and the exit codes.
set -u
[ $# -ge 2 ] || { echo "usage: locked.sh NAME COMMAND [ARG..]" >&2; exit 2; }
name=$1
shift
lock=${LATCHGATE_URL:-http://localhost:7420}/locks/$name
ttl=${LOCK_TTL:-60}                           # seconds, at least 6
grace=$((ttl / 6))                            # for one renewal, and for the command to end after a TERM
owner=$(printf %s "${LOCK_OWNER:-$(uname -n)}" | tr -d '[:cntrl:]"\\')

say() { echo "locked.sh: $name: $*" >&2; }
now() { cut -d. -f1 /proc/uptime; }           # seconds on a clock that nobody sets
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$home/answer"; }

# call SECONDS METHOD URL [BODY]: sets $status; 000 without an answer. No secret is an argument of curl.
call() {
    curl --silent --config "$home/curl" --max-time "$1" --request "$2" --output "$home/answer" \
        --header 'Content-Type: application/json' ${4:+--data "$4"} --write-out '%{http_code}' "$3" \
        >"$home/status" 2>/dev/null &
    curl=$!
    wait "$curl"                              # a signal ends this at once, but no command in the foreground
    curl=''
    status=$(cat "$home/status")
}
# ask SECONDS: acquires the lock, waiting for so long.
ask() {
    body="{\"ttl_ms\": $((ttl * 1000)), \"wait_ms\": $(($1 * 1000)), \"owner\": \"$owner\"}"
    call $(($1 + 10)) POST "$lock" "$body"
}

# granted: whether the lock was granted. From now on, curl sends the token.
granted() {
    case $status in 200 | 201) ;; *) return 1 ;; esac
    echo "header = \"Lock-Token: $(field token)\"" >>"$home/curl"
    state=held
}

# stop SECONDS: ends the command and what it has started; what is left after that time is killed.
stop() {
    # The process group is not there yet in the moment in which the command starts.
    kill -s TERM -- "-$command" 2>/dev/null || { [ -z "$ended" ] && kill -TERM "$command" 2>/dev/null; } || return 0
    for _ in $(seq "$(($1 * 10))"); do
        kill -s 0 -- "-$command" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -s KILL -- "-$command" 2>/dev/null
}

lost() {
    say "$1; the command is stopped"
    touch "${home%/renewer}/lost"
    stop "$2"
    exit
}

# Renews until this script is gone, or the lease cannot be kept. The lease counts from when it was asked for.
renew() {
    trap '' INT TERM HUP                      # also where a runner signals every process of the job
    home=$home/renewer
    due=0
    while grep -q . "/proc/$$/cmdline" 2>/dev/null; do      # a zombie has none
        began=$(now)
        if [ "$began" -ge "$due" ]; then
            call "$grace" PUT "$lock/renew"
            case $status in
            200) since=$began due=$((began + ttl / 3)) ;;
            000 | 408 | 429 | 5??) ;;         # again in a second
            *) lost "the lease is lost (status $status)" 1 ;;
            esac
        fi
        # One more renewal may take the grace, and the end of the command once more.
        [ "$(now)" -lt $((since + ttl - 2 * grace - 1)) ] || lost "the gateway does not renew the lease" "$grace"
        sleep 1
    done
    stop "$grace"
    call "$grace" DELETE "$lock"
    rm -rf "${home%/renewer}"
}

# However this ends: the command ends first, then the renewals, then the lease or the place in the queue.
finish() {
    code=$?
    trap '' INT TERM HUP
    [ -z "$curl" ] || kill "$curl" 2>/dev/null
    if [ -e "$home/lost" ]; then
        wait "$renewer"                       # it stops the command; there is nothing to release
        state=none
    elif [ -n "$command" ]; then
        stop "$grace"
    fi
    [ -z "$renewer" ] || { kill -KILL "$renewer"; wait "$renewer"; } 2>/dev/null
    [ "$state" != asked ] || { ask 0; granted; }
    if [ "$state" = held ]; then
        for _ in 1 2 3; do
            call 10 DELETE "$lock"
            case $status in 204 | 4??) break ;; *) sleep 1 ;; esac
        done
    fi
    rm -rf "$home"
    exit "$code"
}

command='' ended='' renewer='' curl='' state=none
home=$(mktemp -d) && mkdir "$home/renewer" || exit 1
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# With a key, a repeated request keeps the place in the queue, and a lost answer is given again.
{
    echo "header = \"Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)\""
    [ -z "${LATCHGATE_KEY:-}" ] || echo "header = \"Authorization: Bearer $LATCHGATE_KEY\""
} >"$home/curl"
state=asked
link=1                                        # the first request is short: it tells who holds the lock
deadline=$(($(now) + ${LOCK_WAIT:-600}))
while :; do
    since=$(now)
    left=$((deadline - since))
    ask $((left < 0 ? 0 : left > link ? link : left))
    ! granted || break
    case $status in
    423) code=101 said="held by $(field owner)" ;;
    000) code=103 said="no gateway answers" ;;
    429 | 503) code=104 said="the gateway cannot serve now: $(field code)" ;;
    504) code=105 said="the outcome is not known" ;;
    *) say "refused: $status $(field code)"; exit 106 ;;
    esac
    [ "$(now)" -lt $deadline ] || { say "given up: $said"; exit $code; }
    [ "$said" = "${before:-}" ] || say "waiting: $said"
    before=$said link=20
    [ "$status" = 423 ] || sleep 1
done

exec 3<&0
LATCHGATE_FENCING_TOKEN=$(field fencing_token) setsid "$@" <&3 3<&- &
command=$!
cp "$home/curl" "$home/renewer/curl"
renew &
renewer=$!
wait "$command"
code=$? ended=yes
[ ! -e "$home/lost" ] || code=102
exit $code
