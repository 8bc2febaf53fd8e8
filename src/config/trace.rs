//! Where traces are sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::tls::{ClientFiles, PemFile};

use super::{Invalid, Millis};

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
    use super::*;

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
