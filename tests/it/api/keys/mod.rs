//! API keys and sessions.

mod cookies;
mod exchange;
mod exchanged;
mod limits;
mod people;
mod people_sessions;
mod permissions;
mod revoked;
mod sessions;
