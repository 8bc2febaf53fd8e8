//! Where gateways are, and which of them is asked next.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use reqwest::Url;

use super::SetupError;

/// The addresses of gateways on one store, any of which answers for all.
#[derive(Debug)]
pub(super) struct Addresses {
    all: Vec<String>,
    current: AtomicUsize,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address<'a> {
    index: usize,
    url: &'a str,
}

// === impl Addresses ===

impl Addresses {
    /// Reads one address, or several separated by commas.
    pub(super) fn parse(text: &str) -> Result<Self, SetupError> {
        let all: Result<Vec<_>, _> = text.split(',').map(|one| parse(one.trim())).collect();
        Ok(Self {
            all: all?,
            current: AtomicUsize::new(0),
        })
    }

    /// How many there are: at least one.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The one to ask.
    pub(super) fn current(&self) -> Address<'_> {
        let index = self.current.load(Ordering::Relaxed);
        Address {
            index,
            url: &self.all[index],
        }
    }

    /// Passes over an address that failed, unless that was done already.
    pub(super) fn move_on_from(&self, failed: Address<'_>) {
        let next = (failed.index + 1) % self.all.len();
        let order = Ordering::Relaxed;
        // Lost the race: somebody else has passed over it.
        let _: Result<_, _> = self
            .current
            .compare_exchange(failed.index, next, order, order);
    }

    /// Whether one of them needs TLS.
    pub(super) fn any_https(&self) -> bool {
        self.all.iter().any(|url| url.starts_with("https:"))
    }

    /// Whether all of them are this machine.
    pub(super) fn all_loopback(&self) -> bool {
        self.all.iter().all(|url| is_loopback(url))
    }
}

// === impl Address ===

impl<'a> Address<'a> {
    /// The address itself, without a slash at its end.
    pub(super) fn url(self) -> &'a str {
        self.url
    }
}

fn parse(text: &str) -> Result<String, SetupError> {
    let url = Url::parse(text).map_err(|_invalid| SetupError::Url("is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(SetupError::Url("has another scheme"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(SetupError::Url("has a user name or a password in it"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(SetupError::Url("has something behind its path"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn is_loopback(url: &str) -> bool {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_base_path() {
        for (url, kept) in [
            ("http://h:1", "http://h:1"),
            ("http://h:1/", "http://h:1"),
            ("https://h/base/", "https://h/base"),
        ] {
            assert_eq!(Addresses::parse(url).unwrap().current().url(), kept);
        }
    }

    #[test]
    fn passes_over_the_one_that_failed_and_comes_back_to_it() {
        let addresses = Addresses::parse("http://a, http://b").unwrap();
        assert_eq!(addresses.len(), 2);
        let a = addresses.current();
        addresses.move_on_from(a);
        let b = addresses.current();
        assert_eq!((a.url(), b.url()), ("http://a", "http://b"));
        // Somebody else failed at the first one too, a moment later.
        addresses.move_on_from(a);
        assert_eq!(addresses.current().url(), "http://b");
        addresses.move_on_from(b);
        assert_eq!(addresses.current().url(), "http://a");
    }

    #[test]
    fn refuses_what_is_no_address_and_repeats_no_password() {
        for bad in [
            "",
            "h:1",
            "ftp://h",
            "http://h/?q",
            "http://h/#f",
            "http://u:s3cret@h",
            "http://h,",
            "http://h,http://u:s3cret@h",
        ] {
            let error = Addresses::parse(bad).unwrap_err().to_string();
            assert!(error.contains("expected http://"), "{bad}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn knows_this_machine() {
        for (url, loopback) in [
            ("http://localhost:1", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:1", true),
            ("http://[::1]:1,http://example.org", false),
            ("http://example.org", false),
            ("http://127.0.0.1.example.org", false),
        ] {
            let addresses = Addresses::parse(url).unwrap();
            assert_eq!(addresses.all_loopback(), loopback, "{url}");
        }
    }
}
