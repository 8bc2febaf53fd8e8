//! Sockets: taking connections, and bounding what each may cost.

mod accept;
mod arriving;
mod asking;
mod carried;
mod carrier;
mod connection;
mod connections;
mod descriptors;
mod framing;
mod handshake;
mod http1;
mod http2;
mod incoming;
mod lasting;
mod late_end;
mod leaving;
mod outgoing;
mod pace;
mod paced;
mod peer;
mod refusal;
mod silence_limit;
mod socket;
mod stream_body;
mod streams;
mod turned_away;

pub use accept::serve;
pub(super) use lasting::{Lasting, Stay};
pub(super) use peer::Peer;
pub(super) use silence_limit::SilenceLimit;
