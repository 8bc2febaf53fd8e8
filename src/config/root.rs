//! The configuration as a whole: its tables, and the settings outside of tables.

use std::{net::SocketAddr, num::NonZero, thread};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AuditConfig, AuthConfig, HistoryConfig, HttpConfig, Invalid, LimitsConfig, LocksConfig,
    LogConfig, MetricsConfig, RedisConfig, RedlockConfig, ServersKind, ShutdownConfig, StoreUrl,
    TraceConfig,
};

/// The configuration of `latchgate serve`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The address on which the gateway listens, as `IP:PORT`. With port 0 the gateway takes a free
    /// port and prints it.
    pub listen: SocketAddr,
    /// Where leases live: `embedded:DIR`, `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`,
    /// `redis+sentinel://[USER:PASSWORD@]HOST[:PORT],../SERVICE[/DB]` for the master that these
    /// sentinels name, `redis+cluster://[USER:PASSWORD@]HOST[:PORT],..` for the cluster that these
    /// servers are part of, or `redlock://[USER:PASSWORD@]HOST[:PORT],..[/DB]` for a quorum of
    /// independent servers; with TLS `rediss://..`, `rediss+sentinel://..`, `rediss+cluster://..` and
    /// `redlocks://..`. A password is safer in `redis.password_file`.
    pub store: StoreUrl,
    /// Serve without API keys on an address that other machines can reach. Every caller that reaches
    /// the gateway can then take and inspect every lock. The gateway answers to a host name only if
    /// `http.allowed_hosts` lists the name.
    pub insecure_no_auth: bool,
    /// How many threads answer requests; 0 for one for each processor. With an embedded store 0 means
    /// one fewer, but at least one, and leaves one processor to the store.
    #[schemars(range(min = 0, max = Config::MOST_THREADS))]
    pub threads: usize,
    /// API keys, and sessions of the dashboard.
    pub auth: AuthConfig,
    /// The audit log.
    pub audit: AuditConfig,
    /// How HTTP is served.
    pub http: HttpConfig,
    /// Limits of what callers may request.
    pub limits: LimitsConfig,
    /// Declared locks.
    pub locks: LocksConfig,
    /// The history of locks: who held a lock, and how that ended.
    pub history: HistoryConfig,
    /// The Redis store.
    pub redis: RedisConfig,
    /// The Redlock store.
    pub redlock: RedlockConfig,
    /// How the gateway stops.
    pub shutdown: ShutdownConfig,
    /// Content and form of the log.
    pub log: LogConfig,
    /// Where metrics are served.
    pub metrics: MetricsConfig,
    /// Where traces are sent.
    pub trace: TraceConfig,
}

// === impl Config ===

impl Config {
    const MOST_THREADS: usize = 512;

    /// Lowers `limits.max_ttl_ms` to the longest TTL that the store can keep, if it is higher.
    pub(super) fn within_the_store(mut self) -> Self {
        if self.store.is_on(ServersKind::Quorum) {
            let most = &mut self.limits.max_ttl_ms;
            *most = self.redlock.max_ttl_ms.min(*most);
        }
        self
    }

    /// The number of threads that answer requests. If `threads` is 0, the number follows from the processors.
    pub fn request_threads(&self) -> usize {
        match self.threads {
            0 => {
                let processors = thread::available_parallelism().map_or(1, NonZero::get);
                let of_the_store = usize::from(matches!(self.store, StoreUrl::Embedded(_)));
                (processors - of_the_store).clamp(1, Self::MOST_THREADS)
            }
            threads => threads,
        }
    }

    /// Checks that a gateway can be started with this configuration. Reads no file.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.auth.validate()?;
        if self.insecure_no_auth && self.auth.has_keys() {
            return Err(Invalid::new(
                "insecure_no_auth",
                true,
                "false, because auth.keys_file names API keys, and the two settings exclude each \
                 other",
            )
            .depending_on("auth.keys_file"));
        }
        let is_loopback = self.listen.ip().to_canonical().is_loopback();
        if !is_loopback && !self.insecure_no_auth && !self.auth.has_keys() {
            return Err(Invalid::new(
                "listen",
                self.listen,
                "a loopback address such as 127.0.0.1:7420, because without API keys \
                 (auth.keys_file, LATCHGATE_AUTH_KEYS_FILE) every client that reaches the \
                 gateway can take every lock. To allow this, set one of: --insecure-no-auth, \
                 LATCHGATE_INSECURE_NO_AUTH=true, or insecure_no_auth = true",
            )
            .depending_on("insecure_no_auth"));
        }
        self.http.validate()?;
        self.limits.validate()?;
        self.redis.validate()?;
        self.redis.validate_for(&self.store)?;
        self.redlock.validate_for(&self.store, &self.limits)?;
        self.shutdown.validate()?;
        self.metrics.validate()?;
        self.metrics.validate_beside(self.listen)?;
        self.log.validate()?;
        self.trace.validate()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // A loopback address: without API keys, other machines must not reach the gateway unless the operator says
            // so.
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            store: StoreUrl::default(),
            insecure_no_auth: false,
            threads: 0,
            auth: AuthConfig::default(),
            audit: AuditConfig::default(),
            http: HttpConfig::default(),
            limits: LimitsConfig::default(),
            locks: LocksConfig::default(),
            history: HistoryConfig::default(),
            redis: RedisConfig::default(),
            redlock: RedlockConfig::default(),
            shutdown: ShutdownConfig::default(),
            log: LogConfig::default(),
            metrics: MetricsConfig::default(),
            trace: TraceConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn there_is_always_a_thread_for_requests_and_never_an_absurd_number() {
        let with = |threads| Config {
            threads,
            ..Config::default()
        };
        let embedded = with(0).request_threads();
        assert!((1..=512).contains(&embedded));
        let remote = Config {
            store: "redis://localhost".parse().unwrap(),
            ..with(0)
        };
        let processors = thread::available_parallelism().unwrap().get();
        assert_eq!(remote.request_threads(), processors.min(512));
        assert_eq!(embedded, (processors - 1).clamp(1, 512));
        assert_eq!(with(3).request_threads(), 3);
    }

    #[test]
    fn with_keys_every_address_is_served_and_nothing_is_insecure() {
        let mut config = Config {
            listen: "0.0.0.0:1".parse().unwrap(),
            ..Config::default()
        };
        config.auth.keys_file = "keys.toml".to_owned();
        config.validate().unwrap();
        config.insecure_no_auth = true;
        let invalid = config.validate().unwrap_err();
        assert_eq!(invalid.depends_on, Some("auth.keys_file"), "{invalid}");
    }

    #[test]
    fn without_authentication_only_loopback_is_served_unless_it_is_meant() {
        let listening = |address: &str, insecure_no_auth| Config {
            listen: address.parse().unwrap(),
            insecure_no_auth,
            ..Config::default()
        };
        for loopback in [
            "127.0.0.1:1",
            "127.8.8.8:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            listening(loopback, false).validate().unwrap();
        }
        for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            let invalid = listening(open, false).validate().unwrap_err();
            assert!(invalid.allowed.contains("--insecure-no-auth"), "{invalid}");
            listening(open, true).validate().unwrap();
        }
    }
}
