//! Sockets: accepts connections, bounds what each may cost, and speaks HTTP on them.

mod accept;
mod answer;
mod connection;
mod descriptors;
mod detached;
mod late_end;
mod protocol;
mod socket;
mod under_way;

pub use accept::serve;
pub use answer::Service;
pub(super) use connection::{Lasting, SilenceLimit, Stay, peer};
pub use under_way::UnderWay;
