//! A Redis whose master the sentinels name, as a URL.

use std::fmt;

use super::{RedisLogin, RedisNode, StoreUrlError, store_url::decode};

/// The URL of a Redis whose master the sentinels name. It may hold the password of Redis; its `Debug`
/// and `Display` mask it.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelUrl {
    login: RedisLogin,
    /// The user as it was written.
    user: String,
    sentinels: Vec<RedisNode>,
    service: String,
}

// === impl SentinelUrl ===

impl SentinelUrl {
    /// How such a URL begins, and how one over TLS.
    pub(super) const SCHEMES: [(&str, bool); 2] =
        [("redis+sentinel://", false), ("rediss+sentinel://", true)];
    /// The port of a sentinel that is named without one.
    const DEFAULT_PORT: u16 = 26_379;

    /// Reads what follows the scheme.
    pub(super) fn parse(rest: &str, is_tls: bool) -> Result<Self, StoreUrlError> {
        let refused = |reason: &str| StoreUrlError::Sentinel(reason.to_owned());
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
        let sentinel = |text: &str| RedisNode::parse(text, Self::DEFAULT_PORT);
        let sentinels: Result<Vec<_>, _> = hosts.split(',').map(sentinel).collect();
        let sentinels = sentinels
            .map_err(|_no_host| refused("its sentinels are HOST[:PORT], with commas between"))?;
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if service.is_empty() || !service.bytes().all(allowed) {
            return Err(refused(
                "behind the sentinels stands /SERVICE, by which they know the master: letters, digits \
                 and . - _",
            ));
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
            sentinels,
            service: service.to_owned(),
        })
    }

    /// How to log in to Redis.
    pub fn login(&self) -> RedisLogin {
        self.login.clone()
    }

    /// Where the sentinels listen.
    pub fn sentinels(&self) -> &[RedisNode] {
        &self.sentinels
    }

    /// By what the sentinels know the master.
    pub fn service(&self) -> &str {
        &self.service
    }
}

impl fmt::Display for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(plain, _), (tls, _)] = Self::SCHEMES;
        f.write_str(if self.login.is_tls { tls } else { plain })?;
        match self.login.password {
            Some(_) => write!(f, "{}:***@", self.user)?,
            None if self.user.is_empty() => {}
            None => write!(f, "{}@", self.user)?,
        }
        for (n, sentinel) in self.sentinels.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{sentinel}")?;
        }
        write!(f, "/{}/{}", self.service, self.login.database)
    }
}

impl fmt::Debug for SentinelUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentinelUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::super::StoreUrl;
    use super::*;

    fn sentinel(text: &str) -> SentinelUrl {
        match text.parse().unwrap() {
            StoreUrl::Sentinel(url) => url,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn reads_every_part() {
        let url = sentinel("redis+sentinel://al%40ice:p%2Fw@s1:1,[::1]:2,s3/my-master/7");
        let login = url.login();
        assert_eq!(login.username.as_deref(), Some("al@ice"));
        assert_eq!(login.password.as_deref(), Some("p/w"));
        assert_eq!((login.database, login.is_tls), (7, false));
        let sentinels: Vec<_> = url.sentinels().iter().map(ToString::to_string).collect();
        assert_eq!(sentinels, ["s1:1", "[::1]:2", "s3:26379"]);
        assert_eq!(
            (url.sentinels()[1].host(), url.service()),
            ("::1", "my-master")
        );
        let url = sentinel("rediss+sentinel://s/m");
        assert!(url.login().is_tls && !url.login().names_somebody());
        assert_eq!(url.to_string(), "rediss+sentinel://s:26379/m/0");
    }

    #[test]
    fn never_shows_a_password() {
        let url = sentinel("redis+sentinel://al:s3cret@s1,s2:5/m/1");
        assert_eq!(url.to_string(), "redis+sentinel://al:***@s1:26379,s2:5/m/1");
        let shown = format!("{url:?} {:?}", url.login());
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn says_what_is_missing() {
        for (bad, reason) in [
            ("", "its sentinels are"),
            ("s1,,s2/m", "its sentinels are"),
            ("s1:x/m", "its sentinels are"),
            ("s1", "behind the sentinels"),
            ("s1/", "behind the sentinels"),
            ("s1/a b/0", "behind the sentinels"),
            ("s1/m/x", "the database is a number"),
            ("s1/m/0/1", "the database is a number"),
            ("s1/m/0?x", "the database is a number"),
            ("s3cret@s1/m", "a user needs a password"),
        ] {
            let error = format!("redis+sentinel://{bad}").parse::<StoreUrl>();
            let said = error.unwrap_err().to_string();
            assert!(said.starts_with("is not a URL of sentinels: "), "{said}");
            assert!(
                said.contains(reason) && !said.contains("s3cret"),
                "{bad}: {said}"
            );
        }
    }
}
