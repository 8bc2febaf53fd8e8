//! Free ports.

use std::net::{SocketAddr, TcpListener};

/// An address on loopback with a port on which no process listens now.
pub(super) fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}
