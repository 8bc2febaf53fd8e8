//! Sockets: taking connections, and bounding what each may cost.

mod accept;
mod connection;
mod paced;

pub use accept::serve;
