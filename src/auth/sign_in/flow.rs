//! The two halves of a sign-in: a browser goes to the issuer, and comes back with a code.

use std::{net::IpAddr, sync::Arc, time::SystemTime};

use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::auth::{
    Access, ExchangeError, Gate, KeyRing, Refusal, SealedSession,
    exchange::{QUEUES_FOR, matching},
    gate::GateInner,
    oidc::{Discovery, IdToken, Issuer, RefusalClass, VerifiedToken, refuse},
    session::milliseconds,
};

use super::{SignIn, attempt::Attempt, code};

/// An attempt that has begun.
pub struct SignInBegin {
    /// The page of the issuer to which the browser goes.
    pub location: String,
    /// The text by which the issuer's answer is known.
    pub state: String,
    /// The attempt, for the browser to keep.
    pub sealed: String,
}

/// What the issuer has sent a browser back with.
#[derive(Default)]
pub struct SignInAnswer {
    /// The text by which the attempt is known.
    pub state: String,
    /// The code, if the person has signed in.
    pub code: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
    /// The issuer that answers, if it says so.
    pub issuer: Option<String>,
}

/// Why nobody was signed in, as the person is told.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// The keys file has no `[sign_in]`.
    #[error("This gateway has no issuer for people.")]
    NotOffered,
    /// The browser has begun no such attempt, or it has ended.
    #[error(
        "This browser has not begun to sign in, or more than ten minutes ago. Open {0}/dashboard, and sign in there."
    )]
    NoAttempt(Box<str>),
    /// A page of another site has led the browser here.
    #[error("Another site has led you here. Open the dashboard, and sign in there.")]
    NotAskedHere,
    /// The issuer has sent the browser back without a code.
    #[error("The issuer did not sign you in. It says: {0}")]
    NotSignedIn(String),
    /// The issuer cannot be asked, or its answer is no ID token, for this reason, which is for the log.
    #[error("The issuer has given no ID token. Try again. The log of the gateway says why.")]
    NoToken(String),
    /// The groups of the person are too many for an ID token, so that it has none.
    #[error(
        "You are in too many groups: the issuer has left them out of your ID token. Ask its administrator to send only the \
         groups that are assigned to this application."
    )]
    TooManyGroups,
    /// The ID token is refused, or cannot be verified now.
    #[error(transparent)]
    Token(#[from] ExchangeError),
}

/// The claim for groups, and the claim that says which claims were left out.
const GROUPS: &str = "groups";
const LEFT_OUT: &str = "_claim_names";

// === impl Gate ===

impl Gate {
    /// How people sign in at an issuer, if they can.
    pub fn sign_in(&self) -> Option<Arc<SignIn>> {
        self.0.as_ref()?.ring.borrow().sign_in().cloned()
    }

    /// Begins an attempt to sign in. Afterwards the browser returns to the page `return_to`.
    pub async fn begin_sign_in(&self, return_to: String) -> Result<SignInBegin, SignInError> {
        let guarded = self.0.as_ref().ok_or(SignInError::NotOffered)?;
        let ring = Arc::clone(&guarded.ring.borrow());
        let (sign_in, issuer) = people(&ring)?;
        let discovery = discovery(issuer).await?;
        let endpoint = discovery.authorization_endpoint.as_deref();
        let endpoint = (issuer.settings)
            .named("authorization_endpoint", endpoint.unwrap_or_default())
            .map_err(SignInError::NoToken)?;
        let attempt = Attempt::new(return_to, guarded.clock.wall());
        Ok(SignInBegin {
            location: attempt.location(sign_in, endpoint),
            sealed: attempt.seal(&guarded.seal.load().attempts),
            state: attempt.state,
        })
    }

    /// Finishes the attempt that the browser has kept. Returns the person, the new session, and the page to return to.
    /// What fails although the attempt was begun here counts for the address, because it makes the gateway ask the issuer.
    pub async fn finish_sign_in(
        &self,
        sealed: &str,
        answer: &SignInAnswer,
        from: Option<IpAddr>,
    ) -> Result<(Access, SealedSession, String), SignInError> {
        let guarded = self.0.as_ref().ok_or(SignInError::NotOffered)?;
        let ring = Arc::clone(&guarded.ring.borrow());
        let url = || people(&ring).map(|(sign_in, _)| sign_in.url.clone());
        let (seal, now) = (guarded.seal.load_full(), guarded.clock.wall());
        let attempt = Attempt::open(sealed, &answer.state, &seal.attempts, now);
        let attempt = attempt.ok_or(SignInError::NoAttempt(url()?))?;
        let finished = guarded.finish(&ring, &attempt, answer, from, now).await;
        if finished.is_err() {
            guarded.count(Refusal::NotAKey, from);
        }
        let (access, session) = finished?;
        Ok((access, session, attempt.return_to))
    }

    /// The address at which the person signs out at the issuer, if it has one. `None` for other callers.
    pub fn sign_out_address(&self, access: &Access) -> Option<String> {
        if !(access.is_session() && access.is_exchanged()) {
            return None;
        }
        let ring = Arc::clone(&self.0.as_ref()?.ring.borrow());
        let (sign_in, issuer) = people(&ring).ok()?;
        let discovery = issuer.discovery().filter(|_| sign_in.signs_out_there)?;
        let endpoint = discovery.end_session_endpoint.as_deref()?;
        let endpoint = issuer
            .settings
            .named("end_session_endpoint", endpoint)
            .ok()?;
        Some(sign_in.sign_out(endpoint))
    }
}

fn people(ring: &KeyRing) -> Result<(&SignIn, &Issuer), SignInError> {
    let sign_in = ring.sign_in().ok_or(SignInError::NotOffered)?;
    let issuer = ring
        .issuer(&sign_in.issuer)
        .ok_or(SignInError::NotOffered)?;
    Ok((sign_in, issuer))
}

/// What the issuer says of itself, which is asked for if it is due and was never known.
async fn discovery(issuer: &Issuer) -> Result<Arc<Discovery>, SignInError> {
    if issuer.discovery().is_none() {
        let slot = issuer.waits.try_acquire();
        let _slot = slot.map_err(|_| ExchangeError::Busy)?;
        issuer.refresh().await;
    }
    let away = || ExchangeError::IssuerAway {
        issuer: issuer.settings.name.clone(),
        retry_after: issuer.asks_in(),
    };
    issuer.discovery().ok_or_else(|| away().into())
}

// === impl GateInner ===

impl GateInner {
    /// Exchanges the code of an attempt for a session.
    async fn finish(
        self: &Arc<Self>,
        ring: &KeyRing,
        attempt: &Attempt,
        answer: &SignInAnswer,
        from: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<(Access, SealedSession), SignInError> {
        let (sign_in, issuer) = people(ring)?;
        let client = &sign_in.client_id;
        let code = match (&answer.code, &answer.error) {
            (Some(code), None) => code,
            (_, error) => return Err(SignInError::NotSignedIn(error.clone().unwrap_or_default())),
        };
        if answer
            .issuer
            .as_ref()
            .is_some_and(|it| **it != *issuer.settings.url)
        {
            return Err(no_key("another issuer has answered"));
        }
        let token = {
            // Addresses with too many refusals share a few places. Behind a proxy all people have one address.
            let slots = match self.limiter.look(from, Instant::now()) {
                Ok(()) => &issuer.waits,
                Err(_) => &self.suspect_sign_ins,
            };
            let slot = timeout(QUEUES_FOR, slots.acquire()).await;
            let _slot = slot.ok().and_then(Result::ok).ok_or(ExchangeError::Busy)?;
            let discovery = discovery(issuer).await?;
            code::id_token(sign_in, &issuer.settings, &discovery, attempt, code).await
        };
        let token = token.map_err(SignInError::NoToken)?;
        let token = IdToken::parse(&token).map_err(ExchangeError::from)?;
        let token = self.verify(&token, issuer, client, from, now).await?;
        check(&token, ring, sign_in, &attempt.nonce)?;
        let (key, rules) =
            matching(ring, issuer, client, &token, None, now).map_err(ExchangeError::from)?;
        let shown = sign_in.shown(&token.claims, &token.subject);
        let mut person = rules
            .exchange(&key.name, issuer, token, now)
            .map_err(ExchangeError::from)?;
        person.person = Some(shown);
        person.until_ms = person.until_ms.min(milliseconds(now + self.session_ttl));
        let session = self.seal.load().seal_person(&person);
        let session =
            session.ok_or_else(|| no_key("owner, metadata and names are too long for a cookie"))?;
        // `sessions_after` may be ahead, or the keys have changed meanwhile.
        let access = self
            .admit_exchanged(person)
            .map_err(|_| no_key("the API key has ended"))?;
        Ok((access, session))
    }
}

/// Checks that a token was made for this client and this attempt, and has the groups if a key has rules for them.
fn check(
    token: &VerifiedToken,
    ring: &KeyRing,
    sign_in: &SignIn,
    nonce: &str,
) -> Result<(), SignInError> {
    let claim = |name: &str| token.claims.get(name);
    let client = Some(&*sign_in.client_id);
    let has_others = claim("aud")
        .and_then(Value::as_array)
        .is_some_and(|all| all.len() > 1);
    if claim("azp").map_or(has_others, |party| party.as_str() != client) {
        return Err(no_key(
            "its azp is not the client_id, or is missing beside several audiences",
        ));
    }
    if claim("nonce").and_then(Value::as_str) != Some(nonce) {
        return Err(no_key("its nonce is of another attempt"));
    }
    let has_rules = || {
        let mut keys = ring.exchanging(&sign_in.issuer).map(|(_, rules)| rules);
        keys.any(|rules| Some(&*rules.audience) == client && rules.claims.names(GROUPS))
    };
    if claim(LEFT_OUT).is_some_and(|names| names.get(GROUPS).is_some()) && has_rules() {
        return Err(SignInError::TooManyGroups);
    }
    Ok(())
}

fn no_key(reason: &str) -> SignInError {
    ExchangeError::from(refuse(RefusalClass::NoKeyMatches, reason)).into()
}
