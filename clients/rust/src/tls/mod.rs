//! Certificates and keys from files, for whoever speaks TLS: the gateway, its store, the client.
//!
//! A file belongs to the setting that names it, so that an error says what to change. No error and
//! no `Debug` shows what is in a file.

mod client_files;
mod distrust;
mod pem_file;

pub use client_files::{ClientFiles, Identity, IdentityFiles, TlsError, no_tls, provider};
pub use distrust::{Validity, distrust, refused_by_server};
pub use pem_file::{PemError, PemFile};
