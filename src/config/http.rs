//! Settings of the HTTP server (`[http]`) and of its TLS (`[http.tls]`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tls::{IdentityFiles, PemFile};

use super::{HostPort, Invalid, Millis, Origin};

/// How HTTP is served.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// The path prefix of all routes, such as `/latchgate`. Empty for none.
    pub base_path: String,
    /// The largest request body in bytes. A request with a longer body is answered with 413.
    // With less than the lower bound, the longest valid request would be refused.
    #[schemars(range(min = 8_192, max = 1_048_576))]
    pub max_body_bytes: usize,
    /// The longest request target (path and query) in bytes. A request with a longer target is answered
    /// with 414.
    // hyper itself refuses targets near 64 KiB, so the upper bound is well below.
    #[schemars(range(min = 1_024, max = 32_768))]
    pub max_uri_bytes: usize,
    /// The most bytes in all headers of a request. A request with more is answered with 431. So is a
    /// request with more than 100 headers over HTTP/1.1, without a problem document.
    #[schemars(range(min = 8_192, max = 1_048_576))]
    pub max_header_bytes: usize,
    /// How long a client may take to send the headers of a request. Then the gateway closes the
    /// connection.
    #[schemars(range(min = 100, max = 300_000))]
    pub header_timeout_ms: Millis,
    /// How long a connection may be idle between two requests, or a client may read nothing of an
    /// answer. Then the gateway closes the connection.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub idle_timeout_ms: Millis,
    /// How long a client may take to send the body of a request. A slower request is answered with 408.
    #[schemars(range(min = 100, max = 300_000))]
    pub body_timeout_ms: Millis,
    /// The origins of web pages on other hosts that may use the gateway, such as
    /// `https://ci.example.com`. Neither `*` nor `null` can be listed. Pages of the gateway itself need
    /// no entry.
    #[schemars(with = "Vec<String>")]
    pub allowed_origins: Vec<Origin>,
    /// The hosts for which the gateway answers besides loopback and the address it listens on, with
    /// or without a port: `locks.example.com`. A request for another host is answered with 421, so that
    /// no web page reaches the gateway by a host name of the page's owner. With API keys and an empty
    /// list, the gateway answers for every host.
    #[schemars(with = "Vec<String>")]
    pub allowed_hosts: Vec<HostPort>,
    /// How many connections may be open, at most as many as the operating system allows. A request on a
    /// further connection is answered with 503 `overloaded`. An eighth of the connections is kept for
    /// requests that are answered at once: if waits and streams take all others, a further request that
    /// waits for a lock, or wants a stream, is answered with 503.
    #[schemars(range(min = 16, max = 1_000_000))]
    pub max_connections: usize,
    /// How many requests one HTTP/2 connection may have open, waits and streams included. All
    /// connections together may have as many requests open as `max_connections`; a further request is
    /// answered with 503 `overloaded`, unless it renews, adopts or releases a lease.
    #[schemars(range(min = 16, max = 100_000))]
    pub max_streams: usize,
    /// How many requests may be worked on at once. A further request is answered with 503 before its
    /// body is read. Requests that wait for a lock, streams that hold a lock, and requests that have not
    /// arrived whole do not count.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_concurrent_requests: usize,
    /// How many further requests may be worked on that renew or adopt a lease, and as many again that
    /// release a lease, so that no holder loses a lock because other callers send too many requests.
    #[schemars(range(min = 1, max = 100_000))]
    pub reserved_requests: usize,
    /// HTTPS, which replaces plain HTTP on the gateway's address if a certificate is set.
    pub tls: HttpTlsConfig,
}

// === impl HttpConfig ===

impl HttpConfig {
    /// The maximum length of `http.base_path` in bytes. After a longer prefix, a lock name might not fit into a request
    /// target.
    const MAX_BASE_PATH: usize = 200;

    /// Checks the path prefix and the TLS settings of the HTTP server. Reads no file.
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
            // The longest valid target is a name of 200 bytes, every byte percent-encoded.
            max_uri_bytes: 4 * 1024,
            // Larger than the headers that common proxies and browsers send.
            max_header_bytes: 16 * 1024,
            // A client that needs longer to send a few hundred bytes has gone away, or holds connections open on
            // purpose.
            header_timeout_ms: Millis(10_000),
            // Longer than the minute for which common load balancers keep an idle connection: if the gateway closed
            // first, a load balancer would send a request into a closed connection.
            idle_timeout_ms: Millis(75_000),
            body_timeout_ms: Millis(10_000),
            // Empty, because the operator must decide which web pages may take locks.
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            // One and a half times the number of waiters for which one gateway is built.
            max_connections: 16_000,
            // A client sends all of its requests on one connection. Requests beyond this number queue in the client,
            // where a renewal would come too late, because it stands behind acquires that wait.
            max_streams: 1_000,
            // As many requests as a small machine answers in a tenth of a second: further requests would only wait
            // longer.
            max_concurrent_requests: 2_048,
            // Enough for 5,000 holders that renew at the shortest sensible interval, if the store takes 50 ms for a
            // renewal.
            reserved_requests: 256,
            tls: HttpTlsConfig::default(),
        }
    }
}

// === Http tls ===
//
// TLS between callers and the gateway.

/// HTTPS, which replaces plain HTTP on the gateway's address if a certificate is set.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTlsConfig {
    /// The PEM file with the certificate of the gateway, followed by the certificates that lead to its
    /// authority. Empty for plain HTTP. The gateway reads the file again on a HUP signal and when the
    /// file has changed, and keeps all connections. If the new certificate cannot be used, the old one
    /// stays in use.
    pub cert_file: String,
    /// The PEM file with the private key of the certificate.
    pub key_file: String,
    /// The PEM file with the authorities of the certificates that callers show. Empty: callers need no
    /// certificate. If there are API keys, a caller with a certificate needs an API key as well.
    pub client_ca_file: String,
    /// Whether a caller must show a certificate, if `client_ca_file` is set.
    pub client_auth: ClientAuth,
    /// How long the TLS handshake of a connection may take. Then the gateway closes the connection.
    #[schemars(range(min = 100, max = 300_000))]
    pub handshake_timeout_ms: Millis,
}

/// Whether a caller must show a client certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAuth {
    /// Every caller must show a valid certificate.
    #[default]
    Require,
    /// A caller need not show a certificate; a certificate that is shown must be valid.
    Optional,
}

// === impl HttpTlsConfig ===

impl HttpTlsConfig {
    /// Checks that the certificate and its key are set together, and that client authorities are set only with both.
    /// Reads no file.
    fn validate(&self) -> Result<(), Invalid> {
        let certificate = ("http.tls.cert_file", self.cert_file.as_str());
        let key = ("http.tls.key_file", self.key_file.as_str());
        let authorities = ("http.tls.client_ca_file", self.client_ca_file.as_str());
        Invalid::unless_with(certificate, key)?;
        Invalid::unless_with(key, certificate)?;
        Invalid::unless_with(authorities, certificate)
    }

    /// Whether the gateway serves HTTPS, because its certificate is set.
    pub fn is_on(&self) -> bool {
        !self.cert_file.is_empty()
    }

    /// The files with the certificate of the gateway and with its key.
    pub fn identity(&self) -> IdentityFiles {
        IdentityFiles {
            certificate: PemFile::new("http.tls.cert_file", &self.cert_file),
            key: PemFile::new("http.tls.key_file", &self.key_file),
        }
    }

    /// The file with the authorities of client certificates, if one is set.
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
            // Required, because an operator who names authorities most likely wants every caller to show a certificate.
            client_auth: ClientAuth::Require,
            // The same time as for the headers of a request: a handshake takes two round trips, even on
            // a slow network.
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
