//! What callers see over HTTP.

mod golden;
mod scripted;
mod service;

mod acquire;
mod hold;
mod listener;
mod waiting;
