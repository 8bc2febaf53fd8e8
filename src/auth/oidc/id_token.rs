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
#[error("the ID token is refused ({class}): {reason}")]
pub struct TokenRefusal {
    /// The class of the refusal.
    pub class: RefusalClass,
    /// What exactly is wrong.
    pub reason: String,
}

/// What kind of mistake an ID token has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusalClass {
    /// The text is no ID token, or has claims that no gateway reads.
    #[error("malformed")]
    Malformed,
    /// The token is not signed by a key of its issuer.
    #[error("signature")]
    Signature,
    /// The token is not valid now.
    #[error("time")]
    Time,
    /// The token is valid, and no API key is for its issuer, audience and claims.
    #[error("no key matches")]
    NoKeyMatches,
}

/// How a verification that was not refused has ended.
pub enum Verification {
    /// The token is valid.
    Verified(VerifiedToken),
    /// The set has no key of the token's `kid`, or the token has no `kid` and the only key has not signed it. The issuer may
    /// have published another set.
    UnknownKid,
}

/// How much the clocks of the issuer and of the gateway may differ.
const LEEWAY: Duration = Duration::from_mins(1);
/// How old a token may be. A token that is older has been kept somewhere.
const MAX_AGE: Duration = Duration::from_hours(24);
/// The largest number of claims of a token.
const MAX_CLAIMS: usize = 100;
/// How deep objects and lists may be in each other in the claims.
const MAX_DEPTH: usize = 8;
/// How much the log shows of a text of somebody else, in characters.
const MAX_SHOWN: usize = 200;
/// The longest subject, in characters.
const MAX_SUBJECT: usize = 512;

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
        // A token of another kind, such as an access token, is not about who calls.
        if header
            .typ
            .as_deref()
            .is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT"))
        {
            return Err(malformed("its typ is not JWT"));
        }
        // A token must not say which key verifies it, nor ask for rules that no gateway knows.
        let names_key = header.jku.is_some()
            || header.jwk.is_some()
            || header.x5u.is_some()
            || header.x5c.is_some();
        if names_key || header.crit.is_some() || header.enc.is_some() || header.zip.is_some() {
            return Err(malformed(
                "its header has jku, jwk, x5u, x5c, crit, enc or zip",
            ));
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

    /// Verifies the token with the keys of its issuer.
    pub fn verify(
        &self,
        keys: &KeySet,
        issuer: &str,
        audience: &str,
        now: SystemTime,
    ) -> Result<Verification, TokenRefusal> {
        let key = match keys.select(self.header.kid.as_deref(), self.header.alg) {
            Selection::Key(key) => key,
            Selection::UnknownKid => return Ok(Verification::UnknownKid),
            Selection::Ambiguous => {
                let reason = "it has no kid, and not exactly one key of the issuer fits";
                return Err(refuse(RefusalClass::Signature, reason));
            }
        };
        let mut validation = Validation::new(key.algorithm);
        // The times are checked below, by the clock of the gateway and with `iat`.
        (validation.validate_exp, validation.validate_aud) = (false, false);
        validation.required_spec_claims.clear();
        crypto::install();
        let claims: Claims = match decode(self.text, &key.key, &validation) {
            Ok(decoded) => decoded.claims,
            Err(error) => match error.kind() {
                ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
                    return Err(malformed("its claims are not as those of an ID token"));
                }
                // The only key may have been replaced.
                _ if self.header.kid.is_none() => return Ok(Verification::UnknownKid),
                _ => {
                    let reason = "the key of its kid has not signed it";
                    return Err(refuse(RefusalClass::Signature, reason));
                }
            },
        };
        check_claims(&claims, issuer, audience)?;
        let issued = check_times(&claims, now)?;
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !(1..=MAX_SUBJECT).contains(&subject.chars().count()) || subject.contains('\0') {
            return Err(malformed("its sub is no text of 1 to 512 characters"));
        }
        Ok(Verification::Verified(VerifiedToken {
            subject: subject.to_owned(),
            issued,
            claims,
        }))
    }
}

impl fmt::Debug for IdToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdToken(..)")
    }
}

/// Checks that the claims are not too many, and for this gateway.
fn check_claims(claims: &Claims, issuer: &str, audience: &str) -> Result<(), TokenRefusal> {
    if claims.len() > MAX_CLAIMS || claims.values().any(|value| is_deeper(value, MAX_DEPTH)) {
        return Err(malformed(
            "it has more than 100 claims, or claims deeper than 8",
        ));
    }
    if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
        return Err(refuse(
            RefusalClass::NoKeyMatches,
            "it is of another issuer",
        ));
    }
    if has_audience(claims, audience) {
        Ok(())
    } else {
        Err(refuse(
            RefusalClass::NoKeyMatches,
            "its aud does not have the audience of the issuer here",
        ))
    }
}

/// Whether a token is for this audience.
pub(super) fn has_audience(claims: &Claims, audience: &str) -> bool {
    let is_ours = |value: &Value| value.as_str() == Some(audience);
    match claims.get("aud") {
        Some(Value::Array(list)) => list.iter().any(is_ours),
        Some(one) => is_ours(one),
        None => false,
    }
}

fn is_deeper(value: &Value, most: usize) -> bool {
    let deeper = |value: &Value| most == 0 || is_deeper(value, most - 1);
    match value {
        Value::Array(list) => list.iter().any(deeper),
        Value::Object(object) => object.values().any(deeper),
        _ => false,
    }
}

/// Checks that a token is valid now, by the clock of the gateway. Returns when it was issued.
fn check_times(claims: &Claims, now: SystemTime) -> Result<SystemTime, TokenRefusal> {
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let time = |name: &str| match claims.get(name) {
        None => Ok(None),
        Some(value) => {
            let seconds = value.as_f64().filter(|it| it.is_finite() && *it >= 0.0);
            seconds
                .map(Some)
                .ok_or_else(|| malformed(format!("its {name} is no time in seconds")))
        }
    };
    let required = |name: &str| time(name)?.ok_or_else(|| malformed(format!("it has no {name}")));
    let (ends, issued, begins) = (required("exp")?, required("iat")?, time("nbf")?);
    let (leeway, max_age) = (LEEWAY.as_secs_f64(), MAX_AGE.as_secs_f64());
    let wrong = |what: &str, by: f64| {
        let reason = format!("{what} by {by:.0} s, by the clock of this gateway");
        Err(refuse(RefusalClass::Time, reason))
    };
    if ends + leeway <= now {
        return wrong("its exp is over", now - ends);
    }
    if issued > now + leeway {
        return wrong("its iat is ahead", issued - now);
    }
    if issued < now - max_age - leeway {
        return wrong("its iat is older than a day", now - issued - max_age);
    }
    match begins {
        Some(begins) if begins > now + leeway => wrong("its nbf is ahead", begins - now),
        // No day before or a minute after the clock of the gateway is too much for a time.
        _ => Ok(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(issued)),
    }
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
