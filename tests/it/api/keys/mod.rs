//! API keys and sessions.

mod cookies;
mod exchange;
mod exchanged;
mod limits;
mod permissions;
mod revoked;
mod sessions;
