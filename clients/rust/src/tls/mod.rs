//! Certificates and keys from files, for whoever speaks TLS: the gateway, its store, the client.
//!
//! A file belongs to the setting that names it, so that an error says what to change. No error and
//! no `Debug` shows what is in a file.

mod client_files;
mod distrust;
mod error;
mod identity;
mod pem_file;
mod provider;
mod validity;

pub use client_files::ClientFiles;
pub use client_files::no_tls;
pub use distrust::{distrust, refused_by_server};
pub use error::TlsError;
pub use identity::{Identity, IdentityFiles};
pub use pem_file::{PemError, PemFile};
pub use provider::provider;
pub use validity::Validity;
