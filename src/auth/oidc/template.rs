//! Templates: texts of an API key with claims of a token in them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{invisible_chars::is_invisible, lock::NamePrefix};

use super::id_token::Claims;

/// A text with claims in braces, such as `{repository} #{run_number}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    text: Box<str>,
    /// Each claim, with the text before it.
    claims: Vec<(Box<str>, Box<str>)>,
    /// The text behind the last claim.
    rest: Box<str>,
}

/// The longest name of a claim, in characters.
const MAX_CLAIM: usize = 64;
/// The longest text with claims, in bytes.
const MAX_TEMPLATE: usize = 512;
/// How a link begins, in which claims are percent-encoded.
const LINK: &str = "https://";
/// What a claim in a link may have unencoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// As [`UNRESERVED`], and the slashes of a path.
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

// === impl Template ===

impl Template {
    /// Reads a template; `None` if a brace is not closed, or the text is empty or too long.
    fn parse(text: &str) -> Option<Self> {
        let (mut claims, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let (claim, after) = after.split_once('}')?;
            claims.push((before.into(), claim.into()));
            rest = after;
        }
        let is_fit = |(before, claim): &(Box<str>, Box<str>)| {
            let is_name = (1..=MAX_CLAIM).contains(&claim.len()) && !claim.contains('{');
            is_name && !before.contains('}')
        };
        let is_text = (1..=MAX_TEMPLATE).contains(&text.len()) && !text.contains(char::is_control);
        let is_read = is_text && claims.iter().all(is_fit) && !rest.contains('}');
        is_read.then(|| Self {
            text: text.into(),
            claims,
            rest: rest.into(),
        })
    }

    /// Reads a template of a text that people see. In a link, no claim may choose the host.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let template = Self::parse(text)?;
        let begin = template.claims.first().map(|(begin, _)| &**begin);
        let has_host = |begin: &str| match begin.strip_prefix(LINK) {
            Some(host) => host.contains('/'),
            None => true,
        };
        begin.is_none_or(has_host).then_some(template)
    }

    /// Reads a template of the beginning of lock names. After each claim a separator must follow, so that one value is
    /// not the beginning of another.
    pub(crate) fn of_prefix(text: &str) -> Option<Self> {
        let template = Self::parse(text)?;
        let next = template.claims.iter().map(|(before, _)| before).skip(1);
        let is_separated = next
            .chain([&template.rest])
            .all(|next| next.starts_with(['/', ':']));
        // The text with harmless values must begin a name.
        let example = template.fill(|_| Ok::<_, ()>("x".to_owned())).ok()?;
        (is_separated && NamePrefix::new(&example).is_ok()).then_some(template)
    }

    /// The template as it was written.
    pub(in crate::auth) fn as_str(&self) -> &str {
        &self.text
    }

    /// The claim with which the first part of a name begins; `None` if a literal part stands before all claims.
    pub(in crate::auth) fn leading_claim(&self) -> Option<&str> {
        let (before, claim) = self.claims.first()?;
        (!before.contains(['/', ':'])).then_some(claim)
    }

    /// Whether the text uses this claim.
    pub(super) fn uses(&self, claim: &str) -> bool {
        self.claims.iter().any(|(_, name)| **name == *claim)
    }

    /// The text for people with the claims of a token. Fails with the claim that is missing, a list or an object.
    pub(crate) fn render_text(&self, claims: &Claims) -> Result<String, String> {
        let is_link = self.text.starts_with(LINK);
        self.fill(|claim| {
            let value = scalar(claims, claim)?;
            if is_link && [".", ".."].contains(&&*value) {
                return Err(format!("the claim {claim} is no part of a link"));
            }
            Ok(if is_link {
                let is_path = value
                    .split('/')
                    .all(|part| !["", ".", ".."].contains(&part));
                utf8_percent_encode(&value, if is_path { PATH } else { UNRESERVED }).to_string()
            } else {
                let harmless = |c: char| {
                    if c.is_control() || is_invisible(c) {
                        '?'
                    } else {
                        c
                    }
                };
                value.chars().map(harmless).collect()
            })
        })
    }

    /// The beginning of lock names with the claims of a token. Fails with what is wrong with a claim.
    pub(crate) fn render_prefix(&self, claims: &Claims) -> Result<String, String> {
        let prefix = self.fill::<String>(|claim| {
            let value = scalar(claims, claim)?;
            // Otherwise a claim could change what its neighbours mean, as `..` does.
            NamePrefix::new(&format!("{value}/"))
                .map_err(|_| format!("the claim {claim} is no name of a lock"))?;
            Ok(value)
        })?;
        NamePrefix::new(&prefix)
            .map_err(|_| format!("{} begins no name with these claims", self.text))?;
        Ok(prefix)
    }

    fn fill<E>(&self, value: impl Fn(&str) -> Result<String, E>) -> Result<String, E> {
        let mut text = String::new();
        for (before, claim) in &self.claims {
            text += before;
            text += &value(claim)?;
        }
        Ok(text + &self.rest)
    }
}

/// The value of a claim as text.
fn scalar(claims: &Claims, claim: &str) -> Result<String, String> {
    match claims.get(claim) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
        Some(Value::Null) | None => Err(format!("the token has no claim {claim}")),
        Some(Value::Array(_) | Value::Object(_)) => {
            Err(format!("the claim {claim} is a list or an object"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims() -> Claims {
        let claims = json!({
            "repository": "acme/web", "run": 42, "flag": true, "list": ["a"], "object": {}, "null": null,
            "evil": "a\u{202e}\n\u{1b}b", "up": "a/../..", "query": "a?b#c%\\:@", "colon": "a:b", "empty": "",
            "verb": "acme/release",
        });
        claims.as_object().unwrap().clone()
    }

    fn text(template: &str) -> Result<String, String> {
        Template::of_text(template).unwrap().render_text(&claims())
    }

    fn prefix(template: &str) -> Result<String, String> {
        Template::of_prefix(template)
            .unwrap()
            .render_prefix(&claims())
    }

    #[test]
    fn claims_stand_in_their_places() {
        assert_eq!(text("{repository} #{run}").unwrap(), "acme/web #42");
        assert_eq!(text("plain").unwrap(), "plain");
        assert_eq!(text("{flag}{run}").unwrap(), "true42");
        assert_eq!(prefix("{repository}/").unwrap(), "acme/web/");
        assert_eq!(prefix("ci/{repository}:x").unwrap(), "ci/acme/web:x");
    }

    #[test]
    fn a_claim_that_is_missing_a_list_or_an_object_is_named() {
        for claim in ["nothing", "list", "object", "null"] {
            assert!(text(&format!("{{{claim}}}")).unwrap_err().contains(claim));
            assert!(
                prefix(&format!("{{{claim}}}/"))
                    .unwrap_err()
                    .contains(claim)
            );
        }
    }

    #[test]
    fn a_claim_changes_neither_the_look_of_a_text_nor_the_place_of_a_link() {
        assert_eq!(text("{evil}").unwrap(), "a???b");
        assert_eq!(
            text("https://h/{repository}/{run}").unwrap(),
            "https://h/acme/web/42"
        );
        assert_eq!(
            text("https://h/{query}").unwrap(),
            "https://h/a%3Fb%23c%25%5C%3A%40"
        );
        assert_eq!(text("https://h/{up}").unwrap(), "https://h/a%2F..%2F..");
        assert_eq!(
            text("https://h/{evil}").unwrap(),
            "https://h/a%E2%80%AE%0A%1Bb"
        );
        for host in ["https://{x}/", "https://a.{x}", "https://{x}"] {
            assert_eq!(Template::of_text(host), None, "{host}");
        }
    }

    #[test]
    fn a_claim_in_a_name_is_a_name_by_itself() {
        for claim in ["up", "query", "evil", "empty"] {
            let why = prefix(&format!("{{{claim}}}/")).unwrap_err();
            assert!(why.contains("is no name of a lock"), "{claim} {why}");
        }
        assert_eq!(prefix("{colon}/").unwrap(), "a:b/");
        // A repository may have the name of an operation.
        assert_eq!(prefix("{verb}/").unwrap(), "acme/release/");
    }

    #[test]
    fn a_separator_follows_each_claim_in_a_name() {
        for bad in [
            "{a}", "{a}b/", "{a}{b}/", "{a}-{b}/", "/{a}/", "{a}//", "{a}/../", "{}/", "{a", "a}",
            "{{a}}/", "",
        ] {
            assert_eq!(Template::of_prefix(bad), None, "{bad}");
        }
        for good in ["{a}/", "{a}:", "x/{a}/{b}:", "{a}/main"] {
            assert!(Template::of_prefix(good).is_some(), "{good}");
        }
    }
}
