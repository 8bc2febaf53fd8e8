//! What the ACL user of a gateway must be allowed, and what to do where it is not.

use crate::store::contract::Health;

use super::{
    failure::LACKS_PERMISSION,
    scripts::{Permission, Probed},
};

/// The ACL line of a gateway's user: every command that is sent, and every one that a script uses.
pub(super) const ACL_LINE: &str = "ACL SETUSER latchgate on >PASSWORD resetkeys ~lg:* \
    resetchannels &lg:* -@all +evalsha +eval +info +scan +type +time +exists +get +getrange +set +del +pttl +pexpire \
    +pexpireat +hset +hmget +hlen +hdel +zadd +zscore +zrange +zrem \
    +mget +getdel +setrange +lpush +rpush +lpop +rpop +lpos +lset +lrem +lindex +llen +lrange \
    +publish +subscribe +ping +role +wait +asking +cluster|info +cluster|slots \
    +cluster|getkeysinslot";

/// Judges what a probe found, and why the server refuses the channel of this gateway, if it does.
pub(super) fn judge(probed: &Probed, unsubscribed: Option<&str>) -> Health {
    let missing: Vec<&str> = probed
        .commands
        .iter()
        .chain(&probed.listing)
        .filter(|(_, permission)| *permission == Permission::Missing)
        .map(|(name, _)| name.as_str())
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Health::Misconfigured(explain(&format!("the user may not run {missing}")));
    }
    match (probed.publish, unsubscribed) {
        (Permission::Given, None) => Health::Passing,
        (Permission::Given, Some(why)) => {
            let missing = format!("the user may not subscribe to channels of its own: {why}");
            Health::Misconfigured(explain(&missing))
        }
        (Permission::Missing, _) => {
            let missing = "the user may not publish on channels that begin with lg:";
            Health::Misconfigured(explain(missing))
        }
    }
}

/// Says what to do about a refusal, if a permission is what is missing.
pub(super) fn hint(refusal: String) -> String {
    if refusal.starts_with(LACKS_PERMISSION) {
        explain(&refusal)
    } else {
        refusal
    }
}

/// Says what to do about a missing permission.
pub(super) fn explain(missing: &str) -> String {
    format!("{missing}; give the user what it needs: {ACL_LINE}")
}
