//! Whether a browser sends a request for a page of ours, for those to whom it makes a difference.

use http::request::Parts;

use super::{
    hosts,
    origins::{Page, SEC_FETCH_SITE, is_of_this_site},
};

/// For whom a request was sent, as far as its browser says. A cookie goes along with requests of other
/// pages too, those that are listed among them; a key never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Sender {
    /// For a page of ours, or for the user, who typed the address.
    Ours,
    /// The request does not say: its sender is no browser, or an old one.
    Unsaid,
    /// For a page of another origin.
    Foreign,
}

// === impl Sender ===

impl Sender {
    /// The sender of a request. `over_tls` says that every request comes over TLS.
    pub(in crate::http) fn of(parts: &Parts, over_tls: bool) -> Self {
        let headers = &parts.headers;
        let page = Page::in_headers(headers);
        // It was looked at before: a request that names no host, or two, did not get here.
        let host = hosts::named(headers, &parts.uri, parts.version)
            .ok()
            .flatten();
        if !page.may_be_of(host.as_ref(), over_tls) || !is_of_this_site(headers) {
            Self::Foreign
        } else if matches!(page, Page::Unnamed) && !headers.contains_key(SEC_FETCH_SITE) {
            Self::Unsaid
        } else {
            Self::Ours
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(headers: &[(&str, &str)]) -> Sender {
        let mut request = http::Request::get("/").header("host", "locks.example:7420");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Sender::of(&request.body(()).unwrap().into_parts().0, false)
    }

    #[test]
    fn is_ours_only_if_everything_says_so() {
        const OURS: (&str, &str) = ("origin", "https://locks.example:7420");
        let said = |site| ("sec-fetch-site", site);
        for headers in [
            &[OURS][..],
            &[said("same-origin")],
            &[said("none")],
            &[OURS, said("same-origin")],
        ] {
            assert_eq!(sender(headers), Sender::Ours, "{headers:?}");
        }
        for headers in [
            &[said("same-site")][..],
            &[said("cross-site")],
            &[OURS, said("same-site")],
            &[OURS, OURS],
            &[("origin", "null")],
            &[("origin", "https://locks.example")],
            &[
                ("origin", "https://other.example:7420"),
                said("same-origin"),
            ],
        ] {
            assert_eq!(sender(headers), Sender::Foreign, "{headers:?}");
        }
        assert_eq!(sender(&[("x-requested-with", "x")]), Sender::Unsaid);
    }
}
