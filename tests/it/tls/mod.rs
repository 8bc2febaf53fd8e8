//! TLS with the real program, and certificates that the tests make.

pub(crate) mod fixture;
mod http2;

mod clients;
mod hang_ups;
mod leaving;
mod misuse;
mod reload;
mod rotation;
mod settings;
