//! TLS for those who call the gateway.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tls::{IdentityFiles, PemFile};

use super::{Invalid, Millis};

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
    /// How long the TLS handshake of a connection may take, 100 to 300000. Then it is closed.
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
    pub fn validate(&self) -> Result<(), Invalid> {
        for (set, key, other, other_key) in [
            (
                &self.cert_file,
                "http.tls.cert_file",
                &self.key_file,
                "http.tls.key_file",
            ),
            (
                &self.key_file,
                "http.tls.key_file",
                &self.cert_file,
                "http.tls.cert_file",
            ),
            (
                &self.client_ca_file,
                "http.tls.client_ca_file",
                &self.cert_file,
                "http.tls.cert_file",
            ),
        ] {
            Invalid::unless_with((key, set), (other_key, other))?;
        }
        Invalid::unless_in(
            "http.tls.handshake_timeout_ms",
            self.handshake_timeout_ms.0,
            100..=300_000,
        )
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
