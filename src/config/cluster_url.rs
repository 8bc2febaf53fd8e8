//! A Redis cluster, as a URL.

use std::fmt;

use super::{RedisLogin, RedisNode, StoreUrlError, store_url::decode};

/// The URL of a Redis cluster. It may hold the password; its `Debug` and `Display` mask it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterUrl {
    login: RedisLogin,
    /// The user as it was written.
    user: String,
    nodes: Vec<RedisNode>,
}

// === impl ClusterUrl ===

impl ClusterUrl {
    /// How such a URL begins, and how one over TLS.
    pub(super) const SCHEMES: [(&str, bool); 2] =
        [("redis+cluster://", false), ("rediss+cluster://", true)];
    /// The port of a server that is named without one.
    const DEFAULT_PORT: u16 = 6_379;

    /// Reads what follows the scheme.
    pub(super) fn parse(rest: &str, is_tls: bool) -> Result<Self, StoreUrlError> {
        let refused = |reason: &str| StoreUrlError::Cluster(reason.to_owned());
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
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
            refused("some of its servers are HOST[:PORT], with commas between")
        })?;
        if !["", "0"].contains(&path) {
            return Err(refused(
                "a cluster has database 0 only, and nothing may follow its servers",
            ));
        }
        Ok(Self {
            login: RedisLogin {
                username: (!user.is_empty()).then(|| decode(user)),
                password: password.map(decode),
                database: 0,
                is_tls,
            },
            user: user.to_owned(),
            nodes,
        })
    }

    /// How to log in to each server.
    pub fn login(&self) -> RedisLogin {
        self.login.clone()
    }

    /// Some servers of the cluster, which know the others.
    pub fn nodes(&self) -> &[RedisNode] {
        &self.nodes
    }
}

impl fmt::Display for ClusterUrl {
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
        Ok(())
    }
}

impl fmt::Debug for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreUrl;
    use super::*;

    fn cluster(text: &str) -> ClusterUrl {
        match text.parse().unwrap() {
            StoreUrl::Cluster(url) => url,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn reads_every_part() {
        let url = cluster("redis+cluster://al%40ice:p%2Fw@n1:1,[::1]:2,n3");
        let login = url.login();
        assert_eq!(login.username.as_deref(), Some("al@ice"));
        assert_eq!(login.password.as_deref(), Some("p/w"));
        assert_eq!((login.database, login.is_tls), (0, false));
        let nodes: Vec<_> = url.nodes().iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["n1:1", "[::1]:2", "n3:6379"]);
        let url = cluster("rediss+cluster://n/0");
        assert!(url.login().is_tls && !url.login().names_somebody());
        assert_eq!(url.to_string(), "rediss+cluster://n:6379");
    }

    #[test]
    fn never_shows_a_password() {
        let url = cluster("redis+cluster://al:s3cret@n1,n2:5");
        assert_eq!(url.to_string(), "redis+cluster://al:***@n1:6379,n2:5");
        let shown = format!("{url:?} {:?}", url.login());
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn says_what_is_wrong() {
        for (bad, reason) in [
            ("", "some of its servers are"),
            ("n1,,n2", "some of its servers are"),
            ("n1:x", "some of its servers are"),
            ("n1/1", "a cluster has database 0 only"),
            ("n1/0/x", "a cluster has database 0 only"),
            ("n1/?x", "a cluster has database 0 only"),
            ("s3cret@n1", "a user needs a password"),
        ] {
            let error = format!("redis+cluster://{bad}").parse::<StoreUrl>();
            let said = error.unwrap_err().to_string();
            assert!(said.starts_with("is not a URL of a cluster: "), "{said}");
            assert!(
                said.contains(reason) && !said.contains("s3cret"),
                "{bad}: {said}"
            );
        }
    }
}
