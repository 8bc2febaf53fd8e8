//! TLS against the running program, with certificates made by the tests.

pub(crate) mod fixture;
mod http2;

mod clients;
mod leaving;
mod misuse;
mod reload;
mod rotation;
mod settings;
