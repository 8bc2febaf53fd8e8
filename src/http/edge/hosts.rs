//! For which hosts the gateway answers.
//!
//! A web page can have any name of its own resolve to a loopback address (DNS rebinding), and is
//! then on the same origin as the gateway. It cannot change what the browser says in `Host`.

use std::{cell::RefCell, net::IpAddr, rc::Rc};

use http::{HeaderMap, HeaderValue, Uri, Version, header::HOST};

use crate::{
    config::{Config, Host, HostError, HostPort},
    http::problem::{Problem, ProblemCode},
};

use super::request_id::copied;

/// The hosts for which the gateway answers.
pub(super) enum Hosts {
    /// Whichever a request names: what it may do is a question of its key.
    Any,
    /// Its own, and those that are listed.
    Own {
        /// The address that it listens on.
        at: IpAddr,
        /// Those that are listed.
        listed: Vec<HostPort>,
    },
}

/// As it is written in answers.
const FIELD: &str = "Host";

// === impl Hosts ===

impl Hosts {
    /// `open` says that there are no API keys.
    pub(super) fn new(config: &Config, open: bool) -> Self {
        let listed = config.http.allowed_hosts.clone();
        if !open && listed.is_empty() {
            return Self::Any;
        }
        Self::Own {
            at: config.listen.ip().to_canonical(),
            listed,
        }
    }

    /// Refuses a request that names no host, or another host than the gateway answers for.
    pub(super) fn check(&self, named: Option<&HostPort>) -> Result<(), Problem> {
        let Some(named) = named else {
            return Err(missing());
        };
        if self.serves(named) {
            return Ok(());
        }
        let detail = format!(
            "This gateway does not answer for the host {named}, which the request names. If the name is \
             yours, list it in http.allowed_hosts."
        );
        Err(Problem::new(ProblemCode::WrongHost, detail))
    }

    fn serves(&self, named: &HostPort) -> bool {
        let (at, listed) = match self {
            Self::Any => return true,
            Self::Own { at, listed } => (at, listed),
        };
        // Ports are not compared: one that is forwarded has another number outside, and a page can
        // choose the port of its requests, but only the name is what it could rebind.
        let is_own = match &named.host {
            host if host.is_loopback() => true,
            // Every address of this machine, and whatever is forwarded to it: an address cannot be
            // rebound.
            Host::Address(_) if at.is_unspecified() => true,
            Host::Address(address) => address == at,
            Host::Name(_) => false,
        };
        is_own
            || listed.iter().any(|listed| {
                listed.host == named.host && (listed.port.is_none() || listed.port == named.port)
            })
    }
}

/// The host that a request names. `None`: the request is HTTP/1.0 and names none, which a probe may do.
///
/// Two of them, or one in the target and another in the header, are refused: a proxy in front may
/// have believed the other one.
pub(super) fn named(
    headers: &HeaderMap,
    uri: &Uri,
    version: Version,
) -> Result<Option<Rc<HostPort>>, Problem> {
    let refuse = |reason| Problem::invalid_field(FIELD, reason);
    let mut headers = headers.get_all(HOST).iter();
    let header = match (headers.next(), headers.next()) {
        (None, _) => None,
        (Some(header), None) => {
            let host = host_in(header);
            Some(host.map_err(|error| refuse(format!("is no host; it takes {error}")))?)
        }
        (Some(_), Some(_)) => return Err(refuse("is given more than once".to_owned())),
    };
    let target = match uri.authority() {
        None => None,
        Some(authority) => {
            let host = authority.as_str().parse::<HostPort>();
            let host = host.map_err(|_| refuse("in the target is no host".to_owned()))?;
            Some(Rc::new(host))
        }
    };
    match (target, header) {
        (Some(target), Some(header)) if target != header => {
            Err(refuse("is another one than in the target".to_owned()))
        }
        (None, None) if version > Version::HTTP_10 => Err(missing()),
        (target, header) => Ok(header.or(target)),
    }
}

fn missing() -> Problem {
    Problem::invalid_field(FIELD, "is missing")
}

thread_local! {
    /// The last host that a request of this thread named, and how: nearly all name the same one.
    static LAST: RefCell<Option<(HeaderValue, Rc<HostPort>)>> = const { RefCell::new(None) };
}

/// The host that a header names.
fn host_in(header: &HeaderValue) -> Result<Rc<HostPort>, HostError> {
    LAST.with_borrow_mut(|last| {
        if let Some((written, host)) = last
            && written == header
        {
            return Ok(Rc::clone(host));
        }
        let host = header.to_str().unwrap_or_default().parse::<HostPort>();
        let host = Rc::new(host?);
        *last = Some((copied(header), Rc::clone(&host)));
        Ok(host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(at: &str, listed: &[&str]) -> Hosts {
        let mut config = Config {
            listen: format!("{at}:7420").parse().unwrap(),
            ..Config::default()
        };
        config.http.allowed_hosts = listed.iter().map(|host| host.parse().unwrap()).collect();
        Hosts::new(&config, true)
    }

    #[test]
    fn each_request_names_its_own_host_whatever_the_last_one_named() {
        for host in ["a.example", "b.example:1", "b.example:1", "a.example"] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            let named = named(&headers, &Uri::from_static("/"), Version::HTTP_11).unwrap();
            assert_eq!(named.as_deref(), Some(&host.parse().unwrap()));
        }
    }

    fn served<'a>(hosts: &Hosts, named: &[&'a str]) -> Vec<&'a str> {
        let is_served = |host: &&str| hosts.serves(&host.parse().unwrap());
        named.iter().copied().filter(is_served).collect()
    }

    const NAMED: &[&str] = &[
        "localhost",
        "LOCALHOST.:9",
        "127.0.0.1:7420",
        "[::1]:7420",
        "192.0.2.1:7420",
        "192.0.2.2",
        "0.0.0.0:7420",
        "evil.example",
        "localhost.evil.example",
        "locks.example.com",
        "locks.example.com:8080",
    ];

    #[test]
    fn on_loopback_it_answers_for_loopback_alone() {
        assert_eq!(served(&serving("127.0.0.1", &[]), NAMED), &NAMED[..4]);
        assert_eq!(served(&serving("[::1]", &[]), NAMED), &NAMED[..4]);
    }

    #[test]
    fn it_answers_for_the_address_it_listens_on() {
        assert_eq!(served(&serving("192.0.2.1", &[]), NAMED), &NAMED[..5]);
        assert_eq!(served(&serving("0.0.0.0", &[]), NAMED), &NAMED[..7]);
        assert_eq!(served(&serving("[::]", &[]), NAMED), &NAMED[..7]);
    }

    #[test]
    fn it_answers_for_what_is_listed_with_any_port_if_none_is() {
        let named = [
            "locks.example.com",
            "locks.example.com:8080",
            "a.locks.example.com",
        ];
        let any_port = serving("127.0.0.1", &["Locks.Example.com"]);
        assert_eq!(served(&any_port, &named), &named[..2]);
        let one_port = serving("127.0.0.1", &["locks.example.com:8080"]);
        assert_eq!(served(&one_port, &named), &named[1..2]);
    }

    #[test]
    fn with_keys_it_answers_for_every_host_unless_some_are_listed() {
        let mut config = Config::default();
        assert!(Hosts::new(&config, false).serves(&"evil.example".parse().unwrap()));
        config.http.allowed_hosts = vec!["a".parse().unwrap()];
        assert!(!Hosts::new(&config, false).serves(&"evil.example".parse().unwrap()));
    }
}
