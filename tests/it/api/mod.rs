//! What callers see over HTTP.

pub(crate) mod lines;
mod list;
mod listener;
mod scripted;
mod service;
mod socket;

mod acquire;
mod bodies;
mod break_lock;
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
mod log;
mod pages;
mod processes;
mod refusals;
mod release;
mod renew;
mod silent;
mod waiting;
