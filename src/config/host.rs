//! Hosts, as a request or the configuration names them, and origins: scheme, host and port of a web page, as a browser
//! sends them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// A host name or IP address. Different spellings of the same host are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A host name in lower case, without a dot at its end.
    Name(Box<str>),
    /// An IP address. An IPv4 address that is written as IPv6 is kept as IPv4.
    Address(IpAddr),
}

/// A host with an optional port, as in the header `Host`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    /// The host name or IP address.
    pub host: Host,
    /// The port, if the text has one.
    pub port: Option<u16>,
}

/// The text is not a host name or an IP address with an optional port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name or an IP address (IPv6 in brackets), and perhaps a port: locks.example.com, \
     127.0.0.1:7420, [::1]"
)]
pub struct HostError;

// === impl Host ===

impl Host {
    /// The length of the longest host name that the domain name system allows, in characters.
    const MAX_NAME: usize = 253;

    /// Whether the host is certainly this machine: `localhost` or a loopback address. Any other name might be resolved
    /// to the address of another machine.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => &**name == "localhost",
            Self::Address(address) => address.is_loopback(),
        }
    }

    /// Parses a host without a port: a host name or an IPv4 address.
    fn plain(text: &str) -> Result<Self, HostError> {
        // The dot at the end stands for the root of the domain name system, so the same host may be written without it.
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

// === Origin ===

/// The origin of a web page: scheme, host and port, as a browser sends them in the header `Origin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Origin {
    scheme: Scheme,
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// Why a text is not an origin that `http.allowed_origins` can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The text is `null`, which browsers send for pages without an origin.
    #[error(
        "origins by their names: a browser sends `null` for every page without an origin, such as \
         a frame that anybody can put into any page"
    )]
    Null,
    /// The text is `*`, which would allow the pages of every origin.
    #[error("origins by their names: `*` would let every web page take locks")]
    Any,
    /// The text does not have the form of an origin.
    #[error(
        "origins such as https://ci.example.com or http://localhost:3000: http or https, a host \
         without a dot at its end and perhaps a port, with nothing after them, not even a slash"
    )]
    Other,
}

// === impl Origin ===

impl Origin {
    /// Whether this is the origin of a page that comes from `host` itself.
    ///
    /// `over_tls` says whether the request reached the gateway over TLS. If it did not, the schemes are not compared,
    /// because a proxy may have ended TLS. A host without a port has the default port of the origin's scheme.
    pub fn is_of(&self, host: &HostPort, over_tls: bool) -> bool {
        self.host == host.host
            && self.port == host.port.unwrap_or(self.scheme.port())
            && (self.scheme == Scheme::Https || !over_tls)
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        match text {
            "null" => return Err(OriginError::Null),
            "*" => return Err(OriginError::Any),
            _ => {}
        }
        let (scheme, rest) = text.split_once("://").ok_or(OriginError::Other)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(OriginError::Other),
        };
        let HostPort { host, port } = rest.parse().map_err(|_| OriginError::Other)?;
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(scheme.port()),
        })
    }
}

impl TryFrom<String> for Origin {
    type Error = OriginError;

    /// Parses an origin of `http.allowed_origins`. A form that browsers never send is refused, because the entry would
    /// match no page.
    fn try_from(text: String) -> Result<Self, OriginError> {
        let origin = text.parse()?;
        let (_, host) = text.split_once("://").ok_or(OriginError::Other)?;
        let name = host.split(':').next().unwrap_or_default();
        if name.ends_with('.') || host.ends_with(':') {
            return Err(OriginError::Other);
        }
        Ok(origin)
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.to_string()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port == self.scheme.port() {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

// === impl Scheme ===

impl Scheme {
    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
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

#[cfg(test)]
mod origin_tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().unwrap()
    }

    #[test]
    fn is_the_same_however_it_is_written() {
        for (written, read_as) in [
            ("https://CI.example.com", "https://ci.example.com"),
            ("HTTPS://ci.example.com:443", "https://ci.example.com"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(origin(written).to_string(), read_as);
        }
        assert_ne!(origin("http://a"), origin("https://a"));
        assert_ne!(origin("http://a"), origin("http://a:8080"));
    }

    #[test]
    fn every_refusal_has_its_reason() {
        let refused = |text: &str| text.parse::<Origin>().unwrap_err();
        assert_eq!(refused("null"), OriginError::Null);
        assert_eq!(refused("*"), OriginError::Any);
        for text in [
            "",
            "example.com",
            "https://",
            "https://a/",
            "https://a/b",
            "https://a?b",
            "https://a#",
            "https://u@a",
            "http://localhost:7420@evil.example",
            "https://*.a",
            "https:a",
            "file://a",
            "https://a b",
            "https://a, https://b",
            "Null",
        ] {
            assert_eq!(refused(text), OriginError::Other, "{text}");
        }
    }

    #[test]
    fn what_no_browser_says_cannot_be_listed() {
        let listed = |text: &str| Origin::try_from(text.to_owned());
        for text in [
            "https://ci.example.com.",
            "https://ci.example.com.:8443",
            "https://ci.example.com:",
            "https://[::1]:",
            "https://ci.example.com/",
        ] {
            assert_eq!(listed(text), Err(OriginError::Other), "{text}");
        }
        for text in ["https://ci.example.com:8443", "http://[::1]:80", "http://a"] {
            assert_eq!(listed(text), Ok(origin(text)));
        }
        // A page that was opened under a name with a dot at its end is still a page of the gateway.
        assert!(origin("http://localhost.:7420").is_of(&"localhost:7420".parse().unwrap(), false));
    }

    #[test]
    fn belongs_to_a_host_whatever_ends_the_tls() {
        let is_of = |text: &str, host: &str| origin(text).is_of(&host.parse().unwrap(), false);
        let over_tls = |text: &str, host: &str| origin(text).is_of(&host.parse().unwrap(), true);
        assert!(over_tls("https://a", "a") && over_tls("https://a:7420", "a:7420"));
        // A page that was loaded without TLS does not count as a page of the gateway: an attacker on the network may
        // have changed it.
        assert!(!over_tls("http://a", "a") && !over_tls("http://a:7420", "a:7420"));
        for (text, host) in [
            ("http://localhost:7420", "localhost:7420"),
            ("http://LOCALHOST:7420", "localhost.:7420"),
            ("https://locks.example.com", "locks.example.com"),
            ("https://locks.example.com", "locks.example.com:443"),
            ("http://locks.example.com", "locks.example.com:80"),
            ("http://[::1]:7420", "[::1]:7420"),
        ] {
            assert!(is_of(text, host), "{text} {host}");
        }
        for (text, host) in [
            ("http://localhost:3000", "localhost:7420"),
            ("http://localhost", "localhost:7420"),
            ("http://localhost:7420", "127.0.0.1:7420"),
            ("https://locks.example.com", "locks.example.com:80"),
            (
                "https://locks.example.com.evil.example",
                "locks.example.com",
            ),
        ] {
            assert!(!is_of(text, host), "{text} {host}");
        }
    }
}
