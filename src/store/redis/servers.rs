//! Where a Redis store is.

use std::fmt;

use crate::config::{ClusterUrl, RedisLogin, RedisUrl, SentinelUrl};

/// Where a Redis store is.
#[derive(Debug, Clone)]
pub enum RedisServers {
    /// On one server.
    One(RedisUrl),
    /// On the master that the sentinels name.
    Sentinel(SentinelUrl),
    /// On the masters of a cluster.
    Cluster(ClusterUrl),
}

// === impl RedisServers ===

impl RedisServers {
    /// How to log in to whoever has the locks.
    pub(super) fn login(&self) -> RedisLogin {
        match self {
            Self::One(url) => url.login(),
            Self::Sentinel(url) => url.login(),
            Self::Cluster(url) => url.login(),
        }
    }
}

impl From<&RedisUrl> for RedisServers {
    fn from(url: &RedisUrl) -> Self {
        Self::One(url.clone())
    }
}

impl From<&SentinelUrl> for RedisServers {
    fn from(url: &SentinelUrl) -> Self {
        Self::Sentinel(url.clone())
    }
}

impl From<&ClusterUrl> for RedisServers {
    fn from(url: &ClusterUrl) -> Self {
        Self::Cluster(url.clone())
    }
}

/// For people; never with a password.
impl fmt::Display for RedisServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(url) => write!(f, "Redis at {url}"),
            Self::Sentinel(url) => write!(f, "Redis by the sentinels of {url}"),
            Self::Cluster(url) => write!(f, "the Redis cluster at {url}"),
        }
    }
}
