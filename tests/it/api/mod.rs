//! What callers see over HTTP.

mod key;
pub(crate) mod lines;
mod listener;
mod scripted;
mod service;
mod socket;

mod acquire;
mod audit;
mod bodies;
mod browsers;
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
mod hosts;
mod inspect;
mod keys;
mod log;
mod overload;
mod pages;
mod processes;
mod refusals;
mod release;
mod renew;
mod siege;
mod silent;
mod waiting;
