#!/bin/sh
# Runs a command under a lock, with nothing but curl:
#
#   LATCHGATE_URL=https://locks.example.com ./locked.sh deploy:production ./deploy.sh
#
# README.md has the settings and the exit codes.
set -u
say() { echo "locked.sh: $name: $*" >&2; }

# check_name: $name can be the name of a lock.
check_name() {
    case $name in
    *[!A-Za-z0-9._:@~/-]* | "") say "a name has the characters A-Z a-z 0-9 . _ : @ ~ - /"; exit 2 ;;
    */break | */check | */granted-order | */history | */hold | */release | */renew) say "a name has no operation after its last /"; exit 2 ;;
    esac
    case /$name/ in
    *//* | */./* | */../*) say "a name has no / at its ends, no //, and neither . nor .. between slashes"; exit 2 ;;
    esac
    [ ${#name} -le 200 ] || { say "a name has at most 200 characters"; exit 2; }
}
# share HOW: sets $sharing, the fields of a request for a lock that is shared so.
share() {
    case $1 in
    exclusive) sharing=', "mode": "exclusive"' ;;
    shared) sharing=', "mode": "shared"' ;;
    '' | *[!0-9]* | 0* | ?????*) say "behind the = stands shared, exclusive, or a whole number from 1 to 9999"; exit 2 ;;
    *) sharing=", \"mode\": \"shared\", \"limit\": $1" ;;
    esac
}

names=${LOCK_NAMES:-}
if [ -z "$names" ]; then
    [ $# -ge 2 ] || { echo "usage: locked.sh NAME COMMAND [ARG..]; or LOCK_NAMES='NAME NAME=LIMIT ..' locked.sh COMMAND [ARG..]" >&2; exit 2; }
    name=$1
    shift
    check_name
else
    name=$names
    [ $# -ge 1 ] || { say "there is no command"; exit 2; }
fi
command -v curl >/dev/null || { say "there is no curl"; exit 2; }
url=${LATCHGATE_URL:-http://localhost:7420}
locks=${url%/}/locks
# A variable of the job with the name of one that holds a secret here would be exported with it.
unset key token id_token id_file refused_token config
key=${LATCHGATE_KEY:-} id_token='' id_file='' config=''
# The ID token of the job is not for curl and the command.
if [ -z "$key" ]; then
    id_token=${LATCHGATE_ID_TOKEN:-}
    [ -n "$id_token" ] || id_file=${LATCHGATE_ID_TOKEN_FILE:-}
    [ -z "$id_file" ] || [ -r "$id_file" ] || { say "cannot read LATCHGATE_ID_TOKEN_FILE"; exit 2; }
fi
unset LATCHGATE_ID_TOKEN LATCHGATE_ID_TOKEN_FILE
ttl=${LOCK_TTL:-60} longest=${LOCK_WAIT:-600} # seconds
case $ttl,$longest in *[!0-9,]* | *,*,* | 0* | *,0?*) say "LOCK_TTL and LOCK_WAIT are whole seconds"; exit 2 ;; esac
[ "$ttl" -ge 6 ] || { say "LOCK_TTL: at least 6 seconds"; exit 2; }
mode=${LOCK_MODE:-} limit=${LOCK_LIMIT:-} sharing=''
case $mode in '' | exclusive | shared) ;; *) say "LOCK_MODE is exclusive or shared"; exit 2 ;; esac
case $limit in *[!0-9]* | 0* | ?????*) say "LOCK_LIMIT is a whole number from 1 to 9999"; exit 2 ;; esac
# Without a mode, the lock is held as the gateway's operator has declared it, or alone.
[ -z "$limit$mode" ] || share "${limit:-$mode}"
if [ -n "$names" ]; then
    of_all=$sharing wanted=''
    case " $names " in *" -- "*) say "LOCK_NAMES: -- is no name"; exit 2 ;; *[!\ ]*) ;; *) say "LOCK_NAMES has no name"; exit 2 ;; esac
    set -f
    # shellcheck disable=SC2086 # the names are words
    set -- $names -- "$@"
    while [ "$1" != -- ]; do
        name=${1%%=*} sharing=$of_all
        check_name
        [ "$1" = "$name" ] || share "${1#*=}"
        wanted="$wanted, {\"name\": \"$name\"$sharing}"
        shift
    done
    shift
    set +f
    name=$(echo "$names" | tr -s '[:space:]' '\n' | sed '/./!d; s/=.*//' | LC_ALL=C sort | tr '\n' ,)
    name=${name%,} terms=", \"names\": [${wanted#, }]"
else
    terms=$sharing
fi
case $name in
*,*) acquire=$locks renew="$locks?names=$name" release="$locks?names=$name" unused='&unused=true' ;;
*)
    # One lock, named in either way.
    terms=$sharing names=''
    acquire=$locks/$(printf %s "$name" | sed 's,/,%2F,g')
    renew=$acquire/renew release=$acquire unused='?unused=true'
    ;;
esac
plain() { printf %s "$1" | tr -d '[:cntrl:]"\\'; }
if [ -n "${LOCK_LATEST:-}" ]; then
    [ -z "$names" ] || { say "LOCK_LATEST is for one lock"; exit 2; }
    terms="$terms, \"supersedes\": \"$(plain "$LOCK_LATEST")\""
fi
# What was to be a number is empty: without an order, older work would be deployed.
[ "${LOCK_ORDER-unset}" ] || { say "LOCK_ORDER is set, and empty"; exit 2; }
case ${LOCK_ORDER:-} in
'') [ -z "${LOCK_ROLLBACK:-}" ] || { say "LOCK_ROLLBACK goes with LOCK_ORDER"; exit 2; } ;;
*[!0-9]* | 0?* | ?????????????????*) say "LOCK_ORDER is a whole number up to 9007199254740991"; exit 2 ;;
*) terms="$terms, \"order\": $LOCK_ORDER${LOCK_ROLLBACK:+, \"rollback\": \"$(plain "$LOCK_ROLLBACK")\"}" ;;
esac
# Where people find the job: in GitLab, Jenkins and GitHub.
link=${LOCK_LINK-${CI_JOB_URL:-${BUILD_URL:-${GITHUB_RUN_ID:+${GITHUB_SERVER_URL:-}/${GITHUB_REPOSITORY:-}/actions/runs/$GITHUB_RUN_ID}}}}
link=$(plain "$link")
[ -z "$link" ] || [ ${#link} -gt 500 ] || terms="$terms, \"metadata\": {\"run\": \"$link\"}"
grace=$((ttl / 6))                            # for one renewal, and for the command to end after a TERM
owner=$(plain "${LOCK_OWNER:-$(uname -n)}")

ticks() { sed 's/\.\(..\) .*/\1/' /proc/uptime; }     # hundredths of a second on a clock that nobody sets
now() { echo $(($(ticks) / 100)); }           # seconds
runs() { grep -q . "/proc/$1/cmdline" 2>/dev/null; }  # a zombie has none
# A text or a number of the answer. In a text, what is escaped stays so.
field() {
    sed -n -e "s/.*\"$1\":\"\([^\"\\\\]*\(\\\\.[^\"\\\\]*\)*\)\".*/\1/p" \
        -e "s/.*\"$1\":\([0-9]*\)[,}].*/\1/p" "$home/answer"
}
# by_name FIELD: a JSON object from the names of the locks to a number that the leases of several locks have.
by_name() {
    tr '{' '\n' <"$home/answer" | sed -n "s/^\"name\":\"\([^\"]*\)\".*\"$1\":\([0-9][0-9]*\)[,}].*/\"\1\":\2/p" |
        tr '\n' , | sed 's/^/{/; s/,$//; s/$/}/'
}
# Why the gateway refuses.
detail() { field detail | sed 's/\\\(["\\/]\)/\1/g'; }
refused() { say "refused: $status $(field code)$(detail | sed 's/^/: /')"; }

# once SECONDS METHOD URL [BODY]: sets $status, and $answer, which is the status and the code of the problem. Without a whole
# answer $status is 000, and $answer says whether the request was unsent, refused for a certificate, or its answer lost.
# Sets $asked: after how many seconds to come again. No secret is an argument of curl, and no answer without end fills the
# disk.
once() {
    : >"$home/answer"
    : >"$home/head"
    (
        trap '' XFSZ
        ulimit -f 4096
        exec curl --silent --show-error --config "${config:-$home/curl}" --max-time "$1" --request "$2" --output "$home/answer" \
            --dump-header "$home/head" --header 'Content-Type: application/json' ${4:+--data "$4"} \
            --write-out '%{http_code} %{size_request}' "$3" >"$home/status" 2>"$home/error" 4>&-
    ) &
    curl=$!
    wait "$curl"                              # a signal ends this at once, but no command in the foreground
    reached=$? curl=''
    read -r status sent <"$home/status"
    answer=$status$(field code)
    # Several locks have an outcome each. The worst counts.
    if [ -n "$names" ] && [ "$2" != POST ] && [ "$status" = 200 ]; then
        ! grep -q '"code":"' "$home/answer" || status=503
        ! grep -q '"code":"outcome-unknown"' "$home/answer" || status=504
        ! grep -q '"code":"lease-lost"' "$home/answer" || status=410
        answer=$status
    fi
    if [ $reached != 0 ]; then
        status=000 answer=000lost
        # If curl was killed, there is no size: the request may have been sent.
        [ "${sent:-1}" != 0 ] || answer=000unsent
        # In TLS 1.3 curl writes the request before the gateway refuses the certificate. The gateway does not read it then.
        [ $reached != 60 ] && ! grep -q 'alert.*\(certificate\|unknown ca\|access denied\|decrypt error\)' "$home/error" ||
            answer=000refused
    fi
    asked=$(sed -n 's/^[Rr]etry-[Aa]fter: *0*\([0-9]\{1,5\}\)[[:space:]]*$/\1/p' "$home/head" | tail -n 1)
    [ -n "$asked" ] || asked=$(field retry_after_ms | sed -n 's/^\([1-9][0-9]\{0,4\}\)[0-9]\{3\}$/\1/p')
    asked=${asked:-0}
}
# exchange SECONDS: exchanges the ID token for a key, which curl sends from now on. Without a key, sets $status and $answer of the request
# that cannot be sent. A refused token is not sent again, because refusals count for the address of the runner.
exchange() {
    token=$id_token
    [ -z "$id_file" ] || token=$(tr -d '[:space:]' 2>/dev/null <"$id_file")
    case $token in *[!A-Za-z0-9._-]* | '') no_key no-id-token "there is no ID token in its variable or file"; return 1 ;; esac
    [ "$token" != "${refused_token:-}" ] || { no_key unauthorized "the ID token was refused before"; return 1; }
    printf '{"id_token": "%s"}' "$token" >"$home/token"
    config=/dev/null
    once "$1" POST "${url%/}/session/token" "@$home/token"
    rm -f "$home/token"
    config=''
    key=$(field key)
    case $status in
    201) ;;
    # The request was not sent, whatever became of the exchange.
    000) [ $answer != 000lost ] || { status=503 answer=503not-exchanged; }; return 1 ;;
    408 | 429 | 503) return 1 ;;
    4??) refused_token=$token; return 1 ;;
    *) status=503 answer=503not-exchanged; return 1 ;;
    esac
    case $key in *[!A-Za-z0-9._~+/=-]* | '') status=503 answer=503not-exchanged; return 1 ;; esac
    grep -v '^header = "Authorization:' "$home/curl" >"$home/curl.new"
    echo "header = \"Authorization: Bearer $key\"" >>"$home/curl.new"
    mv "$home/curl.new" "$home/curl"
}
# no_key CODE WHY: what call sets if the request is not sent.
no_key() {
    status=401 answer=401$1 asked=0 reached=0
    printf '{"code":"%s","detail":"%s"}\n' "$1" "$2" >"$home/answer"
}
# call SECONDS METHOD URL [BODY]: as once, with a key for which the ID token of the job is exchanged, if it has one. After the end
# of a key the gateway still renews and releases for a day.
call() {
    call_ends=$(($(now) + $1))
    if [ -n "$id_token$id_file" ] && [ -z "$key" ]; then
        exchange "$1" || return 0
    fi
    once "$(left "$@")" "$2" "$3" "${4:-}"
    [ "$status" = 401 ] && [ -n "$id_token$id_file" ] || return 0
    ! exchange "$(left "$@")" || once "$(left "$@")" "$2" "$3" "${4:-}"
}
# left SECONDS METHOD: how many seconds of the call are left. A renewal that took longer would let its lease end; an acquire waits
# as long as it says.
left() {
    left=$((call_ends - $(now)))
    [ "$2" != POST ] || left=$1
    echo $((left > 1 ? left : 1))
}
# pause SECONDS: as long as the last answer asks for, not quite the same for all, but no longer than this.
pause() {
    seconds=$((asked + asked * ($$ % 50) / 100))
    [ $seconds -lt "$1" ] || seconds=$1
    sleep $((seconds > 1 ? seconds : 1)) 4>&- &
    curl=$!
    wait "$curl"
    curl=''
}
# A new request: with its key, a repeated one keeps the place in the queue, and a lost answer is given again.
begin() {
    echo "header = \"Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)\"" >"$home/curl"
    [ -z "$key" ] || echo "header = \"Authorization: Bearer $key\"" >>"$home/curl"
    state=asked
}
# ask SECONDS: acquires the lock, waiting for so long. With LOCK_LATEST a further request says for how long the job has waited:
# otherwise, after a restart of the gateway, it would count as newer than the jobs that came in between.
ask() {
    waited=''
    if [ -n "$asked_at" ] && [ -n "${LOCK_LATEST:-}" ]; then
        waited=$((($(ticks) - asked_at) * 10))
        waited=", \"waiting_since_ms\": $((waited < 3600000 ? waited : 3600000))"
    fi
    asked_at=${asked_at:-$(ticks)}
    body="{\"ttl_ms\": $((ttl * 1000)), \"wait_ms\": $(($1 * 1000)), \"owner\": \"$owner\"$terms$waited}"
    call $(($1 + 10)) POST "$acquire" "$body"
}

# granted: whether the lock was granted, in a way that can be used. From now on, curl sends the token.
granted() {
    case $status in 200 | 201) ;; *) return 1 ;; esac
    field token | grep -qx '[A-Za-z0-9_-]\{43\}' || return 1
    field fencing_token | grep -qx '[1-9][0-9]\{0,15\}' || return 1
    [ "$state" = held ] || echo "header = \"Lock-Token: $(field token)\"" >>"$home/curl"
    state=held fence=$(field fencing_token) slot=$(field slot)
    [ -n "$names" ] || return 0
    # With several locks, the numbers of the first one stand alone, too.
    fences=$(by_name fencing_token) slots=$(by_name slot)
    fence=$(of_first "$fences") slot=$(of_first "$slots")
}
# of_first OBJECT: the number of the first of several locks in such an object, if it has one.
of_first() { printf %s "$1" | sed -n "s,^{\"${name%%,*}\":\([0-9]*\).*,\1,p"; }

# stop SECONDS: ends the command and what it has started; what is left after that time is killed.
stop() {
    # The process group is not there yet in the moment in which the command starts.
    kill -s TERM -- "-$command" 2>/dev/null || { [ -z "$ended" ] && kill -TERM "$command" 2>/dev/null; } || return 0
    end=$(($(ticks) + $1 * 100))
    while [ "$(ticks)" -lt "$end" ]; do
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
    due=$((since + ttl / 3))
    while runs $$; do
        began=$(now)
        if [ "$began" -ge "$due" ]; then
            call "$grace" PUT "$renew"
            case $status in
            200) since=$began due=$((began + ttl / 3)) ;;
            410) lost "the lease is lost" 1 ;;
            # Again, until the lease is over. It has no time for all that a gateway may ask for.
            *) due=$(($(now) + 1 + (asked < ttl / 10 ? asked : ttl / 10))) ;;
            esac
        fi
        # One more renewal may take the grace, and the end of the command once more.
        [ "$(now)" -lt $((since + ttl - 2 * grace - 1)) ] || lost "the gateway does not renew the lease" "$grace"
        sleep 1 4>&-
    done
    stop "$grace"
    call "$grace" DELETE "$release"
    rm -rf "${home%/renewer}"
}

# However this ends: the command ends first, then the renewals, then the lease or the place in the queue.
finish() {
    code=$?
    trap '' INT TERM HUP
    [ -z "$curl" ] || kill "$curl" 2>/dev/null
    if [ -e "$home/lost" ]; then
        wait "$renewer"                       # it stops the command; of one lock there is nothing to release
        [ -n "$names" ] || state=none
        [ -z "$ended" ] || code=102
    elif [ -n "$command" ]; then
        stop "$grace"
    fi
    [ -z "$renewer" ] || { kill -KILL "$renewer"; wait "$renewer"; } 2>/dev/null
    [ "$state" = asked ] && end=5 || end=20   # a place in the queue lasts 5 s by itself
    end=$(($(now) + end)) unanswered=''
    # What was not started has not used the lock.
    [ -n "$command" ] && [ ! -e "$home/unstarted" ] && unused=''
    while [ "$state" != none ] && [ "$(now)" -lt $end ]; do
        if [ "$state" = asked ]; then
            ask 0
            ! granted || continue
            [ $reached != 7 ] || break        # nobody listens
        else
            call 10 DELETE "$release$unused"
            case $answer in 000lost | 408 | 50[0-9] | 504*) unanswered=yes ;; esac
        fi
        case $answer in
        000unsent | 000lost | 408* | 409request-replaced | 429* | 5*) pause $((end - 1 - $(now))) ;;
        *) break ;;
        esac
    done
    case $state$status in
    held2??) ;;
    held410)
        if [ -e "$home/lost" ] || [ -z "$ended" ] || [ -n "$unused" ]; then
            :
        elif [ -n "$unanswered" ]; then
            say "the command ended with exit code $code, but it is unknown whether the lease lasted until then"
            code=105
        else
            say "the command ended with exit code $code, but the lease was lost before"
            code=102
        fi
        ;;
    held*) say "not released (status $status): the lock is free when its TTL is over" ;;
    esac
    rm -rf "$home"
    exit "$code"
}

command='' ended='' renewer='' curl='' state=none status='' asked_at=''
home=$(mktemp -d) && mkdir "$home/renewer" && mkfifo "$home/renews" || exit 1
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

begin
piece=1                                       # the first request is short: it tells who holds the lock
longest_piece=20
deadline=$(($(ticks) + longest * 100))
while :; do
    since=$(now)
    left=$(((deadline - $(ticks) + 99) / 100))
    ask $((left < 0 ? 0 : left > piece ? piece : left))
    if granted; then
        answered=$(grep -o '"name":"[^"]*"' "$home/answer" | cut -d '"' -f 4 | tr '\n' ,)
        if [ "${answered%,}" != "$name" ]; then
            say "the answer is about the lock ${answered%,}: a proxy has changed the path of the request"
            exit 105
        fi
        [ "$status" = 201 ] && [ "$(now)" -lt $((since + grace)) ] && break
        # Nobody knows when a lease was granted whose answer took long or was lost.
        since=$(now)
        call "$grace" PUT "$renew"
        [ "$status" != 200 ] || break
    fi
    on='' has=''
    case $answer in
    423*)
        code=101 said=$(field owner) said="held by ${said:-somebody}"
        ! grep -q '"reservation":{' "$home/answer" || said=$(field detail)
        # Several locks are acquired in the order of their names.
        [ -z "$names" ] || on=$(sed -n 's/^{.*"code":"locked","request_id":"[^"]*","name":"\([^"]*\)".*/\1/p' "$home/answer")
        case ,$name, in
        ",$on,"*) ;;
        *",$on,"*) has=${name%%",$on"*} ;;
        *) on='' ;;
        esac
        ;;
    000refused) say "a certificate is refused: $(head -n 1 "$home/error" | tr -d '[:cntrl:]')"; exit 103 ;;
    000unsent)
        case $reached in
        1 | 3) say "LATCHGATE_URL is none that curl understands"; state=none; exit 2 ;;
        58 | 77) say "curl cannot use its file with certificates"; state=none; exit 2 ;;
        esac
        code=103 said="no gateway answers"
        ;;
    000lost) code=105 said="no whole answer came" ;;
    400invalid-request)
        # A gateway may allow shorter waits only.
        { grep -q '"field":"wait_ms"' "$home/answer" && [ $piece -gt 1 ]; } || { refused; exit 106; }
        longest_piece=$((piece / 2)) piece=$longest_piece
        continue
        ;;
    503fence-exhausted) refused; exit 106 ;;
    409newer-waiter) say "a newer waiter with the same LOCK_LATEST took over"; state=none; exit 113 ;;
    409outdated-order) say "$(detail)"; state=none; exit 114 ;;
    408* | 429* | 503*) code=104 said="the gateway cannot serve now: $status $(field code)" ;;
    409idempotency-expired | 410*)
        # Of several locks, some may still be held: this script would wait for itself.
        [ "$state" != held ] || [ -z "$names" ] || call 5 DELETE "$release&unused=true"
        begin
        code=105 said="granted, but the answer came too late"
        ;;
    200* | 201*)
        code=105 said="the answer is not understood: $status"
        [ -z "$(field name)" ] || { say "$said"; exit $code; }
        ;;
    409request-replaced | 502* | 504* | 5??) code=105 said="the outcome is not known: $status $(field code)" ;;
    5*) say "the outcome is not known: $status $(field code)"; exit 105 ;;
    3*)
        # The password and the query of a location may be secrets.
        to=$(sed -n 's/^[Ll]ocation: *\([^?#[:space:]]*\).*/\1/p' "$home/head" | sed 's,//[^/]*@,//,' | tr -d '[:cntrl:]')
        say "refused: $status, a redirect to $to, which is not followed"
        exit 106
        ;;
    *) refused; exit 106 ;;
    esac
    [ "$(ticks)" -lt $deadline ] || { say "given up: ${on:+$on: }$said"; exit $code; }
    said="${has:+have $has, }waiting${on:+ for $on}: $said"
    [ "$said" = "${before:-}" ] || say "$said"
    before=$said piece=$longest_piece
    [ "$status" = 423 ] || pause $(((deadline - $(ticks) + 99) / 100))
done

# Whatever happens to the renewals, the command does not run on without them: they alone hold the pipe open, and whoever
# reads it outlives a runner that kills the whole process group. It starts before the command.
guard='trap "" INT TERM HUP
    read -r _ <&5
    kill -s KILL -- "-$1" 2>/dev/null
    sleep 1
    grep -q . "/proc/$2/cmdline" 2>/dev/null || rm -rf "$3"'
exec 3<&0 4<>"$home/renews" 5<"$home/renews"
LATCHGATE_FENCING_TOKEN=$fence
export LATCHGATE_FENCING_TOKEN
if [ -n "$names" ]; then
    LATCHGATE_FENCING_TOKENS=$fences LATCHGATE_SLOTS=$slots
    export LATCHGATE_FENCING_TOKENS LATCHGATE_SLOTS
fi
[ -z "$slot" ] || { LATCHGATE_SLOT=$slot; export LATCHGATE_SLOT; }
setsid sh -c '
    guard=$1 script=$2 home=$3
    shift 3
    (setsid sh -c "$guard" guard $$ "$script" "$home" >/dev/null 2>&1 3<&- &)
    # This runs only if the command cannot be executed. Bash needs `execfail` for that.
    trap ": >\"$home/unstarted\"" EXIT
    shopt -s execfail 2>/dev/null
    exec "$@" <&3 3<&- 5<&-' locked.sh "$guard" $$ "$home" "$@" 4>&- &
command=$!
cp "$home/curl" "$home/renewer/curl"
renew 5<&- &
renewer=$!
exec 4>&- 5<&-
wait "$command"
code=$? ended=yes
if [ ! -e "$home/lost" ] && ! runs "$renewer"; then
    say "the renewals have ended, and so has the command"
    code=102
fi
[ ! -e "$home/lost" ] || code=102
exit $code
