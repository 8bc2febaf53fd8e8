//! A host, as a request or the configuration names it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// A host: equal to another one however the two are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A name in lower case, without a dot at its end.
    Name(Box<str>),
    /// An address; an IPv4 address that is written as IPv6 is an IPv4 address.
    Address(IpAddr),
}

/// A host and perhaps a port, as in the header `Host`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    /// The host.
    pub host: Host,
    /// The port, if one is named.
    pub port: Option<u16>,
}

/// Why a text names no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name or an IP address (IPv6 in brackets), and perhaps a port: locks.example.com, \
     127.0.0.1:7420, [::1]"
)]
pub struct HostError;

// === impl Host ===

impl Host {
    /// The longest name in the domain name system.
    const MAX_NAME: usize = 253;

    /// Whether this is the machine itself, whoever looks the name up.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => &**name == "localhost",
            Self::Address(address) => address.is_loopback(),
        }
    }

    /// Reads a host that is no IPv6 address.
    fn plain(text: &str) -> Result<Self, HostError> {
        // The root of all names may be named or not.
        let text = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let label = |label: &str| !label.is_empty() && label.bytes().all(allowed);
        if text.len() <= Self::MAX_NAME && text.split('.').all(label) {
            Ok(Self::Name(text.to_ascii_lowercase().into()))
        } else {
            Err(HostError)
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

// === impl HostPort ===

impl FromStr for HostPort {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
            let (address, rest) = bracketed.split_once(']').ok_or(HostError)?;
            let address = address.parse::<Ipv6Addr>().map_err(|_| HostError)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(HostError)?),
            };
            (Host::Address(IpAddr::V6(address).to_canonical()), port)
        } else {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            (Host::plain(host)?, port)
        };
        let port = match port {
            // The grammar of a URL allows a colon without a port.
            None | Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().map_err(|_| HostError)?)
            }
            Some(_) => return Err(HostError),
        };
        Ok(Self { host, port })
    }
}

impl TryFrom<String> for HostPort {
    type Error = HostError;

    fn try_from(text: String) -> Result<Self, HostError> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(host: HostPort) -> Self {
        host.to_string()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.host.fmt(f),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        text.parse::<HostPort>().ok().map(|host| host.to_string())
    }

    #[test]
    fn is_the_same_however_it_is_written() {
        for (written, read_as) in [
            ("LocalHost", "localhost"),
            ("localhost.", "localhost"),
            ("localhost:7420", "localhost:7420"),
            ("localhost:", "localhost"),
            ("127.0.0.1.:1", "127.0.0.1:1"),
            ("[::1]:7420", "[::1]:7420"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1"),
            ("a_b.example-1.com", "a_b.example-1.com"),
        ] {
            assert_eq!(read(written).as_deref(), Some(read_as), "{written}");
        }
    }

    #[test]
    fn is_not_read_into_a_text_that_means_something_else() {
        let long = "a".repeat(254);
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            ":1",
            "a:b",
            "a:1:2",
            "a:+1",
            "a:65536",
            "::1",
            "[::1",
            "[::1]1",
            "[::1%lo]",
            "[127.0.0.1]",
            "user@localhost",
            "localhost/",
            "localhost#",
            "localhost%2e",
            "local host",
            "*",
            "*.example.com",
            "http://localhost",
            "é",
            &long,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn is_loopback_only_if_nobody_else_can_have_the_name() {
        let is_loopback = |text: &str| text.parse::<HostPort>().unwrap().host.is_loopback();
        for text in ["localhost", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback(text), "{text}");
        }
        for text in [
            "localhost.example.com",
            "a.localhost",
            "127.1",
            "0.0.0.0",
            "[::]",
            "10.0.0.1",
        ] {
            assert!(!is_loopback(text), "{text}");
        }
    }
}
