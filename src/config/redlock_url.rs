//! A quorum of independent Redis servers, as a URL.

use std::{collections::HashSet, fmt};

use super::{RedisLogin, RedisNode, StoreUrlError, store_url::decode};

/// The URL of a quorum of independent Redis servers. It may hold their password; its `Debug` and
/// `Display` mask it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedlockUrl {
    login: RedisLogin,
    /// The user as it was written.
    user: String,
    nodes: Vec<RedisNode>,
}

// === impl RedlockUrl ===

impl RedlockUrl {
    /// How such a URL begins, and how one over TLS.
    pub(super) const SCHEMES: [(&str, bool); 2] = [("redlock://", false), ("redlocks://", true)];
    /// The port of a node that is named without one.
    const DEFAULT_PORT: u16 = 6379;
    /// As few as a majority of them can miss one, and as many as somebody might run.
    const NODES: std::ops::RangeInclusive<usize> = 3..=15;

    /// Reads what follows the scheme.
    pub(super) fn parse(rest: &str, is_tls: bool) -> Result<Self, StoreUrlError> {
        let refused = |reason: &str| StoreUrlError::Redlock(reason.to_owned());
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => ("", None),
            Some(Some((user, password))) => (user, Some(password)),
            // Other clients read it as a password: shown as a user it would leak.
            Some(None) => {
                return Err(refused(
                    "a user needs a password; a password alone is written :PASSWORD@",
                ));
            }
        };
        let node = |text: &str| RedisNode::parse(text, Self::DEFAULT_PORT);
        let nodes: Result<Vec<_>, _> = hosts.split(',').map(node).collect();
        let nodes = nodes.map_err(|_no_host| {
            refused("its nodes are HOST[:PORT], with commas between, and then [/DB]")
        })?;
        // With an even number one more may be missing only if one more is there.
        if nodes.len() % 2 == 0 || !Self::NODES.contains(&nodes.len()) {
            let reason = "it names an odd number of nodes, 3 or 5, say, and 15 at most";
            return Err(refused(reason));
        }
        // One that is named twice would vote twice.
        if nodes.iter().collect::<HashSet<_>>().len() < nodes.len() {
            return Err(refused("it names a node twice"));
        }
        let database = match database {
            "" => 0,
            database => database
                .parse()
                .map_err(|_| refused("the database is a number, and nothing may follow it"))?,
        };
        Ok(Self {
            login: RedisLogin {
                username: (!user.is_empty()).then(|| decode(user)),
                password: password.map(decode),
                database,
                is_tls,
            },
            user: user.to_owned(),
            nodes,
        })
    }

    /// How to log in to each of them.
    pub fn login(&self) -> RedisLogin {
        self.login.clone()
    }

    /// Where they listen.
    pub fn nodes(&self) -> &[RedisNode] {
        &self.nodes
    }
}

impl fmt::Display for RedlockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(plain, _), (tls, _)] = Self::SCHEMES;
        f.write_str(if self.login.is_tls { tls } else { plain })?;
        match self.login.password {
            Some(_) => write!(f, "{}:***@", self.user)?,
            None if self.user.is_empty() => {}
            None => write!(f, "{}@", self.user)?,
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{node}")?;
        }
        write!(f, "/{}", self.login.database)
    }
}

impl fmt::Debug for RedlockUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedlockUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreUrl;
    use super::*;

    fn redlock(text: &str) -> RedlockUrl {
        match text.parse().unwrap() {
            StoreUrl::Redlock(url) => url,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn reads_every_part() {
        let url = redlock("redlock://al%40ice:p%2Fw@a:1,[::1]:2,c/7");
        let login = url.login();
        assert_eq!(login.username.as_deref(), Some("al@ice"));
        assert_eq!(login.password.as_deref(), Some("p/w"));
        assert_eq!((login.database, login.is_tls), (7, false));
        let nodes: Vec<_> = url.nodes().iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["a:1", "[::1]:2", "c:6379"]);
        let url = redlock("redlocks://a,b,c,d,e");
        assert!(url.login().is_tls && !url.login().names_somebody());
        assert_eq!(
            url.to_string(),
            "redlocks://a:6379,b:6379,c:6379,d:6379,e:6379/0"
        );
    }

    #[test]
    fn never_shows_a_password() {
        let url = redlock("redlock://al:s3cret@a,b,c");
        assert_eq!(url.to_string(), "redlock://al:***@a:6379,b:6379,c:6379/0");
        let shown = format!("{url:?} {:?}", url.login());
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn says_what_is_missing() {
        for (bad, reason) in [
            ("", "its nodes are"),
            ("a,,b", "its nodes are"),
            ("a:x,b,c", "its nodes are"),
            ("a", "an odd number"),
            ("a,b", "an odd number"),
            ("a,b,c,d", "an odd number"),
            ("a,b,a", "a node twice"),
            ("a,b:6379,b", "a node twice"),
            ("a,b,c/x", "the database is a number"),
            ("a,b,c/0/1", "the database is a number"),
            ("s3cret@a,b,c", "a user needs a password"),
        ] {
            let error = format!("redlock://{bad}").parse::<StoreUrl>();
            let said = error.unwrap_err().to_string();
            assert!(said.starts_with("is not a URL of a quorum: "), "{said}");
            assert!(
                said.contains(reason) && !said.contains("s3cret"),
                "{bad}: {said}"
            );
        }
    }
}
