//! Where a request comes from.

use std::net::{IpAddr, SocketAddr};

/// The other end of the connection: the caller, or the last proxy on its way.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Peer(SocketAddr);

// === impl Peer ===

impl Peer {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self(address)
    }

    pub(in crate::http) fn ip(&self) -> IpAddr {
        self.0.ip().to_canonical()
    }
}
