//! The cryptography of every connection.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

/// ring, everywhere: a second provider would double the C code.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
