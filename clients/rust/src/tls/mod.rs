//! Certificates and keys from files, for whoever speaks TLS: the gateway, its store, the client.
//!
//! A file belongs to the setting that names it, so that an error says what to change. No error and
//! no `Debug` shows what is in a file.

mod distrust;
mod files;

pub use distrust::{Validity, distrust, refused_by_server};
pub use files::{
    ClientFiles, Identity, IdentityFiles, PemError, PemFile, TlsError, no_tls, provider,
};
