//! TLS against the running program, with certificates made by the tests.

pub(crate) mod certified;
pub(crate) mod h2_client;
mod line;
pub(crate) mod tls_client;

mod callers;
mod clients;
mod expiry;
mod handshakes;
mod http2;
mod misuse;
mod one_piece;
mod own_certificate;
mod passed_by;
mod redis;
mod refusals;
mod reload;
mod rotation;
mod shared;
mod unsent;
