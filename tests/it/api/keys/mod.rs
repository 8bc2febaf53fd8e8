//! API keys and sessions.

mod cookies;
mod exchange;
mod limits;
mod permissions;
mod revoked;
mod sessions;
