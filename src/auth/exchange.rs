//! The exchange of an ID token for a key, and the task that keeps the keys of issuers.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    sync::SemaphorePermit,
    time::{Instant, sleep, timeout},
};

use crate::lifecycle::Lifecycle;

use super::{
    Access, ExchangeRules, Gate, KeyEntry, KeyRing, Refusal, SignIn,
    gate::GateInner,
    oidc::{
        ExchangedKey, FETCH_LIMIT, IdToken, Issuer, RefusalClass, TokenRefusal, VerifiedToken,
        refuse, shown,
    },
};

/// Why an ID token was not exchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The token is refused.
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    /// Too many tokens and API keys from the address were refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// As many tokens are verified, or wait for keys of their issuers, as may.
    #[error("too many ID tokens are exchanged at a time")]
    Busy,
    /// The gateway has no keys of the issuer, which it cannot reach.
    #[error("the issuer {issuer} cannot be reached")]
    IssuerAway {
        /// The name of the issuer in the keys file.
        issuer: Box<str>,
        /// After how long the gateway asks the issuer again.
        retry_after: Duration,
    },
}

/// How often the gateway looks whether keys of issuers are due.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a token waits until it may be verified. A verification takes a fraction of a millisecond.
pub(super) const QUEUES_FOR: Duration = Duration::from_secs(1);

// === impl Gate ===

impl Gate {
    /// Exchanges an ID token for a key: of the first API key in the keys file that it matches, or of the API key with the
    /// name that the program `wants`. Whatever is not exchanged counts for the address; a valid token is accepted beyond
    /// that limit. Returns the caller that the token names, and its key.
    pub async fn exchange(
        &self,
        token: &str,
        wants: Option<&str>,
        from: Option<IpAddr>,
    ) -> Result<(Access, ExchangedKey), ExchangeError> {
        let Some(guarded) = &self.0 else {
            let reason = "this gateway has no API keys";
            return Err(refuse(RefusalClass::NoKeyMatches, reason).into());
        };
        let exchanged = guarded.exchange(token, wants, from).await;
        exchanged.map_err(|error| match guarded.count(Refusal::NotAKey, from) {
            too_many @ Refusal::TooMany { .. } => ExchangeError::Refused(too_many),
            _ => error,
        })
    }

    /// Keeps the keys of all issuers up to date until the gateway stops.
    pub async fn keep_issuers(self, lifecycle: Lifecycle) {
        let Some(guarded) = &self.0 else { return };
        let mut changes = guarded.ring.subscribe();
        loop {
            let ring = Arc::clone(&changes.borrow_and_update());
            for issuer in ring.issuers().iter().filter(|issuer| issuer.is_due()) {
                let issuer = Arc::clone(issuer);
                lifecycle.spawn_background(async move { issuer.refresh().await });
            }
            let has_issuers = ring.issuers().iter().any(|issuer| !issuer.is_pinned());
            tokio::select! {
                () = lifecycle.stopped() => return,
                // The gate owns the sender, and lives as long as this task.
                _ = changes.changed() => {}
                () = sleep(PERIOD), if has_issuers => {}
            }
        }
    }
}

// === impl GateInner ===

impl GateInner {
    async fn exchange(
        self: &Arc<Self>,
        text: &str,
        wants: Option<&str>,
        from: Option<IpAddr>,
    ) -> Result<(Access, ExchangedKey), ExchangeError> {
        let no_key = |reason: String| refuse(RefusalClass::NoKeyMatches, reason);
        let token = IdToken::parse(text)?;
        let ring = Arc::clone(&self.ring.borrow());
        let url = token.issuer();
        let issuer = ring.issuers().iter().find(|it| *it.settings.url == *url);
        let issuer =
            issuer.ok_or_else(|| no_key(format!("no issuer has the url {}", shown(url))))?;
        let now = self.clock.wall();
        let audience = &issuer.settings.audience;
        let verified = self.verify(&token, issuer, audience, from, now).await?;
        let is_for_people = |it: &Arc<SignIn>| {
            it.issuer == issuer.settings.name && verified.has_audience(&it.client_id)
        };
        if ring.sign_in().is_some_and(is_for_people) {
            return Err(no_key("it is for people, who sign in to the page".to_owned()).into());
        }
        let (key, rules) = matching(&ring, issuer, audience, &verified, wants, now)?;
        let content = rules.exchange(&key.name, issuer, verified, now)?;
        let sealed = ExchangedKey::seal(&content, &self.seal.load().exchanged);
        let sealed = sealed.ok_or_else(|| {
            no_key("owner, metadata and names are too long for a key of 3 KiB".to_owned())
        })?;
        // `sessions_after` may be ahead, or the keys have changed meanwhile.
        let access = self
            .admit_exchanged(content)
            .map_err(|_| no_key(format!("the API key {:?} has ended", key.name)))?;
        Ok((access, sealed))
    }

    /// Verifies a token for this audience with the keys of its issuer, and waits for keys if they may be new.
    pub(super) async fn verify(
        &self,
        token: &IdToken<'_>,
        issuer: &Issuer,
        audience: &str,
        from: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<VerifiedToken, ExchangeError> {
        let settings = &issuer.settings;
        let mut has_waited = false;
        loop {
            let keys = issuer.keys();
            if let Some(keys) = &keys {
                let _permit = self.permit(from).await?;
                let verified = token.verify(keys, &settings.url, audience, now)?;
                if let Some(verified) = verified {
                    return Ok(verified);
                }
                if issuer.is_pinned() || has_waited && !issuer.is_failing() {
                    let reason = "the issuer has no key that has signed it";
                    return Err(refuse(RefusalClass::Signature, reason).into());
                }
            }
            let may_ask = || issuer.is_due() || keys.is_some() && issuer.ask();
            if has_waited || !may_ask() {
                // The issuer may have a new key, and cannot say so yet.
                return Err(ExchangeError::IssuerAway {
                    issuer: settings.name.clone(),
                    retry_after: issuer.asks_in(),
                });
            }
            let slot = issuer.waits.try_acquire();
            let _slot = slot.map_err(|_| ExchangeError::Busy)?;
            drop(timeout(3 * FETCH_LIMIT, issuer.refresh()).await);
            has_waited = true;
        }
    }

    /// A permit to verify a token. Addresses with too many refusals share one.
    async fn permit(&self, from: Option<IpAddr>) -> Result<SemaphorePermit<'_>, ExchangeError> {
        if let Err(retry_after) = self.limiter.look(from, Instant::now()) {
            let permit = timeout(QUEUES_FOR, self.suspects.acquire()).await;
            let permit = permit.ok().and_then(Result::ok);
            return permit.ok_or(Refusal::TooMany { retry_after }.into());
        }
        let permit = timeout(QUEUES_FOR, self.verifications.acquire()).await;
        permit.ok().and_then(Result::ok).ok_or(ExchangeError::Busy)
    }
}

/// The API key for this audience that a token is for. A key that has expired, or was revoked since the token was issued, is for none.
pub(super) fn matching<'a>(
    ring: &'a KeyRing,
    issuer: &Issuer,
    audience: &str,
    token: &VerifiedToken,
    wants: Option<&str>,
    now: SystemTime,
) -> Result<(&'a KeyEntry, &'a ExchangeRules), TokenRefusal> {
    let mut wrong = Vec::new();
    for (key, rules) in ring.exchanging(&issuer.settings.name) {
        if wants.is_some_and(|name| *name != *key.name) || *rules.audience != *audience {
            continue;
        }
        match rules.check(&token.claims) {
            Ok(()) if key.is_expired(now) => wrong.push(format!("{}: it has expired", key.name)),
            Ok(()) if rules.sessions_after > Some(token.issued) => {
                wrong.push(format!("{}: iat is before sessions_after", key.name));
            }
            Ok(()) => return Ok((key, rules)),
            Err(claim) => wrong.push(format!("{}: {claim}", key.name)),
        }
    }
    wrong.truncate(10);
    let wrong = match wrong.as_slice() {
        [] => "none is for this issuer and name".to_owned(),
        wrong => format!("the first claims that differ are {}", wrong.join(", ")),
    };
    let reason = format!("subject {}: {wrong}", shown(&token.subject));
    Err(refuse(RefusalClass::NoKeyMatches, reason))
}
