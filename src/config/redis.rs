//! Settings of the stores on Redis: one server, Sentinel and Cluster (`[redis]`), and the quorum (`[redlock]`).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    lock::Ttl,
    tls::{ClientFiles, IdentityFiles, PemFile},
};

use super::{Invalid, LimitsConfig, Millis, ServersKind, StoreUrl};

/// The Redis store.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// How many connections to each server carry commands; 0 for one for each thread that answers
    /// requests. Many requests share a connection at once. The connections are spread over these
    /// threads; a thread without a connection uses those of other threads, which costs more.
    #[schemars(range(min = 0, max = 256))]
    pub connections: u32,
    /// How long connecting to a server may take.
    #[schemars(range(min = 10, max = 60_000))]
    pub connect_timeout_ms: Millis,
    /// How long the answer to one command may take before the gateway sends the command again: at most
    /// `deadline_ms`.
    #[schemars(range(min = 10, max = 60_000))]
    pub command_timeout_ms: Millis,
    /// How long a request may take with all resends. After this time the answer is 503 if nothing
    /// happened, and 504 if that is not known. Keep the time-outs of clients longer. A command that no
    /// server has taken yet is tried for a second at most; then the answer is 503.
    #[schemars(range(min = 10, max = 60_000))]
    pub deadline_ms: Millis,
    /// Serve although Redis may evict keys when its memory is full (`maxmemory` with a
    /// `maxmemory-policy` other than `noeviction`). An eviction frees a lock that is still held.
    pub accept_eviction: bool,
    /// How many replicas must have a grant before the gateway answers it. If fewer have it in time, the
    /// gateway takes the grant back, and the answer is 503, or 504 to a request that waited. 0 to answer
    /// at once: a replica that becomes the master grants a lock again if it lacks the first grant. With
    /// Sentinel and Cluster, N needs N + 1 replicas of each master: after a failover one replica is the
    /// master, and with fewer than N others no lock is granted.
    #[schemars(range(min = 0, max = 16))]
    pub wait_replicas: u32,
    /// How long `wait_replicas` may take to have a grant: at most `deadline_ms`. A request that comes
    /// while the gateway waits for replicas waits twice as long at most. As much of `deadline_ms` as one
    /// command may take, a quarter at most, is kept for taking the grant back. The answer says what is
    /// left of the lease; a lease that is over by then is taken back.
    #[schemars(range(min = 1, max = 60_000))]
    pub wait_timeout_ms: Millis,
    /// The ACL user, unless the URL of the store names one. Empty for the default user.
    pub username: String,
    /// A file with the password, unless the URL of the store has one. A line break at the end of the
    /// file is no part of the password. The gateway reads the file for every new connection. Empty for
    /// none.
    pub password_file: String,
    /// TLS to Redis, for a store that is `rediss://`. The files are read again when they have
    /// changed.
    pub tls: RedisTlsConfig,
    /// The sentinels, for a store that is `redis+sentinel://`.
    pub sentinel: RedisSentinelConfig,
}

// === impl RedisConfig ===

impl RedisConfig {
    /// Checks the Redis settings that do not depend on the URL of the store.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let command = ("redis.command_timeout_ms", self.command_timeout_ms);
        let deadline = ("redis.deadline_ms", self.deadline_ms);
        Invalid::unless_at_most(command, deadline)?;
        let wait = ("redis.wait_timeout_ms", self.wait_timeout_ms);
        if self.wait_replicas > 0 {
            Invalid::unless_at_most(wait, deadline)?;
        }
        let user = ("redis.username", self.username.as_str());
        let password = ("redis.password_file", self.password_file.as_str());
        Invalid::unless_with(user, password)?;
        self.tls.validate()?;
        self.sentinel.validate()
    }

    /// Refuses Redis settings that contradict the URL of the store, or that have no effect with it.
    pub(super) fn validate_for(&self, url: &StoreUrl) -> Result<(), Invalid> {
        let Some(login) = url.login() else {
            return Ok(());
        };
        let scheme = url.to_string();
        let scheme = scheme.split("://").next().unwrap_or_default();
        let over_tls = match scheme.split_once('+') {
            Some((redis, kind)) => format!("{redis}s+{kind}"),
            None => format!("{scheme}s"),
        };
        let no_tls = format!("because the store is {scheme}://; for TLS it is {over_tls}://");
        // A setting without effect is refused: otherwise an operator would believe that it is in force.
        for (is_refused, why, texts) in [
            (
                login.names_somebody(),
                "because the URL of the store has a password",
                &[
                    ("redis.username", &self.username),
                    ("redis.password_file", &self.password_file),
                ][..],
            ),
            (
                !url.is_on(ServersKind::Sentinels),
                "because the store is not redis+sentinel://",
                &[
                    ("redis.sentinel.username", &self.sentinel.username),
                    ("redis.sentinel.password_file", &self.sentinel.password_file),
                ],
            ),
            (
                !login.is_tls,
                &no_tls,
                &[
                    ("redis.tls.ca_file", &self.tls.ca_file),
                    ("redis.tls.cert_file", &self.tls.cert_file),
                    ("redis.tls.key_file", &self.tls.key_file),
                ],
            ),
        ] {
            let set = texts.iter().find(|(_, text)| !text.is_empty());
            if let (true, Some((key, value))) = (is_refused, set) {
                let invalid = Invalid::new(key, format!("{value:?}"), format!("nothing, {why}"));
                return Err(invalid.depending_on("store"));
            }
        }
        if url.is_on(ServersKind::Quorum) && self.wait_replicas > 0 {
            // The nodes of a quorum have no replicas to wait for: each lease is on a majority of independent nodes.
            let allowed = "0, because the store is redlock://";
            let invalid = Invalid::new("redis.wait_replicas", self.wait_replicas, allowed);
            return Err(invalid.depending_on("store"));
        }
        Ok(())
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            // 0, for one connection for each thread: then no request wakes another thread. With more connections, fewer
            // commands would travel together in one system call.
            connections: 0,
            // Much longer than the millisecond that connecting takes within one network.
            connect_timeout_ms: Millis(1_000),
            // Longer than any answer of a healthy Redis, and short enough for two resends within the deadline.
            command_timeout_ms: Millis(1_500),
            // Shorter than the 10 s after which many HTTP clients give up.
            deadline_ms: Millis(5_000),
            accept_eviction: false,
            // 0, because most Redis servers have no replicas.
            wait_replicas: 0,
            // Replicas in one data centre acknowledge a grant within a millisecond. If a replica is away, a caller
            // waits this long, and callers that come meanwhile wait twice as long at most.
            wait_timeout_ms: Millis(500),
            username: String::new(),
            password_file: String::new(),
            tls: RedisTlsConfig::default(),
            sentinel: RedisSentinelConfig::default(),
        }
    }
}

// === Redis sentinel ===
//
// The sentinels of the Redis store.

/// The sentinels, for a store that is `redis+sentinel://`. The gateway reaches sentinels over TLS if it reaches Redis
/// over TLS.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisSentinelConfig {
    /// How long a sentinel may take to name the master, connecting included. A slow sentinel does not
    /// delay the answers of the others.
    #[schemars(range(min = 10, max = 60_000))]
    pub timeout_ms: Millis,
    /// The ACL user of the sentinels. Empty for the default user. The user and the password of Redis
    /// itself are not sent to sentinels.
    pub username: String,
    /// A file with the password of the sentinels. A line break at the end of the file is no part of the
    /// password. The gateway reads the file for every new connection. Empty for none.
    pub password_file: String,
}

// === impl RedisSentinelConfig ===

impl RedisSentinelConfig {
    /// Refuses a user of the sentinels without a password file. Reads no file.
    fn validate(&self) -> Result<(), Invalid> {
        let user = ("redis.sentinel.username", self.username.as_str());
        let password = ("redis.sentinel.password_file", self.password_file.as_str());
        Invalid::unless_with(user, password)
    }
}

impl Default for RedisSentinelConfig {
    fn default() -> Self {
        Self {
            // A sentinel has little work, so a sentinel that needs longer is probably away. While the gateway looks for
            // the master, all requests wait.
            timeout_ms: Millis(500),
            username: String::new(),
            password_file: String::new(),
        }
    }
}

// === Redis tls ===
//
// TLS to Redis.

/// TLS to Redis, for a store that is `rediss://`. The files are read again when they have changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisTlsConfig {
    /// The PEM file with the authorities of the certificate of Redis. Empty for the authorities of the
    /// system.
    pub ca_file: String,
    /// The PEM file with the certificate that the gateway shows to Redis. Empty for none.
    pub cert_file: String,
    /// The PEM file with the private key of the certificate.
    pub key_file: String,
}

// === impl RedisTlsConfig ===

impl RedisTlsConfig {
    /// Checks that the certificate for Redis and its key are set together. Reads no file.
    fn validate(&self) -> Result<(), Invalid> {
        let certificate = ("redis.tls.cert_file", self.cert_file.as_str());
        let key = ("redis.tls.key_file", self.key_file.as_str());
        Invalid::unless_with(certificate, key)?;
        Invalid::unless_with(key, certificate)
    }

    /// The files for TLS connections to Redis: the authorities, and the gateway's certificate with its key.
    pub fn files(&self) -> ClientFiles {
        let named =
            |by: &'static str, path: &String| (!path.is_empty()).then(|| PemFile::new(by, path));
        let certificate = named("redis.tls.cert_file", &self.cert_file);
        let key = named("redis.tls.key_file", &self.key_file);
        ClientFiles {
            ca: named("redis.tls.ca_file", &self.ca_file),
            identity: certificate
                .zip(key)
                .map(|(certificate, key)| IdentityFiles { certificate, key }),
        }
    }
}

// === Redlock ===

/// The quorum, for a store that is `redlock://`. The settings in `[redis]`, except `wait_replicas`, apply to its nodes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedlockConfig {
    /// The longest TTL that a request may name, if `limits.max_ttl_ms` is not shorter. For this time
    /// after its start a node does not vote, because it may have forgotten leases that still last.
    #[schemars(range(min = Ttl::MIN.as_millis(), max = Ttl::MAX.as_millis()))]
    pub max_ttl_ms: Millis,
    /// How long a node may take for one answer. A slower node has no vote on that request. Choose much
    /// less than the TTLs in use.
    #[schemars(range(min = 10, max = 10_000))]
    pub node_timeout_ms: Millis,
    /// What the nodes keep over a restart: `unknown`, or `aof-always` if every node has `appendonly yes`
    /// and `appendfsync always`. With `aof-always` a node votes without a wait after its start.
    pub persistence: Persistence,
    /// Let nodes vote as soon as they are started: for a quorum that is new, and for trials. Remove this
    /// setting afterwards: a node that restarts would grant a lock again whose lease it has forgotten.
    pub vote_at_once: bool,
}

/// What a quorum node keeps over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// After a restart, a node may have forgotten leases for which it has voted.
    Unknown,
    /// After a restart, a node still has everything that it has answered.
    AofAlways,
}

// === impl RedlockConfig ===

impl RedlockConfig {
    /// Checks that the shortest and the default TTL are at most `max_ttl_ms`, if the store is a quorum.
    pub(super) fn validate_for(
        &self,
        url: &StoreUrl,
        limits: &LimitsConfig,
    ) -> Result<(), Invalid> {
        if !url.is_on(ServersKind::Quorum) {
            return Ok(());
        }
        let most = ("redlock.max_ttl_ms", self.max_ttl_ms);
        for ttl in [
            ("limits.min_ttl_ms", limits.min_ttl_ms),
            ("limits.default_ttl_ms", limits.default_ttl_ms),
        ] {
            Invalid::unless_at_most(ttl, most)?;
        }
        Ok(())
    }

    /// Whether a node that restarts may have forgotten leases for which it has voted.
    pub fn forgets(&self) -> bool {
        self.persistence != Persistence::AofAlways
    }

    /// How long a node must have run before it votes: `max_ttl_ms`, and a hundredth more because clocks differ in
    /// speed.
    pub fn wait(&self) -> Duration {
        if self.vote_at_once || self.persistence == Persistence::AofAlways {
            return Duration::ZERO;
        }
        let ttl = self.max_ttl_ms.duration();
        // A second is added because a node reports its uptime in whole seconds.
        ttl + ttl / 100 + Duration::from_secs(1)
    }
}

impl Default for RedlockConfig {
    fn default() -> Self {
        Self {
            // Twice the default TTL: a holder that needs more time renews its lease. A node does not vote for this time
            // after its start.
            max_ttl_ms: Millis(60_000),
            // Longer than any answer of a healthy node in one region, and much shorter than a TTL of some seconds.
            node_timeout_ms: Millis(250),
            persistence: Persistence::Unknown,
            vote_at_once: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_fits_into_the_deadline() {
        let config = RedisConfig {
            command_timeout_ms: Millis(5_001),
            ..RedisConfig::default()
        };
        let invalid = config.validate().unwrap_err();
        assert_eq!(invalid.depends_on, Some("redis.deadline_ms"));
    }

    #[test]
    fn replicas_are_waited_for_within_the_deadline() {
        let config = |wait_replicas| RedisConfig {
            wait_replicas,
            wait_timeout_ms: Millis(5_001),
            ..RedisConfig::default()
        };
        config(0).validate().unwrap();
        let invalid = config(1).validate().unwrap_err();
        assert_eq!(invalid.depends_on, Some("redis.deadline_ms"));
    }

    #[test]
    fn what_is_set_for_sentinels_is_refused_where_there_are_none() {
        let mut config = RedisConfig::default();
        config.sentinel.password_file = "f".to_owned();
        let sentinels = "redis+sentinel://s/m".parse().unwrap();
        config.validate_for(&sentinels).unwrap();
        let invalid = config.validate_for(&"redis://h".parse().unwrap());
        let invalid = invalid.unwrap_err();
        assert_eq!(
            (invalid.key, invalid.depends_on),
            ("redis.sentinel.password_file", Some("store"))
        );
        config.tls.ca_file = "ca".to_owned();
        let invalid = config.validate_for(&sentinels).unwrap_err();
        assert!(invalid.allowed.contains("rediss+sentinel://"), "{invalid}");
        config.sentinel.password_file.clear();
        let cluster = "redis+cluster://n".parse().unwrap();
        let invalid = config.validate_for(&cluster).unwrap_err();
        assert!(invalid.allowed.contains("rediss+cluster://"), "{invalid}");
    }

    #[test]
    fn a_started_node_waits_as_long_as_the_longest_lease_and_its_clock_may_take() {
        let mut config = RedlockConfig::default();
        assert_eq!(config.wait(), Duration::from_millis(61_600));
        config.persistence = Persistence::AofAlways;
        assert_eq!(config.wait(), Duration::ZERO);
        config.persistence = Persistence::Unknown;
        config.vote_at_once = true;
        assert_eq!(config.wait(), Duration::ZERO);
    }

    #[test]
    fn the_default_ttl_fits_below_the_longest_where_there_is_a_quorum() {
        let config = RedlockConfig {
            max_ttl_ms: Millis(20_000),
            ..RedlockConfig::default()
        };
        let limits = LimitsConfig::default();
        let single = "redis://h".parse().unwrap();
        config.validate_for(&single, &limits).unwrap();
        let quorum = "redlock://a,b,c".parse().unwrap();
        let invalid = config.validate_for(&quorum, &limits).unwrap_err();
        assert_eq!(
            (invalid.key, invalid.depends_on),
            ("limits.default_ttl_ms", Some("redlock.max_ttl_ms"))
        );
    }
}
