//! Word of a server that another one has a slot, or what is not here of it any more.

use crate::{config::RedisNode, store::Unavailability};

/// Word of a server that another one has a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redirect {
    /// For how long it counts.
    pub(super) kind: Kind,
    /// As the server names the other one; without a host: it is the one that was asked.
    host: String,
    port: u16,
}

/// For how long such word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The other one has the slot from now on.
    Moved,
    /// The slot is on its way to the other one, and what was asked for is not here: for this command
    /// alone.
    Ask,
}

// === impl Redirect ===

impl Redirect {
    /// Reads `SLOT HOST:PORT`, which follows MOVED or ASK. Which slot it is whoever asked knows.
    pub(super) fn read(code: &str, text: &str) -> Option<Self> {
        let kind = match code {
            "MOVED" => Kind::Moved,
            "ASK" => Kind::Ask,
            _ => return None,
        };
        let (slot, node) = text.split_once(' ')?;
        slot.parse::<u16>().ok()?;
        let (host, port) = node.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        // By which a server says that it does not know.
        if host == "?" {
            return None;
        }
        let port = port.parse().ok().filter(|&port| port != 0)?;
        Some(Self {
            kind,
            host: host.to_owned(),
            port,
        })
    }

    /// Where that is, said by this server.
    pub(super) fn node(&self, by: &RedisNode) -> RedisNode {
        let host = if self.host.is_empty() {
            by.host()
        } else {
            &self.host
        };
        RedisNode::new(host, self.port)
    }

    /// Why nothing happened, for one who knows one server only.
    pub(super) fn reason(&self) -> Unavailability {
        let said = match self.kind {
            Kind::Moved => "MOVED: the slot lives on another node",
            Kind::Ask => "ASK: the slot is being moved to another node",
        };
        Unavailability::Refused(format!(
            "{said} of a cluster (the URL of one is redis+cluster://HOST:PORT,..)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_server_has_the_slot() {
        let by = RedisNode::new("asked", 1);
        for (code, text, kind, node) in [
            (
                "MOVED",
                "3999 127.0.0.1:6381",
                Kind::Moved,
                "127.0.0.1:6381",
            ),
            ("ASK", "3999 ::1:6381", Kind::Ask, "[::1]:6381"),
            ("ASK", "3999 [::1]:6381", Kind::Ask, "[::1]:6381"),
            (
                "MOVED",
                "0 node-1.example:7",
                Kind::Moved,
                "node-1.example:7",
            ),
            // Of a server that does not know by which name it is reached.
            ("MOVED", "0 :6381", Kind::Moved, "asked:6381"),
        ] {
            let redirect = Redirect::read(code, text).unwrap();
            assert_eq!(
                (redirect.kind, redirect.node(&by).to_string()),
                (kind, node.to_owned())
            );
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
            ("READONLY", "3999 127.0.0.1:6381"),
        ] {
            assert_eq!(Redirect::read(code, text), None, "{code} {text}");
        }
    }
}
