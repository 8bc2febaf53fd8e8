//! API keys and sessions.

mod cookies;
mod limits;
mod permissions;
mod revoked;
mod sessions;
