//! Where a program on this machine reaches a gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address to connect to for one that a gateway listens on: loopback for one that stands for all.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
