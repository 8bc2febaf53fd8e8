//! ID tokens: whether an issuer has signed one for this gateway, and what it says.

use std::{
    fmt::{self, Display},
    time::{Duration, SystemTime},
};

use jsonwebtoken::{
    Algorithm, Header, Validation, dangerous::insecure_decode_claims, decode, decode_header,
    errors::ErrorKind,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    crypto,
    key_set::{KeySet, Selection},
};

/// The claims of an ID token.
pub type Claims = Map<String, Value>;

/// An ID token that nobody has verified yet. It is a secret: `Debug` does not show it.
pub struct IdToken<'a> {
    text: &'a str,
    header: Header,
    /// The issuer that the token names.
    issuer: String,
}

/// An ID token whose signature and claims were checked.
#[derive(Debug, Clone)]
pub struct VerifiedToken {
    /// The claim `sub`: who the token is about, by the issuer.
    pub subject: String,
    /// The claim `iat`: when the issuer has made the token.
    pub issued: SystemTime,
    /// All claims.
    pub claims: Claims,
}

/// Why an ID token is refused. The caller is told the class, and the log the reason, which never shows the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ID token, {class:?}: {reason}")]
pub struct TokenRefusal {
    /// The class of the refusal.
    pub class: RefusalClass,
    /// What exactly is wrong.
    pub reason: String,
}

/// What kind of mistake an ID token has, with the text for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusalClass {
    /// The text is no ID token, or has claims that no gateway reads.
    #[error("(malformed): it is no JSON Web Token of an issuer, or lacks claims")]
    Malformed,
    /// The token is not signed by a key of its issuer.
    #[error("(signature): no key of its issuer has signed it with RS256 or ES256")]
    Signature,
    /// The token is not valid now.
    #[error(
        "(time): it has expired, or is not valid yet, by the clock of this gateway. Ask for a new one. If that does not \
         help, compare the clocks: the header `Date` has the gateway's"
    )]
    Time,
    /// The token is valid, and no API key is for its issuer, audience and claims.
    #[error(
        "(no key matches): no API key of this gateway is for its issuer, audience and claims. The log of \
         the gateway says which claim differs"
    )]
    NoKeyMatches,
}

/// How much the clocks of the issuer and of the gateway may differ.
const LEEWAY: Duration = Duration::from_mins(1);
/// How old a token may be. A token that is older has been kept somewhere.
const MAX_AGE: Duration = Duration::from_hours(24);
/// The largest number of claims of a token. `serde_json` limits how deep objects and lists may be in each other.
const MAX_CLAIMS: usize = 100;
/// How much the log shows of a text of somebody else, in characters.
const MAX_SHOWN: usize = 200;
/// The longest subject, in characters.
const MAX_SUBJECT: usize = 512;

// === impl VerifiedToken ===

impl VerifiedToken {
    /// Whether the token is for this audience, alone or among others.
    pub(in crate::auth) fn has_audience(&self, audience: &str) -> bool {
        let is_ours = |value: &Value| value.as_str() == Some(audience);
        match self.claims.get("aud") {
            Some(Value::Array(list)) => list.iter().any(is_ours),
            one => one.is_some_and(is_ours),
        }
    }
}

// === impl IdToken ===

impl<'a> IdToken<'a> {
    /// The longest ID token, in bytes.
    pub const MAX_LEN: usize = 16 * 1024;

    /// Whether a text may contain an ID token or another JSON Web Token, and so must not be written down: the
    /// beginnings of two JSON objects in base64, with a dot between. Behind `{` stands a quote or white space.
    pub fn is_in(text: &str) -> bool {
        const OBJECTS: [&str; 5] = ["eyJ", "eyA", "ewo", "ew0", "ewk"];
        let has = |part: &str| OBJECTS.iter().any(|it| part.contains(it));
        let begins = |part: &str| OBJECTS.iter().any(|it| part.starts_with(it));
        let next = text.split('.').skip(1);
        let mut pairs = text.split('.').zip(next);
        pairs.any(|(part, next)| has(part) && begins(next))
    }

    /// Reads what an ID token says of itself, which nobody has verified.
    pub fn parse(text: &'a str) -> Result<Self, TokenRefusal> {
        #[derive(Deserialize)]
        struct Issuer {
            iss: String,
        }
        if text.len() > Self::MAX_LEN {
            return Err(malformed("it is longer than 16 KiB"));
        }
        let header = decode_header(text)
            .map_err(|_| malformed("it is no JSON Web Token with an algorithm that is known"))?;
        if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
            return Err(refuse(
                RefusalClass::Signature,
                format!("its algorithm is {:?}", header.alg),
            ));
        }
        // A token of another kind, such as an access token, is not about who calls. A token must not say which key verifies
        // it, nor ask for rules that no gateway knows.
        let is_typed = |typ: &String| !typ.eq_ignore_ascii_case("JWT");
        let is_odd = header.typ.as_ref().is_some_and(is_typed)
            || header.jku.is_some()
            || header.jwk.is_some()
            || header.x5u.is_some()
            || header.x5c.is_some()
            || header.crit.is_some()
            || header.enc.is_some()
            || header.zip.is_some();
        if is_odd {
            let reason =
                "its typ is not JWT, or its header has jku, jwk, x5u, x5c, crit, enc or zip";
            return Err(malformed(reason));
        }
        let Issuer { iss: issuer } = insecure_decode_claims(text)
            .map_err(|_| malformed("its claims are no JSON object with one iss"))?;
        Ok(Self {
            text,
            header,
            issuer,
        })
    }

    /// The issuer that the token names.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Verifies the token with the keys of its issuer. `None` if the set has no key of the token's `kid`, or the token has no
    /// `kid` and the only key has not signed it: the issuer may have published another set.
    pub fn verify(
        &self,
        keys: &KeySet,
        issuer: &str,
        audience: &str,
        now: SystemTime,
    ) -> Result<Option<VerifiedToken>, TokenRefusal> {
        let key = match keys.select(self.header.kid.as_deref(), self.header.alg) {
            Selection::Key(key) => key,
            Selection::UnknownKid => return Ok(None),
            Selection::Ambiguous => {
                let reason = "it has no kid, and not exactly one key of the issuer fits";
                return Err(refuse(RefusalClass::Signature, reason));
            }
        };
        let mut validation = Validation::new(key.algorithm);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[audience]);
        validation.set_required_spec_claims(&["iss", "aud"]);
        // The times are checked below, by the clock of the gateway and with `iat`.
        validation.validate_exp = false;
        crypto::install();
        let claims: Claims = match decode(self.text, &key.key, &validation) {
            Ok(decoded) => decoded.claims,
            Err(error) => return self.refused(error.kind()),
        };
        if claims.len() > MAX_CLAIMS {
            return Err(malformed("it has more than 100 claims"));
        }
        let made_at = check_times(&claims, now)?;
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !(1..=MAX_SUBJECT).contains(&subject.chars().count()) || subject.contains('\0') {
            return Err(malformed("its sub is no text of 1 to 512 characters"));
        }
        Ok(Some(VerifiedToken {
            subject: subject.to_owned(),
            issued: made_at,
            claims,
        }))
    }

    /// The outcome for a token that the library refuses.
    fn refused(&self, why: &ErrorKind) -> Result<Option<VerifiedToken>, TokenRefusal> {
        let (class, reason) = match why {
            ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
                return Err(malformed("its claims are not as those of an ID token"));
            }
            ErrorKind::InvalidIssuer
            | ErrorKind::InvalidAudience
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::MissingRequiredClaim(_) => (
                RefusalClass::NoKeyMatches,
                "its iss or aud is not that of the issuer here",
            ),
            // The only key may have been replaced.
            _ if self.header.kid.is_none() => return Ok(None),
            _ => (
                RefusalClass::Signature,
                "the key of its kid has not signed it",
            ),
        };
        Err(refuse(class, reason))
    }
}

impl fmt::Debug for IdToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdToken(..)")
    }
}

/// Checks that a token is valid now, by the clock of the gateway. Returns when it was issued.
fn check_times(claims: &Claims, now: SystemTime) -> Result<SystemTime, TokenRefusal> {
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let time = |name: &str, missing: Option<f64>| {
        let seconds = claims.get(name).map_or(missing, Value::as_f64);
        let seconds = seconds.filter(|it| it.is_finite() && *it >= 0.0);
        seconds.ok_or_else(|| malformed(format!("its {name} is missing, or no time in seconds")))
    };
    let (ends, issued) = (time("exp", None)?, time("iat", None)?);
    let begins = time("nbf", Some(0.0))?;
    let differences = [
        ("its exp is over", now - ends),
        ("its iat is ahead", issued - now),
        (
            "its iat is older than a day",
            now - issued - MAX_AGE.as_secs_f64(),
        ),
        ("its nbf is ahead", begins - now),
    ];
    let wrong = differences
        .into_iter()
        .find(|(_, by)| *by > LEEWAY.as_secs_f64());
    if let Some((what, by)) = wrong {
        let reason = format!("{what} by {by:.0} s, by the clock of this gateway");
        return Err(refuse(RefusalClass::Time, reason));
    }
    // A time that is a day before or a minute after the clock of the gateway is not too large.
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(issued))
}

pub(in crate::auth) fn refuse(class: RefusalClass, reason: impl Display) -> TokenRefusal {
    let reason = reason.to_string();
    TokenRefusal { class, reason }
}

/// The beginning of a text of somebody else, for the log.
pub(in crate::auth) fn shown(text: &str) -> String {
    let begin: String = text.chars().take(MAX_SHOWN).collect();
    format!("{begin:?}")
}

fn malformed(reason: impl Display) -> TokenRefusal {
    refuse(RefusalClass::Malformed, reason)
}

#[cfg(test)]
mod tests;
