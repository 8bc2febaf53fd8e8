//! What callers see over HTTP.

pub(crate) mod fixture;
pub(crate) mod prelude;

mod connections;
mod edge;
mod keys;
mod locks;
mod ops;
mod processes;
