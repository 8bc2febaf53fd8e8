//! TLS against the running program, with certificates made by the tests.

mod certified;
mod h2_client;
mod tls_client;

mod callers;
mod clients;
mod handshakes;
mod http2;
mod misuse;
mod passed_by;
mod redis;
mod refusals;
mod reload;
mod rotation;
