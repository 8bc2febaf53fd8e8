//! Settings of the log (`[log]`), of metrics (`[metrics]`) and of traces (`[trace]`).

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::{LevelFilter, Targets};
use url::Url;

use crate::tls::{ClientFiles, PemFile};

use super::{Invalid, Millis};

/// Content and form of the log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// The least severe level that is logged: `error`, `warn`, `info`, `debug`, `trace` or `off`. A list
    /// may give modules a level of their own: `info,latchgate::store=debug`.
    pub level: String,
    /// The form of the log: `text` for people, `json` for machines, one object per line.
    pub format: LogFormat,
    /// Which requests get a log line: `failed` for requests that failed or were slow, `all` for every
    /// request. A request failed if its status is 400 or more, except 423 (a held lock is no failure) and
    /// 503 `draining`, or if its caller hung up before the answer. A request was slow if the gateway worked on it for a
    /// second or longer; the time in which a request waits for a lock, or for the rest of its own body,
    /// does not count. Metrics count every request in either case.
    pub requests: LogRequests,
}

/// Which requests get a log line of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogRequests {
    /// A request gets a log line if it failed or was slow.
    Failed,
    /// Every request gets a log line.
    All,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A log line is text for people.
    Text,
    /// A log line is one JSON object.
    Json,
}

// === impl LogConfig ===

impl LogConfig {
    /// Checks that `level` describes a filter of log lines.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        self.filter().map(|_filter| ())
    }

    /// The filter of log lines that `level` describes.
    pub fn filter(&self) -> Result<Targets, Invalid> {
        let invalid = || {
            let allowed = "error, warn, info, debug, trace or off, or a list such as \
                           info,latchgate::store=debug";
            Invalid::new("log.level", format!("{:?}", self.level), allowed)
        };
        // h2 warns of each answer to a ping that it did not send itself. The gateway sends such pings, so without this
        // filter the warnings would fill the log.
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

/// Parses the name of a log level. The library's own parser is not used, because it also accepts numbers, and takes any
/// other word for a module.
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
            // A log line for each request would cost time, and hide the lines that an operator should read.
            requests: LogRequests::Failed,
        }
    }
}

// === Metrics ===

/// Where metrics are served.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// A separate address for `GET /metrics`, as `IP:PORT`; empty for none. A caller that reaches this
    /// address reads the metrics without an API key, and nothing else; metrics hold no lock name, no
    /// owner and no secret. The gateway's own address serves `GET /metrics` as well. Requests to this
    /// address are treated like requests to any route: a request without exactly one valid `Host` is
    /// refused (any host may be named), errors are problem documents, and all requests are counted in
    /// the metrics of requests.
    pub listen: String,
}

// === impl MetricsConfig ===

impl MetricsConfig {
    /// Checks that `metrics.listen` is empty or an address.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if self.listen.is_empty() || self.listen.parse::<SocketAddr>().is_ok() {
            return Ok(());
        }
        let allowed = "an address as IP:PORT such as 127.0.0.1:9420, or nothing";
        Err(Invalid::new("metrics.listen", &self.listen, allowed))
    }

    /// Checks that the address for metrics does not overlap with the address on which the gateway listens.
    pub(super) fn validate_beside(&self, gateway: SocketAddr) -> Result<(), Invalid> {
        let Some(address) = self.address() else {
            return Ok(());
        };
        let same_port = address.port() == gateway.port() && address.port() != 0;
        let (here, there) = (address.ip().to_canonical(), gateway.ip().to_canonical());
        let any = here.is_unspecified() || there.is_unspecified();
        if same_port && (here == there || any && here.is_ipv4() == there.is_ipv4()) {
            let allowed = "another address than `listen`: the gateway serves GET /metrics on its \
                           own address anyway";
            return Err(
                Invalid::new("metrics.listen", &self.listen, allowed).depending_on("listen")
            );
        }
        Ok(())
    }

    /// The separate address for metrics, if one is set.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

// === Traces ===

/// Where traces are sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceConfig {
    /// The collector to which spans are sent with OTLP over HTTP, such as `http://127.0.0.1:4318`;
    /// without a path, `/v1/traces` is used. Empty for none. If the collector cannot be reached, spans
    /// are lost, and requests are served as usual.
    pub endpoint: String,
    /// A file with headers for the collector, one `Name: value` per line. Empty for none.
    pub headers_file: String,
    /// The PEM file with the authorities of the certificate of a collector at `https://`. Empty for the
    /// authorities of the system. The file is read at the start.
    pub ca_file: String,
    /// How many of a thousand requests without a `traceparent` are traced. A request with a
    /// `traceparent` is traced if its caller is.
    #[schemars(range(min = 0, max = 1_000))]
    pub sample_per_mille: u64,
    /// The name under which the gateway appears in a trace.
    pub service_name: String,
    /// How long the collector may take to answer.
    #[schemars(range(min = 100, max = 60_000))]
    pub timeout_ms: Millis,
    /// Send the names of locks to the collector, with the spans.
    pub lock_names: bool,
}

// === impl TraceConfig ===

impl TraceConfig {
    /// Whether spans are sent to a collector, because its address is set.
    pub fn is_sent(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// The exact URL to which spans are sent.
    pub fn url(&self) -> Result<Url, Invalid> {
        let invalid = || {
            let allowed = "http://HOST[:PORT][/PATH] or https://.. without a user, a query or a \
                           fragment; secrets go into trace.headers_file";
            // The error does not repeat the address of the collector, which may hold a password in any place.
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

    /// The file with the authorities of the collector's certificate, if one is set.
    pub fn tls_files(&self) -> ClientFiles {
        let path = &self.ca_file;
        ClientFiles {
            ca: (!path.is_empty()).then(|| PemFile::new("trace.ca_file", path)),
            identity: None,
        }
    }

    /// Checks that traces can be sent with these values. Reads no file.
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
            // Empty: a gateway sends data to no other program unless the operator names that program.
            endpoint: String::new(),
            headers_file: String::new(),
            ca_file: String::new(),
            // All requests: an operator who sets up a collector wants to see traces, and can lower the number under
            // load.
            sample_per_mille: 1_000,
            service_name: "latchgate".to_owned(),
            // A collector nearby answers in milliseconds. If it does not answer at shutdown, half of the grace period
            // is left.
            timeout_ms: Millis(5_000),
            // Off: the name of a lock may show the readers of the traces what a caller does.
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
        // An authority file without an `https://` collector is refused: otherwise an operator would believe that spans
        // are sent encrypted.
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
