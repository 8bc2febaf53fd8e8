//! What callers see over HTTP.

mod golden;
mod scripted;
mod service;

mod acquire;
