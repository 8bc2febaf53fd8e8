//! Where leases live, as a URL.

use std::{fmt, path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{ClusterUrl, RedisLogin, RedisNode, RedlockUrl, SentinelUrl};

/// Names a store. Neither its `Debug` nor its `Display` shows a password.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum StoreUrl {
    /// `embedded:DIR`: durable, this process only.
    Embedded(PathBuf),
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`: one Redis, or a compatible server. With
    /// `rediss://` over TLS.
    Redis(RedisUrl),
    /// `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],../SERVICE[/DB]`: the master that these
    /// sentinels name. With `rediss+sentinel://` over TLS.
    Sentinel(SentinelUrl),
    /// `redis+cluster://[USER:PASSWORD@]HOST[:PORT],..`: the cluster that these servers are part of.
    /// With `rediss+cluster://` over TLS.
    Cluster(ClusterUrl),
    /// `redlock://[USER:PASSWORD@]HOST[:PORT],..[/DB]`: a quorum of independent servers, 3 or 5, say.
    /// With `redlocks://` over TLS.
    Redlock(RedlockUrl),
}

/// The URL of one Redis. It holds the password; its `Debug` and `Display` mask it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(url::Url);

/// Why a text names no store. The text is not repeated: it may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// There is no text.
    #[error("is empty")]
    Empty,
    /// The scheme is none of ours.
    #[error("has no scheme of these")]
    Scheme,
    /// `embedded:` without a directory.
    #[error("names no directory")]
    NoDirectory,
    /// `redis://` that is not a URL.
    #[error("is not a Redis URL: {0}")]
    Redis(String),
    /// `redis+sentinel://` that names no sentinels, or not what to ask them for.
    #[error("is not a URL of sentinels: {0}")]
    Sentinel(String),
    /// `redis+cluster://` that names no servers.
    #[error("is not a URL of a cluster: {0}")]
    Cluster(String),
    /// `redlock://` that names no quorum.
    #[error("is not a URL of a quorum: {0}")]
    Redlock(String),
}

// === impl StoreUrl ===

impl Default for StoreUrl {
    fn default() -> Self {
        Self::Embedded(PathBuf::from("./latchgate-data"))
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        if text.is_empty() {
            return Err(StoreUrlError::Empty);
        }
        if let Some(dir) = text.strip_prefix("embedded:") {
            return if dir.is_empty() {
                Err(StoreUrlError::NoDirectory)
            } else {
                Ok(Self::Embedded(PathBuf::from(dir)))
            };
        }
        if text.starts_with("redis://") || text.starts_with("rediss://") {
            return RedisUrl::parse(text).map(Self::Redis);
        }
        for (scheme, is_tls) in SentinelUrl::SCHEMES {
            if let Some(rest) = text.strip_prefix(scheme) {
                return SentinelUrl::parse(rest, is_tls).map(Self::Sentinel);
            }
        }
        for (scheme, is_tls) in ClusterUrl::SCHEMES {
            if let Some(rest) = text.strip_prefix(scheme) {
                return ClusterUrl::parse(rest, is_tls).map(Self::Cluster);
            }
        }
        for (scheme, is_tls) in RedlockUrl::SCHEMES {
            if let Some(rest) = text.strip_prefix(scheme) {
                return RedlockUrl::parse(rest, is_tls).map(Self::Redlock);
            }
        }
        Err(StoreUrlError::Scheme)
    }
}

impl StoreUrl {
    /// What names a store.
    pub const FORMS: &str = "embedded:DIR, redis://[USER:PASSWORD@]HOST[:PORT][/DB], \
        redis+sentinel://[USER:PASSWORD@]HOST[:PORT],../SERVICE[/DB], \
        redis+cluster://[USER:PASSWORD@]HOST[:PORT],.., \
        redlock://[USER:PASSWORD@]HOST[:PORT],..[/DB], or rediss.. and redlocks.. for TLS";

    /// How to log in where the store is; `None` for one that nobody logs in to.
    pub fn login(&self) -> Option<RedisLogin> {
        match self {
            Self::Embedded(_) => None,
            Self::Redis(url) => Some(url.login()),
            Self::Sentinel(url) => Some(url.login()),
            Self::Cluster(url) => Some(url.login()),
            Self::Redlock(url) => Some(url.login()),
        }
    }

    /// What may be shown of a text that should have named a store: a malformed URL cannot be told
    /// apart into password and rest, so nothing after its scheme is shown.
    pub(super) fn redact(text: &str) -> String {
        match text.split_once(':') {
            Some(("embedded", _)) => text.to_owned(),
            None if text.is_empty() => String::new(),
            Some((scheme, _)) => format!("{scheme}:***"),
            None => "***".to_owned(),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(dir) => write!(f, "embedded:{}", dir.display()),
            Self::Redis(url) => url.fmt(f),
            Self::Sentinel(url) => url.fmt(f),
            Self::Cluster(url) => url.fmt(f),
            Self::Redlock(url) => url.fmt(f),
        }
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

// === impl RedisUrl ===

impl RedisUrl {
    /// The port of a URL that names none.
    const DEFAULT_PORT: u16 = 6379;

    fn parse(text: &str) -> Result<Self, StoreUrlError> {
        let reason = |reason: &str| StoreUrlError::Redis(reason.to_owned());
        let url = url::Url::parse(text).map_err(|error| StoreUrlError::Redis(error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(reason("it names no host"));
        }
        if !url.username().is_empty() && url.password().is_none() {
            // Other clients read `redis://SECRET@HOST` as a password: shown as a user it would leak.
            return Err(reason(
                "a user needs a password; a password alone is written :PASSWORD@",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(reason("nothing may follow the database number"));
        }
        let database = url.path().trim_start_matches('/');
        if !database.is_empty() && database.parse::<u16>().is_err() {
            return Err(reason("the database is a number"));
        }
        Ok(Self(url))
    }

    /// The host name or address, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        let host = self.0.host_str().unwrap_or_default();
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// Whether the server is reached over TLS.
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "rediss"
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port().unwrap_or(Self::DEFAULT_PORT)
    }

    /// The number of the database.
    pub fn database(&self) -> u16 {
        self.0
            .path()
            .trim_start_matches('/')
            .parse()
            .unwrap_or_default()
    }

    /// Where the server listens.
    pub fn node(&self) -> RedisNode {
        RedisNode::new(self.host(), self.port())
    }

    /// How to log in.
    pub fn login(&self) -> RedisLogin {
        RedisLogin {
            username: self.username(),
            password: self.password(),
            database: self.database(),
            is_tls: self.is_tls(),
        }
    }

    /// The ACL user, if the URL names one.
    pub fn username(&self) -> Option<String> {
        let user = decode(self.0.username());
        (!user.is_empty()).then_some(user)
    }

    /// The password, if the URL has one. A secret: it belongs in no log.
    pub fn password(&self) -> Option<String> {
        self.0.password().map(decode)
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.host_str().unwrap_or_default();
        let user = self.0.username();
        let secret = if self.0.password().is_some() {
            ":***"
        } else {
            ""
        };
        let at = if user.is_empty() && secret.is_empty() {
            ""
        } else {
            "@"
        };
        write!(
            f,
            "{}://{user}{secret}{at}{host}:{}/{}",
            self.0.scheme(),
            self.port(),
            self.database()
        )
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

/// A text without the escapes of URLs.
pub(super) fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(text: &str) -> RedisUrl {
        match text.parse().unwrap() {
            StoreUrl::Redis(url) => url,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn reads_every_part_of_a_redis_url() {
        let url = redis("redis://al%40ice:p%2Fw@[::1]:6380/7");
        assert_eq!(url.username().as_deref(), Some("al@ice"));
        assert_eq!(url.password().as_deref(), Some("p/w"));
        assert_eq!((url.host(), url.port(), url.database()), ("::1", 6380, 7));
        let url = redis("redis://cache");
        assert_eq!((url.host(), url.port(), url.database()), ("cache", 6379, 0));
        assert_eq!((url.username(), url.password()), (None, None));
    }

    #[test]
    fn never_shows_a_password() {
        let url: StoreUrl = "redis://:s3cret@db/1".parse().unwrap();
        assert_eq!(url.to_string(), "redis://:***@db:6379/1");
        assert!(!format!("{url:?}").contains("s3cret"));
        let error = "redis://:s3cret@db/x".parse::<StoreUrl>().unwrap_err();
        assert!(!error.to_string().contains("s3cret"));
    }

    #[test]
    fn shows_nothing_of_a_text_that_may_hold_a_password() {
        assert_eq!(StoreUrl::redact("embedded:./data"), "embedded:./data");
        assert_eq!(StoreUrl::redact("redis://:s3cret"), "redis:***");
        assert_eq!(StoreUrl::redact("s3cret@db"), "***");
    }

    #[test]
    fn refuses_what_names_no_store() {
        for (bad, reason) in [
            ("", "is empty"),
            ("redis:", "has no scheme of these"),
            ("mysql://x", "has no scheme of these"),
            ("embedded:", "names no directory"),
            ("redis://", "is not a Redis URL: it names no host"),
            (
                "redis://s3cret@h",
                "is not a Redis URL: a user needs a password; a password alone is written :PASSWORD@",
            ),
            (
                "redis://h/x",
                "is not a Redis URL: the database is a number",
            ),
            (
                "redis://h?x",
                "is not a Redis URL: nothing may follow the database number",
            ),
        ] {
            let error = bad.parse::<StoreUrl>().unwrap_err();
            assert_eq!(error.to_string(), reason, "{bad}");
        }
    }
}
