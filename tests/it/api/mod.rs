//! What callers see over HTTP.

mod key;
pub(crate) mod lines;
mod listener;
mod scripted;
mod service;
mod socket;

mod acquire;
mod bodies;
mod connections;
mod contended;
mod delivery;
mod document;
mod edge;
mod errors;
mod framing;
mod golden;
mod headers;
mod health;
mod hold;
mod hold_connection;
mod inspect;
mod key_limits;
mod keys;
mod log;
mod pages;
mod processes;
mod refusals;
mod release;
mod renew;
mod revoked;
mod silent;
mod waiting;
