//! Exchanged keys: what a program gets for an ID token. Gateways do not keep them: all that a gateway needs is sealed
//! in the key.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::auth::seal::Seal;

/// The content of an exchanged key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::auth) struct ExchangedContent {
    /// The name of the API key that admits the caller.
    pub(in crate::auth) name: String,
    /// The hash of the issuer, audience and claims of the API key at the exchange. The exchanged key counts only while
    /// the API key has the same.
    pub(in crate::auth) rules: String,
    /// The URL of the issuer.
    pub(in crate::auth) issuer: String,
    /// The subject of the token.
    pub(in crate::auth) subject: String,
    /// The claims that tell the workloads of one subject apart, as JSON.
    pub(in crate::auth) workload: String,
    /// When the token was exchanged, in milliseconds since 1970.
    pub(in crate::auth) at_ms: u64,
    /// When the exchanged key ends, in milliseconds since 1970.
    pub(in crate::auth) until_ms: u64,
    /// What people are shown of a person that has signed in; `None` for a program.
    pub(in crate::auth) person: Option<String>,
    /// What the token has made of the templates.
    #[serde(flatten)]
    pub(in crate::auth) rendered: Rendered,
}

/// What a token makes of the templates of an API key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendered {
    /// The owner of the caller's leases, if the API key declares one.
    pub owner: Option<String>,
    /// The metadata of the caller's leases that the API key declares.
    pub metadata: BTreeMap<String, String>,
    /// The beginnings of lock names that the API key permits by claims: each template and what it has become.
    pub prefixes: BTreeMap<String, String>,
}

/// An exchanged key as its program keeps it, with its end. `Debug` never shows it.
#[derive(Clone)]
pub struct ExchangedKey(Box<str>);

/// The purpose and format of an exchanged key, bound into the seal.
pub(in crate::auth) const PURPOSE: &[u8] = b"latchgate exchanged key v1";
/// How long after the exchange leases can be renewed with an exchanged key. A long job may be unable to get another ID
/// token.
const RENEWS_FOR: Duration = Duration::from_hours(24);

// === impl ExchangedKey ===

impl ExchangedKey {
    /// The first characters of every exchanged key.
    pub const PREFIX: &str = "lgx_";
    /// The longest exchanged key, in bytes: the headers of a request have 16 KiB together, and some proxies take 8.
    pub const MAX_LEN: usize = 3 * 1024;

    /// Seals a content; `None` if the key would be too long.
    pub(in crate::auth) fn seal(content: &ExchangedContent, seal: &Seal) -> Option<Self> {
        content
            .seal(Self::PREFIX, seal)
            .map(|text| Self(text.into()))
    }

    /// Opens an exchanged key that was sealed with one of these secrets, whether or not it has ended.
    pub(in crate::auth) fn open(text: &str, seal: &Seal) -> Option<ExchangedContent> {
        ExchangedContent::open(Self::PREFIX, text, seal)
    }

    /// The exchanged key as text, for the program that has sent the ID token.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ExchangedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExchangedKey(..)")
    }
}

// === impl ExchangedContent ===

impl ExchangedContent {
    /// Seals the content behind a prefix; `None` if the text would be too long.
    pub(in crate::auth) fn seal(&self, prefix: &str, seal: &Seal) -> Option<String> {
        let json = serde_json::to_vec(self).expect("texts and numbers can be written as JSON");
        let text = format!("{prefix}{}", seal.seal(json));
        (text.len() <= ExchangedKey::MAX_LEN).then_some(text)
    }

    /// Opens a text that was sealed for the same purpose with one of these secrets, whether or not it has ended.
    pub(in crate::auth) fn open(prefix: &str, text: &str, seal: &Seal) -> Option<Self> {
        if text.len() > ExchangedKey::MAX_LEN {
            return None;
        }
        serde_json::from_slice(&seal.open(text.strip_prefix(prefix)?)?).ok()
    }

    pub(in crate::auth) fn at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.at_ms)
    }

    /// When the key ends for everything but renewals.
    pub(in crate::auth) fn until(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.until_ms)
    }

    /// When renewals end, too.
    pub(in crate::auth) fn renews_until(&self) -> SystemTime {
        self.at() + RENEWS_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> ExchangedContent {
        ExchangedContent {
            name: "ci-web".to_owned(),
            rules: "abc".to_owned(),
            issuer: "https://issuer".to_owned(),
            subject: "repo:acme/web".to_owned(),
            at_ms: 1_795_176_000_123,
            until_ms: 1_795_179_600_123,
            workload: r#"{"repository_id":"7"}"#.to_owned(),
            person: None,
            rendered: Rendered {
                owner: Some("acme/web #7".to_owned()),
                metadata: BTreeMap::from([("run".to_owned(), "https://x".to_owned())]),
                prefixes: BTreeMap::from([("{repository}/".to_owned(), "acme/web/".to_owned())]),
            },
        }
    }

    fn seal(secrets: &[&str]) -> Seal {
        let secrets: Vec<_> = secrets.iter().map(|it| it.as_bytes().to_vec()).collect();
        Seal::new(PURPOSE, &secrets)
    }

    #[test]
    fn comes_back_wherever_one_of_the_secrets_is_the_same() {
        let key = ExchangedKey::seal(&content(), &seal(&["one"])).unwrap();
        let open = |secrets: &[&str]| ExchangedKey::open(key.expose(), &seal(secrets));
        assert_eq!(open(&["one"]), Some(content()));
        assert_eq!(open(&["two", "one"]), Some(content()));
        assert_eq!(open(&["two"]), None);
    }

    #[test]
    fn is_another_text_each_time_and_shows_nothing() {
        let seal = seal(&["one"]);
        let keys = [(); 2].map(|()| ExchangedKey::seal(&content(), &seal).unwrap());
        assert_ne!(keys[0].expose(), keys[1].expose());
        assert_eq!(
            format!("{:?} {seal:?}", keys[0]),
            "ExchangedKey(..) Seal(..)"
        );
    }

    #[test]
    fn one_that_was_changed_cut_or_sealed_for_another_purpose_does_not_open() {
        let seal = seal(&["one"]);
        let key = ExchangedKey::seal(&content(), &seal).unwrap();
        let text = key.expose();
        for at in 0..text.len() {
            assert_eq!(ExchangedKey::open(&text[..at], &seal), None);
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(ExchangedKey::open(&changed, &seal), None, "{at}");
        }
        let session = Seal::new(b"latchgate session v1", &[b"one".to_vec()]);
        assert_eq!(ExchangedKey::open(text, &session), None);
        let sealed = session.seal(serde_json::to_vec(&content()).unwrap());
        assert_eq!(ExchangedKey::open(&format!("lgx_{sealed}"), &seal), None);
    }

    #[test]
    fn is_at_most_three_kibibytes_long() {
        let seal = seal(&["one"]);
        let with = |chars| ExchangedContent {
            subject: "x".repeat(chars),
            ..content()
        };
        assert!(ExchangedKey::seal(&with(1_700), &seal).is_some());
        assert!(ExchangedKey::seal(&with(2_300), &seal).is_none());
        let long = format!(
            "lgx_{}",
            seal.seal(serde_json::to_vec(&with(2_300)).unwrap())
        );
        assert_eq!(ExchangedKey::open(&long, &seal), None);
    }
}
