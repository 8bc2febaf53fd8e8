//! The address of one Redis process.

use std::{fmt, str::FromStr};

use super::{Host, HostPort, NoHost};

/// Where a server or a sentinel listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RedisNode {
    host: String,
    port: u16,
}

// === impl RedisNode ===

impl RedisNode {
    /// The address as it is connected to: an IPv6 address without its brackets.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// The host name or address, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Reads `HOST[:PORT]`.
    pub(super) fn parse(text: &str, default_port: u16) -> Result<Self, NoHost> {
        let HostPort { host, port } = HostPort::from_str(text)?;
        let host = match host {
            Host::Name(name) => name.into_string(),
            Host::Address(address) => address.to_string(),
        };
        let port = port.unwrap_or(default_port);
        Ok(Self { host, port })
    }
}

impl fmt::Display for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}
