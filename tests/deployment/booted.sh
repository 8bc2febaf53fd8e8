#!/bin/bash
# The life of the package under systemd. Runs as root in the container of booted.py, and prints "all good" at the end.
set -euxo pipefail
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
package=$(echo /release/latchgate_*_amd64.deb)
config=/etc/latchgate/latchgate.toml

is() { [ "$(systemctl is-active latchgate)" = "$1" ]; }
pid() { systemctl show --property MainPID --value latchgate; }
# held: checks that the lock is held, which exit code 100 says.
held() {
    local code=0
    latchgate acquire deploy || code=$?
    [ "$code" = 100 ]
}

apt-get install --yes "$package"
is active
[ "$(systemctl is-enabled latchgate)" = enabled ]
cmp "$config" /usr/share/doc/latchgate/config/embedded.toml
[ "$(stat --format %a /var/lib/private/latchgate)" = 700 ]
# The service has a dynamic user, which belongs to no account.
[ "$(ps --no-headers -o uid "$(pid)" 2>/dev/null || stat --format %u "/proc/$(pid)")" -ge 61184 ]

# The waits of a drain are not tested here.
(umask 077 && echo LATCHGATE_SHUTDOWN_GRACE_MS=0 >/etc/latchgate/environment)
systemctl restart latchgate
latchgate acquire deploy --ttl 1h >/dev/null
systemctl reload latchgate
is active
held

: an upgrade restarts it, with the configuration that was edited
echo '# Mine.' >>"$config"
before=$(pid)
dpkg --install "$package"
is active
[ "$(pid)" != "$before" ]
held
[ "$(tail -n 1 "$config")" = '# Mine.' ]

: an upgrade with a configuration that is wrong leaves the old one running
echo 'wrong = 1' >>"$config"
before=$(pid)
dpkg --install "$package" 2>&1 | tee /tmp/upgrade
grep 'there is no key wrong' /tmp/upgrade
grep 'latchgate: not restarted' /tmp/upgrade
is active
[ "$(pid)" = "$before" ]
held

: started with it, it fails once and for all
systemctl restart latchgate && exit 1
sleep 3
is failed
[ "$(systemctl show --property NRestarts --value latchgate)" = 0 ]
sed -i '/^wrong/d' "$config"
systemctl restart latchgate
held

: who has switched it off finds it so after an upgrade
systemctl disable --now latchgate
dpkg --install "$package"
is inactive
[ "$(systemctl is-enabled latchgate || true)" = disabled ]
systemctl enable --now latchgate

apt-get remove --yes latchgate
is inactive
[ -e "$config" ]
apt-get purge --yes latchgate 2>&1 | tee /tmp/purge
grep 'latchgate is kept' /tmp/purge
[ ! -e /etc/latchgate ]
[ -d /var/lib/private/latchgate ]
[ ! -e /etc/systemd/system/multi-user.target.wants/latchgate.service ]

: installed again, it knows its leases
apt-get install --yes "$package"
held
echo all good
