//! What a gateway tells of itself: log, metrics and traces.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};
use url::Url;

use crate::tls::{ClientFiles, PemFile};

use super::{Invalid, Millis};

/// What is logged, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// What is logged: `error`, `warn`, `info`, `debug`, `trace` or `off`. A list may give modules
    /// a level of their own: `info,latchgate::store=debug`.
    pub level: String,
    /// How it is written: `text` for people, `json` for machines, one object per line.
    pub format: LogFormat,
    /// Which requests get a line of their own: `failed` for those that failed or were slow, `all` for
    /// every one. Failed is every answer from 400 on, but for 423: that a lock is held is no failure. So
    /// is a request whose caller hung up before the answer. Slow is what the gateway worked on for a
    /// second or longer; the time in which a request waits for a lock, or for the rest of its own body,
    /// does not count. Metrics count every request in either case.
    pub requests: LogRequests,
}

/// Which requests get a log line of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogRequests {
    /// Those that failed or were slow.
    Failed,
    /// Every one.
    All,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

// === impl LogConfig ===

impl LogConfig {
    /// Finds out whether something can be logged in this way.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        self.filter().map(|_filter| ())
    }

    /// The filter that `level` describes.
    pub fn filter(&self) -> Result<Targets, Invalid> {
        let invalid = || {
            let allowed = "error, warn, info, debug, trace or off, or a list such as \
                           info,latchgate::store=debug";
            Invalid::new("log.level", format!("{:?}", self.level), allowed)
        };
        // It warns of each answer to a ping that is not its own, and some are ours.
        let mut filter = Targets::new().with_target("h2::proto::ping_pong", LevelFilter::ERROR);
        for part in self.level.split(',') {
            filter = match part.split_once('=') {
                None => filter.with_default(level(part).ok_or_else(invalid)?),
                Some((module, name)) if is_module(module) => {
                    filter.with_target(module, level(name).ok_or_else(invalid)?)
                }
                Some(_) => return Err(invalid()),
            };
        }
        Ok(filter)
    }
}

/// Only the names: the parser of the library also takes numbers, and any other word as a module.
fn level(name: &str) -> Option<LevelFilter> {
    match name {
        "off" | "error" | "warn" | "info" | "debug" | "trace" => name.parse().ok(),
        _ => None,
    }
}

fn is_module(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.split("::").all(part)
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
            // A line for each request is work for each request, and hides those that somebody should read.
            requests: LogRequests::Failed,
        }
    }
}

// === Metrics ===

/// Where metrics are served.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// An address of its own for `GET /metrics`, as `IP:PORT`; empty for none. Whoever reaches it reads
    /// the metrics without an API key, and nothing else: they hold no lock name, no owner and no
    /// secret. `GET /metrics` is served on the gateway's own address all the same. Requests to this address are treated like
    /// those to any route: without exactly one valid `Host` they are refused (any host may be named), errors are problem
    /// documents, and all are counted in the metrics of requests.
    pub listen: String,
}

// === impl MetricsConfig ===

impl MetricsConfig {
    /// Finds out whether metrics can be served there.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if self.listen.is_empty() || self.listen.parse::<SocketAddr>().is_ok() {
            return Ok(());
        }
        let allowed = "an address as IP:PORT such as 127.0.0.1:9420, or nothing";
        Err(Invalid::new("metrics.listen", &self.listen, allowed))
    }

    /// Finds out whether the gateway's own address leaves it free.
    pub(super) fn validate_beside(&self, gateway: SocketAddr) -> Result<(), Invalid> {
        let Some(address) = self.address() else {
            return Ok(());
        };
        let same_port = address.port() == gateway.port() && address.port() != 0;
        let (here, there) = (address.ip().to_canonical(), gateway.ip().to_canonical());
        let any = here.is_unspecified() || there.is_unspecified();
        if same_port && (here == there || any && here.is_ipv4() == there.is_ipv4()) {
            let allowed = "an address that the gateway does not listen on itself: it serves \
                           GET /metrics on its own address all the same";
            return Err(
                Invalid::new("metrics.listen", &self.listen, allowed).depending_on("listen")
            );
        }
        Ok(())
    }

    /// The address, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

// === Traces ===

/// Where traces are sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceConfig {
    /// The collector that is sent spans with OTLP over HTTP, such as `http://127.0.0.1:4318`; without a
    /// path `/v1/traces` is meant. Empty for none. A collector that is away costs spans and nothing
    /// else.
    pub endpoint: String,
    /// A file with headers for the collector, one `Name: value` per line. Empty for none.
    pub headers_file: String,
    /// The PEM file with the authorities that vouch for a collector at `https://`. Empty for the
    /// authorities of the system. Read at the start.
    pub ca_file: String,
    /// How many of a thousand requests that come without a `traceparent` are traced. One that comes
    /// with it is traced if its caller is.
    #[schemars(range(min = 0, max = 1_000))]
    pub sample_per_mille: u64,
    /// The name under which the gateway appears in a trace.
    pub service_name: String,
    /// How long the collector may take to answer.
    #[schemars(range(min = 100, max = 60_000))]
    pub timeout_ms: Millis,
    /// Send the names of locks to the collector.
    pub lock_names: bool,
}

// === impl TraceConfig ===

impl TraceConfig {
    /// Whether spans are sent anywhere.
    pub fn is_sent(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// To where exactly.
    pub fn url(&self) -> Result<Url, Invalid> {
        let invalid = || {
            let allowed = "http://HOST[:PORT][/PATH] or https://.. without a user, a query or a \
                           fragment; what is secret goes into trace.headers_file";
            // It may hold a password, however it is written.
            Invalid::new("trace.endpoint", "not usable", allowed)
        };
        let mut url = Url::parse(&self.endpoint).map_err(|_error| invalid())?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some_and(|host| !host.is_empty())
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_plain {
            return Err(invalid());
        }
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok(url)
    }

    /// The authorities that vouch for the collector.
    pub fn tls_files(&self) -> ClientFiles {
        let path = &self.ca_file;
        ClientFiles {
            ca: (!path.is_empty()).then(|| PemFile::new("trace.ca_file", path)),
            identity: None,
        }
    }

    /// Finds out whether traces can be sent with these values.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let is_encrypted = self.is_sent() && self.url()?.scheme() == "https";
        if !self.ca_file.is_empty() && !is_encrypted {
            let allowed = "nothing, because trace.endpoint is not https://";
            let value = format!("{:?}", self.ca_file);
            return Err(Invalid::new("trace.ca_file", value, allowed));
        }
        if self.service_name.is_empty() || self.service_name.len() > 200 {
            let value = format!("{:?}", self.service_name);
            return Err(Invalid::new("trace.service_name", value, "1 to 200 bytes"));
        }
        Ok(())
    }
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self {
            // Nobody is told anything unless somebody says whom.
            endpoint: String::new(),
            headers_file: String::new(),
            ca_file: String::new(),
            // Whoever sets up a collector wants to see something; under load it is set lower.
            sample_per_mille: 1_000,
            service_name: "latchgate".to_owned(),
            // A collector next door answers in milliseconds; half of the grace period is left.
            timeout_ms: Millis(5_000),
            // What a lock is called may say what somebody does.
            lock_names: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn with(level: &str) -> LogConfig {
        LogConfig {
            level: level.to_owned(),
            ..LogConfig::default()
        }
    }

    #[test]
    fn a_module_may_have_a_level_of_its_own() {
        let filter = with("warn,latchgate::store=debug").filter().unwrap();
        assert!(filter.would_enable("latchgate::store::redis", &Level::DEBUG));
        assert!(!filter.would_enable("latchgate::http", &Level::INFO));
        assert!(filter.would_enable("latchgate::http", &Level::WARN));
        assert!(filter.would_enable("h2::proto", &Level::WARN));
        assert!(!filter.would_enable("h2::proto::ping_pong", &Level::WARN));
    }

    #[test]
    fn a_misspelt_level_is_refused() {
        for bad in [
            "",
            "inof",
            "INFO",
            "3",
            "info,",
            "latchgate",
            "=info",
            "a b=info",
            "x=loud",
        ] {
            let invalid = with(bad).validate().unwrap_err();
            assert_eq!(invalid.key, "log.level", "{bad}");
        }
    }

    fn url(endpoint: &str) -> Result<String, Invalid> {
        let config = TraceConfig {
            endpoint: endpoint.to_owned(),
            ..TraceConfig::default()
        };
        config.validate()?;
        config.url().map(|url| url.to_string())
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let standard = "http://collector:4318/v1/traces";
        assert_eq!(url("http://collector:4318").unwrap(), standard);
        assert_eq!(url("http://collector:4318/").unwrap(), standard);
        assert_eq!(url("https://c/otlp/x").unwrap(), "https://c/otlp/x");
    }

    #[test]
    fn an_authority_is_for_a_collector_over_https_only() {
        let config = |endpoint: &str| TraceConfig {
            endpoint: endpoint.to_owned(),
            ca_file: "ca.pem".to_owned(),
            ..TraceConfig::default()
        };
        config("https://c").validate().unwrap();
        // Somebody believes that what is sent is encrypted.
        for endpoint in ["", "http://c"] {
            let invalid = config(endpoint).validate().unwrap_err();
            assert_eq!(invalid.key, "trace.ca_file");
        }
    }

    #[test]
    fn what_may_hold_a_secret_is_refused_and_not_repeated() {
        for bad in [
            "http://me:SECRET@collector",
            "http://SECRET@collector",
            "http://collector?key=SECRET",
            "http://collector#SECRET",
            "redis://SECRET",
            "SECRET",
        ] {
            let invalid = url(bad).unwrap_err();
            assert_eq!(invalid.key, "trace.endpoint");
            assert!(!invalid.to_string().contains("SECRET"), "{invalid}");
        }
    }
}
