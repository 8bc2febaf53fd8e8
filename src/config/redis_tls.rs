//! TLS to Redis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tls::{ClientFiles, IdentityFiles, PemFile};

use super::Invalid;

/// TLS to Redis, for a store that is `rediss://`. The files are read again when they have changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisTlsConfig {
    /// The PEM file with the authorities that vouch for Redis. Empty for the authorities of the
    /// system.
    pub ca_file: String,
    /// The PEM file with the certificate that is shown to Redis. Empty for none.
    pub cert_file: String,
    /// The PEM file with its private key.
    pub key_file: String,
}

// === impl RedisTlsConfig ===

impl RedisTlsConfig {
    /// Finds out whether TLS can be spoken with these values. Reads no file.
    pub fn validate(&self) -> Result<(), Invalid> {
        let certificate = ("redis.tls.cert_file", self.cert_file.as_str());
        let key = ("redis.tls.key_file", self.key_file.as_str());
        Invalid::unless_with(certificate, key)?;
        Invalid::unless_with(key, certificate)
    }

    /// The first key that is set, and its value.
    pub(super) fn set(&self) -> Option<(&'static str, &str)> {
        [
            ("redis.tls.ca_file", self.ca_file.as_str()),
            ("redis.tls.cert_file", &self.cert_file),
            ("redis.tls.key_file", &self.key_file),
        ]
        .into_iter()
        .find(|(_, path)| !path.is_empty())
    }

    /// The files.
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
