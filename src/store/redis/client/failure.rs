//! The table of Redis errors: what each error means for its command, and which server a redirect names.

use std::fmt;

use crate::{
    config::RedisNode,
    store::{StoreError, Unavailability, Uncertainty},
};

/// Why one copy of a command got no usable reply, and whether the command may have had an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command had no effect, and a retry may succeed.
    Transient(Unavailability),
    /// The command had no effect because this server does not accept writes: the command is retried on a new
    /// connection, to the right server.
    WrongNode(Unavailability),
    /// The command had no effect: another server of the cluster has the slot, or has the keys of the slot that this
    /// server does not have any more.
    Elsewhere(Redirect),
    /// The command had no effect: the slot is being moved to another server, and the keys of the command are not all
    /// on one server.
    Moving(Unavailability),
    /// The command had no effect, and a retry would not help.
    Refused(Unavailability),
    /// The command had no effect: the server does not know the script yet.
    NoScript,
    /// The command had no effect: a key holds a value of another type than gateways write.
    WrongType,
    /// The command may have had an effect, or may yet have one.
    Unknown(Uncertainty),
}

/// The ACL line of a gateway's user, with every command that the gateway or one of its scripts uses. (The line for
/// the nodes of a quorum is [`NODE_ACL_LINE`].)
pub(crate) const ACL_LINE: &str = "ACL SETUSER latchgate on >PASSWORD resetkeys ~lg:* \
    resetchannels &lg:* -@all +evalsha +eval +info +scan +type +time +exists +get +getrange +set +del +pttl +pexpire \
    +mget +rpush +lpop +rpop +lpos +lset +lrem +lindex +llen +lrange \
    +setbit +bitpos +hset +hget +hmget +hvals +hlen +hdel +zadd +zcard +zcount +zrange +zrem \
    +publish +subscribe +ping +role +wait +asking +cluster|info +cluster|slots";

/// The ACL line of a gateway's user at the nodes of a quorum, which run scripts of their own.
pub(crate) const NODE_ACL_LINE: &str = "ACL SETUSER latchgate on >PASSWORD resetkeys ~lg:* \
    resetchannels &lg:* -@all +evalsha +eval +info +scan +type +time +get +set +del +pttl +pexpireat \
    +hset +hmget +hlen +hdel +zadd +zscore +zrange +zrem +publish +subscribe +ping";

/// Prefix of each error text about a missing permission.
pub(crate) const LACKS_PERMISSION: &str = "the user lacks a permission";
/// Maximum length, in bytes, of a server's error text that is passed on. An error is one line; a script's traceback
/// is more.
const LONGEST_TEXT: usize = 200;

// === impl Failure ===

impl Failure {
    /// Looks up what an error of Redis means, by its code and its text.
    pub(crate) fn classify(code: &str, text: &str) -> Self {
        let text = shorten(text);
        let refused = |what: &str| Unavailability::Refused(format!("{code}: {what}"));
        match code {
            "READONLY" => Self::WrongNode(refused("this server is a replica")),
            "MOVED" | "ASK" => match Redirect::read(code, text) {
                Some(redirect) => Self::Elsewhere(redirect),
                None => Self::WrongNode(refused("the slot lives on another node")),
            },
            "TRYAGAIN" => Self::Moving(refused("the slot is being moved")),
            "CLUSTERDOWN" => Self::Transient(refused("the cluster is down")),
            "MASTERDOWN" => Self::Transient(refused("the replica has lost its master")),
            "LOADING" => Self::Transient(refused("the server is loading its data")),
            "BUSY" => Self::Transient(refused("the server is busy with a script")),
            "MISCONF" => Self::Transient(refused("the server cannot save its data")),
            "NOREPLICAS" => Self::Transient(refused("the server has too few replicas")),
            "ERR" if tells_of_too_many_clients(text) => {
                Self::Transient(refused("the server has too many clients"))
            }
            "OOM" => Self::Refused(Unavailability::OutOfMemory),
            "NOSCRIPT" => Self::NoScript,
            "WRONGTYPE" => Self::WrongType,
            "NOAUTH" => Self::misconfigured("the server asks for a password".to_owned()),
            "DENIED" => Self::misconfigured(
                "the server is in protected mode and takes no other host's connections".to_owned(),
            ),
            "WRONGPASS" => Self::misconfigured("the server refuses the credentials".to_owned()),
            "NOPERM" => Self::misconfigured(format!("{LACKS_PERMISSION}: {text}")),
            // A missing permission inside a script has no error code of its own. Redis 7.0 has the first wording,
            // later versions and Valkey the second. The probe recognizes a missing permission in any wording. The
            // probe finds missing permissions before scripts run, so this permission was taken away since then, and the
            // script may have stopped half-way.
            "ERR"
                if text.starts_with("The user executing the script")
                    || text.starts_with("ACL failure in script") =>
            {
                Self::Unknown(Uncertainty::UnexpectedReply(format!(
                    "{LACKS_PERMISSION}: {text}"
                )))
            }
            // The server does not have the command, or the command was renamed. The arguments follow in the text; the
            // arguments may be secret, so they are not passed on.
            "ERR" if text.starts_with("unknown command") => {
                let name = text.split(',').next().unwrap_or_default();
                Self::misconfigured(format!("the server refuses: {name}"))
            }
            "ERR" if text.starts_with("Unknown") && text.contains("command called from script") => {
                Self::misconfigured("the server lacks a command that the scripts use".to_owned())
            }
            // Scripts build further key names from the keys that they declare, but this server allows only declared
            // keys.
            "ERR" if text.contains("undeclared key") => Self::misconfigured(
                "the server refuses keys that a script does not declare".to_owned(),
            ),
            // The slot is being moved to another server. No script that can reach such a key writes, so the script had
            // no effect.
            "ERR" if text.starts_with("Script attempted to access a non local key") => {
                Self::Moving(Unavailability::Refused(
                    "the slot is being moved".to_owned(),
                ))
            }
            // Any other error may come from a script that stopped half-way.
            _ => Self::Unknown(Uncertainty::UnexpectedReply(format!("{code} {text}"))),
        }
    }

    /// The reason for the failure of a command that only reads, where an unknown outcome is only a missing reply.
    pub(crate) fn reason(self) -> Unavailability {
        match self {
            Self::Transient(why)
            | Self::WrongNode(why)
            | Self::Moving(why)
            | Self::Refused(why) => why,
            Self::Elsewhere(redirect) => redirect.reason(),
            Self::Unknown(Uncertainty::UnexpectedReply(what)) => Unavailability::Refused(what),
            Self::Unknown(why) => Unavailability::Connect(why.to_string()),
            Self::NoScript | Self::WrongType => {
                Unavailability::Refused("an answer to another command".to_owned())
            }
        }
    }

    fn misconfigured(what: String) -> Self {
        Self::Refused(Unavailability::Misconfigured(what))
    }
}

/// The error that a caller gets when the command is not retried.
impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unknown(why) => why.into(),
            known => known.reason().into(),
        }
    }
}

/// Whether an error text says that the server has as many clients as it allows.
pub(crate) fn tells_of_too_many_clients(text: &str) -> bool {
    text.contains("max number of clients")
}

/// The first line of an error text, shortened, without the script position that Redis appends.
fn shorten(text: &str) -> &str {
    let text = text.lines().next().unwrap_or_default();
    let text = match text.rsplit_once(" script: ") {
        Some((text, place)) if place.contains("on @") => text,
        _ => text,
    };
    let end = text.floor_char_boundary(LONGEST_TEXT);
    &text[..end]
}

/// A server's redirect (MOVED or ASK) to the server that has a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// Whether the redirect counts for this command alone (ASK): the slot is being moved, and the server does not
    /// have the key. Otherwise (MOVED) the other server has the slot from now on.
    pub(crate) asking: bool,
    /// Host as the server names it; empty if it is the host of the server that sent the redirect.
    host: String,
    port: u16,
}

// === impl Redirect ===

impl Redirect {
    /// Reads `SLOT HOST:PORT`, which follows MOVED or ASK. The slot is not kept, because the caller knows it.
    pub(crate) fn read(code: &str, text: &str) -> Option<Self> {
        let (slot, node) = text.split_once(' ')?;
        slot.parse::<u16>().ok()?;
        let (host, port) = node.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        // A server sends `?` as the host if it does not know the address of the other server.
        if host == "?" {
            return None;
        }
        let port = port.parse().ok().filter(|&port| port != 0)?;
        Some(Self {
            asking: code == "ASK",
            host: host.to_owned(),
            port,
        })
    }

    /// Address of the server that the redirect names. `by`: the server that sent the redirect.
    pub(crate) fn node(&self, by: &RedisNode) -> RedisNode {
        let host = if self.host.is_empty() {
            by.host()
        } else {
            &self.host
        };
        RedisNode::new(host, self.port)
    }

    /// The reason why a redirect is a failure, for a gateway that is configured for a single server.
    pub(crate) fn reason(&self) -> Unavailability {
        let said = if self.asking {
            "ASK: the slot is being moved to another node"
        } else {
            "MOVED: the slot lives on another node"
        };
        Unavailability::Refused(format!(
            "{said} of a cluster (the URL of one is redis+cluster://HOST:PORT,..)"
        ))
    }
}

// === impl Unavailability ===

impl Unavailability {
    /// The same reason, prefixed with the place where the failure happened, such as a server's address.
    pub(super) fn at(self, place: impl fmt::Display) -> Self {
        match self {
            Self::Connect(what) => Self::Connect(format!("{place}: {what}")),
            Self::Refused(what) => Self::Refused(format!("{place}: {what}")),
            Self::Misconfigured(what) => Self::Misconfigured(format!("{place}: {what}")),
            other => other,
        }
    }
}

/// Adds the ACL line that the user needs to a refusal for a missing permission. Any other refusal is unchanged.
pub(crate) fn hint(refusal: Unavailability, acl_line: &str) -> Unavailability {
    match refusal {
        Unavailability::Misconfigured(what) if what.starts_with(LACKS_PERMISSION) => {
            Unavailability::Misconfigured(explain(&what, acl_line))
        }
        other => other,
    }
}

/// The error when the lock passed to another holder after each inspection, before the command for the inspected holder
/// arrived.
pub(crate) fn passes_too_fast() -> StoreError {
    let reason = "the lock passes on faster than it can be looked at".to_owned();
    Unavailability::Refused(reason).into()
}

/// Adds the ACL line that the user needs to a text about a missing permission.
pub(crate) fn explain(missing: &str, acl_line: &str) -> String {
    format!("{missing}; give the user these permissions: {acl_line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_certainly_did_not_happen_may_be_tried_again() {
        for (class, codes, text) in [
            (
                "Transient",
                "CLUSTERDOWN MASTERDOWN LOADING BUSY MISCONF NOREPLICAS",
                "text",
            ),
            ("Transient", "ERR", "max number of clients reached"),
            ("WrongNode", "READONLY MOVED ASK", "text"),
            ("Elsewhere", "MOVED ASK", "3999 10.0.0.1:6379"),
            (
                "Moving",
                "TRYAGAIN",
                "Multiple keys request during rehashing of slot",
            ),
            ("NoScript", "NOSCRIPT", ""),
            ("WrongType", "WRONGTYPE", ""),
            // An error that is not in the table of errors may have had an effect.
            ("Unknown", "ERR", "user_script:7: attempt to index"),
            // A script that lacks a permission for one of its commands may have run others before.
            (
                "Unknown",
                "ERR",
                "The user executing the script can't run this command",
            ),
            (
                "Unknown",
                "ERR",
                "ACL failure in script: User gate has no permissions",
            ),
        ] {
            for code in codes.split(' ') {
                let failure = format!("{:?}", Failure::classify(code, text));
                assert!(failure.starts_with(class), "{code}: {failure}");
            }
        }
    }

    #[test]
    fn memory_credentials_and_permissions_are_not_tried_again() {
        let oom = Failure::classify("OOM", "command not allowed when used memory > 'maxmemory'.");
        assert_eq!(oom, Failure::Refused(Unavailability::OutOfMemory));
        for line in [
            "NOAUTH Authentication required.",
            "DENIED Redis is running in protected mode because protected mode is enabled",
            "WRONGPASS invalid username-password pair",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR Unknown Redis command called from script",
            "ERR Unknown command called from script",
            "ERR unknown command 'EVALSHA', with args beginning with: 's3cret' ",
        ] {
            let (code, text) = line.split_once(' ').unwrap();
            match Failure::classify(code, text) {
                Failure::Refused(Unavailability::Misconfigured(what)) => {
                    assert!(!what.contains("s3cret"), "{what}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_place_in_the_script_is_not_passed_on() {
        for (text, shown) in [
            (
                "user_script:7: attempt to index script: 1, on @user",
                "user_script:7: attempt to index",
            ),
            // Valkey 9 does not name the script in its error, and the error's text itself contains the word "script".
            (
                "failure in script: of x script: on @user_script:1.",
                "failure in script: of x",
            ),
        ] {
            let unexpected = Uncertainty::UnexpectedReply(format!("ERR {shown}"));
            assert_eq!(Failure::classify("ERR", text), Failure::Unknown(unexpected));
        }
    }

    #[test]
    fn says_which_server_has_the_slot() {
        let by = RedisNode::new("asked", 1);
        for (code, text, node) in [
            ("MOVED", "3999 127.0.0.1:6381", "127.0.0.1:6381"),
            ("ASK", "3999 ::1:6381", "[::1]:6381"),
            ("ASK", "3999 [::1]:6381", "[::1]:6381"),
            ("MOVED", "0 node-1.example:7", "node-1.example:7"),
            // A server that does not know its own host name sends an empty host.
            ("MOVED", "0 :6381", "asked:6381"),
        ] {
            let redirect = Redirect::read(code, text).unwrap();
            assert_eq!(redirect.node(&by).to_string(), node);
            assert_eq!(redirect.asking, code == "ASK");
        }
    }

    #[test]
    fn says_nothing_that_could_be_followed_otherwise() {
        for (code, text) in [
            ("MOVED", ""),
            ("MOVED", "3999"),
            ("MOVED", "x 127.0.0.1:1"),
            ("MOVED", "3999 127.0.0.1"),
            ("MOVED", "3999 127.0.0.1:x"),
            ("MOVED", "3999 127.0.0.1:0"),
            ("MOVED", "3999 ?:6381"),
        ] {
            assert_eq!(Redirect::read(code, text), None, "{code} {text}");
        }
    }
}
