//! Sockets: taking connections, and bounding what each may cost.

mod accept;
mod connection;
mod paced;
mod silence_limit;
mod socket;
mod unfinished;

pub use accept::serve;
pub(super) use silence_limit::SilenceLimit;
