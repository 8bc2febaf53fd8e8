//! How HTTP is served.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tls::{IdentityFiles, PemFile};

use super::{HostPort, Invalid, Millis, Origin};

/// How HTTP is served.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// A path prefix under which the whole service appears, such as `/latchgate`. Empty
    /// for none.
    pub base_path: String,
    /// The largest request body in bytes. A longer one is answered with 413.
    // The least is what the longest valid request needs.
    #[schemars(range(min = 8_192, max = 1_048_576))]
    pub max_body_bytes: usize,
    /// The longest request target (path and query) in bytes. A longer one is answered with 414.
    // hyper refuses what is near 64 KiB by itself.
    #[schemars(range(min = 1_024, max = 32_768))]
    pub max_uri_bytes: usize,
    /// The most bytes in all headers of a request. More are answered with 431, and so are more than 100
    /// headers over HTTP/1.1, without a problem document.
    #[schemars(range(min = 8_192, max = 1_048_576))]
    pub max_header_bytes: usize,
    /// How long a client may take to send the headers of a request. Then the connection is closed.
    #[schemars(range(min = 100, max = 300_000))]
    pub header_timeout_ms: Millis,
    /// How long a connection may stand idle between two requests, or a client take nothing of an
    /// answer. Then the connection is closed.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub idle_timeout_ms: Millis,
    /// How long a client may take to send the body of a request. Slower is answered with 408.
    #[schemars(range(min = 100, max = 300_000))]
    pub body_timeout_ms: Millis,
    /// The origins of web pages on other hosts that may use the gateway, such as
    /// `https://ci.example.com`. Neither `*` nor `null` can be listed. A page of the gateway itself
    /// need not be.
    #[schemars(with = "Vec<String>")]
    pub allowed_origins: Vec<Origin>,
    /// The hosts for which the gateway answers besides loopback and the address it listens on, with
    /// or without a port: `locks.example.com`. Others are answered with 421, so that no web page
    /// reaches the gateway by a name of its own. With API keys every host is answered for if none is
    /// listed here.
    #[schemars(with = "Vec<String>")]
    pub allowed_hosts: Vec<HostPort>,
    /// How many connections may be open. A request on one more is answered with 503 `overloaded`. As
    /// many as the operating system allows, if that is fewer. An eighth of them is kept for requests
    /// that are answered at once: one more that waits for a lock, or wants a stream, is answered with
    /// 503.
    #[schemars(range(min = 16, max = 1_000_000))]
    pub max_connections: usize,
    /// How many requests one HTTP/2 connection may have open: waits and streams among them. All
    /// connections together may have as many as `max_connections`; one more is answered
    /// with 503 `overloaded`, unless it renews, adopts or releases a lease.
    #[schemars(range(min = 16, max = 100_000))]
    pub max_streams: usize,
    /// How many requests may be worked on at once. One more is answered with 503 before its body is
    /// read. Neither those who wait for a lock count nor streams that hold one, nor requests that have
    /// not come whole.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_concurrent_requests: usize,
    /// How many more may be worked on that renew or adopt a lease, and as many again that release one:
    /// nobody loses a lock because others ask for too much.
    #[schemars(range(min = 1, max = 100_000))]
    pub reserved_requests: usize,
    /// HTTPS. With a certificate the gateway takes nothing else on its address.
    pub tls: HttpTlsConfig,
}

// === impl HttpConfig ===

impl HttpConfig {
    /// The longest path prefix, so that a name under it still fits into a request target.
    const MAX_BASE_PATH: usize = 200;

    /// Finds out whether HTTP can be served with these values.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if !Self::is_base_path(&self.base_path) {
            let value = format!("{:?}", self.base_path);
            return Err(Invalid::new(
                "http.base_path",
                value,
                "nothing, or a path such as /latchgate of at most 200 characters: it begins with \
                 a slash, does not end with one, and has ASCII letters, digits and . _ ~ - between",
            ));
        }
        self.tls.validate()
    }

    fn is_base_path(text: &str) -> bool {
        let segment = |segment: &str| {
            let allowed = |byte: u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'-')
            };
            !matches!(segment, "" | "." | "..") && segment.bytes().all(allowed)
        };
        text.len() <= Self::MAX_BASE_PATH
            && (text.is_empty()
                || text
                    .strip_prefix('/')
                    .is_some_and(|path| path.split('/').all(segment)))
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            base_path: String::new(),
            // The largest valid body is about 8 KiB: 2 KiB of metadata and an owner, escaped.
            max_body_bytes: 16 * 1024,
            // The longest valid target is a name of 200 bytes, every one percent-encoded.
            max_uri_bytes: 4 * 1024,
            // What common proxies and browsers stay below.
            max_header_bytes: 16 * 1024,
            // A client that needs longer for a few hundred bytes is gone, or is holding
            // connections open on purpose.
            header_timeout_ms: Millis(10_000),
            // Longer than the minute for which common load balancers keep a connection: if the gateway
            // closed first, they would send a request into a connection that is gone.
            idle_timeout_ms: Millis(75_000),
            body_timeout_ms: Millis(10_000),
            // Which pages may take locks is for the operator to say.
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            // Half as many again as the waiters that one gateway is built for.
            max_connections: 16_000,
            // A client has one connection for everything. What it asks beyond this waits at the
            // client, and a renewal must not wait there behind those who wait for a lock.
            max_streams: 1_000,
            // A tenth of a second's worth of what a small machine can do: more only wait for
            // longer.
            max_concurrent_requests: 2_048,
            // 5,000 holders that renew at the shortest sensible pace, at a store that takes 50 ms.
            reserved_requests: 256,
            tls: HttpTlsConfig::default(),
        }
    }
}

// === Http tls ===
//
// TLS for those who call the gateway.

/// HTTPS. With a certificate the gateway takes nothing else on its address.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTlsConfig {
    /// The PEM file with the certificate of the gateway, and behind it those that lead to its
    /// authority. Empty for plain HTTP. Read again on a HUP signal and when it has changed, without
    /// a connection lost; one that cannot be used leaves the one before in place.
    pub cert_file: String,
    /// The PEM file with its private key.
    pub key_file: String,
    /// The PEM file with the authorities whose certificates callers show. Empty: none is asked for.
    /// A certificate lets nobody in without an API key where there are keys.
    pub client_ca_file: String,
    /// Whether a caller must show a certificate, if `client_ca_file` says whose.
    pub client_auth: ClientAuth,
    /// How long the TLS handshake of a connection may take. Then it is closed.
    #[schemars(range(min = 100, max = 300_000))]
    pub handshake_timeout_ms: Millis,
}

/// Whether a caller must show a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuth {
    /// Nobody comes in without one.
    #[default]
    Require,
    /// One that is shown must be valid.
    Optional,
}

// === impl HttpTlsConfig ===

impl HttpTlsConfig {
    /// Finds out whether TLS can be spoken with these values. Reads no file.
    fn validate(&self) -> Result<(), Invalid> {
        let certificate = ("http.tls.cert_file", self.cert_file.as_str());
        let key = ("http.tls.key_file", self.key_file.as_str());
        let authorities = ("http.tls.client_ca_file", self.client_ca_file.as_str());
        Invalid::unless_with(certificate, key)?;
        Invalid::unless_with(key, certificate)?;
        Invalid::unless_with(authorities, certificate)
    }

    /// Whether the gateway speaks TLS.
    pub fn is_on(&self) -> bool {
        !self.cert_file.is_empty()
    }

    /// The certificate of the gateway and its key.
    pub fn identity(&self) -> IdentityFiles {
        IdentityFiles {
            certificate: PemFile::new("http.tls.cert_file", &self.cert_file),
            key: PemFile::new("http.tls.key_file", &self.key_file),
        }
    }

    /// Whose certificates callers may show.
    pub fn client_ca(&self) -> Option<PemFile> {
        let path = &self.client_ca_file;
        (!path.is_empty()).then(|| PemFile::new("http.tls.client_ca_file", path))
    }
}

impl Default for HttpTlsConfig {
    fn default() -> Self {
        Self {
            cert_file: String::new(),
            key_file: String::new(),
            client_ca_file: String::new(),
            // Who names an authority wants its certificates to be shown.
            client_auth: ClientAuth::Require,
            // As long as the headers of a request may take: two round trips of a bad line.
            handshake_timeout_ms: Millis(10_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_empty_or_a_clean_path() {
        for good in ["", "/latchgate", "/a/b.c_d~e-f"] {
            assert!(HttpConfig::is_base_path(good), "{good}");
        }
        let long = format!("/{}", "a".repeat(200));
        for bad in [
            "/", "a", "/a/", "//a", "/a//b", "/a b", "/{x}", "/..", "/a?b", "/é", &long,
        ] {
            assert!(!HttpConfig::is_base_path(bad), "{bad}");
        }
    }

    #[test]
    fn a_certificate_needs_its_key_and_callers_certificates_need_both() {
        let config = |cert: &str, key: &str, client_ca: &str| HttpTlsConfig {
            cert_file: cert.to_owned(),
            key_file: key.to_owned(),
            client_ca_file: client_ca.to_owned(),
            ..HttpTlsConfig::default()
        };
        config("", "", "").validate().unwrap();
        config("c", "k", "").validate().unwrap();
        config("c", "k", "a").validate().unwrap();
        for (config, key) in [
            (config("c", "", ""), "http.tls.cert_file"),
            (config("", "k", ""), "http.tls.key_file"),
            (config("", "", "a"), "http.tls.client_ca_file"),
        ] {
            let invalid = config.validate().unwrap_err();
            assert_eq!(invalid.key, key, "{invalid}");
            assert!(invalid.allowed.starts_with("nothing without "), "{invalid}");
        }
    }
}
