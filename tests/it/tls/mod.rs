//! TLS against the running program, with certificates made by the tests.

mod certified;
mod h2_client;
mod line;
mod tls_client;

mod callers;
mod clients;
mod expiry;
mod handshakes;
mod http2;
mod misuse;
mod own_certificate;
mod passed_by;
mod redis;
mod refusals;
mod reload;
mod rotation;
mod shared;
