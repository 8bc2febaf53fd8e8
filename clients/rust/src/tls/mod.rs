//! Certificates and keys in files, for all users of TLS: the gateway, its store connections, the client.
//!
//! Each file is kept with the name of its setting, so that an error says which setting to change. No error and no
//! `Debug` shows the content of a file.

mod distrust;
mod files;

pub use distrust::{Validity, cause, distrust, refused_by_server, speaks_no_tls};
pub use files::{
    ClientFiles, Identity, IdentityFiles, PemError, PemFile, TlsError, no_tls, provider,
};
