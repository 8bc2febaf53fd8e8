//! The exchange of an ID token for a key, and the task that keeps the keys of issuers.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{sleep, timeout};
use tracing::info;

use crate::lifecycle::Lifecycle;

use super::{
    Access, Gate, KeyEntry, KeyRing, Refusal,
    gate::GateInner,
    oidc::{
        ExchangedKey, FETCH_LIMIT, IdToken, Issuer, Keys, RefusalClass, TokenRefusal, Verification,
        VerifiedToken, refresh, refuse,
    },
};

/// A key for which an ID token was exchanged.
#[derive(Debug)]
pub struct Exchanged {
    /// The caller that the token names.
    pub access: Access,
    /// The key.
    pub key: ExchangedKey,
    /// The name of the API key that admits the caller.
    pub name: Arc<str>,
    /// The URL of the issuer.
    pub issuer: Box<str>,
    /// The subject of the token.
    pub subject: String,
    /// How long the key lives.
    pub lives: Duration,
}

/// Why an ID token was not exchanged.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The token is refused.
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    /// Too many tokens and API keys from the address were refused.
    #[error(transparent)]
    Refused(Refusal),
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

// === impl Gate ===

impl Gate {
    /// Exchanges an ID token for a key: of the first API key in the keys file that it matches, or of the API key with the
    /// name that the program `wants`. Refusals count for the address; a valid token is accepted beyond that limit.
    pub async fn exchange(
        &self,
        token: &str,
        wants: Option<&str>,
        from: Option<IpAddr>,
    ) -> Result<Exchanged, ExchangeError> {
        let Some(guarded) = &self.0 else {
            let reason = "this gateway has no API keys";
            return Err(refuse(RefusalClass::NoKeyMatches, reason).into());
        };
        let exchanged = guarded.exchange(token, wants).await;
        exchanged.map_err(|error| match error {
            ExchangeError::Token(_) => match guarded.count(Refusal::NotAKey, from) {
                too_many @ Refusal::TooMany { .. } => ExchangeError::Refused(too_many),
                _ => error,
            },
            error => error,
        })
    }

    /// Keeps the keys of all issuers up to date until the gateway stops.
    pub async fn keep_issuers(self, lifecycle: Lifecycle) {
        let Some(guarded) = &self.0 else { return };
        let mut changes = guarded.ring.subscribe();
        loop {
            let ring = Arc::clone(&changes.borrow_and_update());
            for issuer in ring.issuers().iter().filter(|issuer| issuer.begin_fetch()) {
                lifecycle.spawn_background(refresh(Arc::clone(issuer)));
            }
            let has_issuers = ring.issuers().iter().any(|issuer| !issuer.is_pinned());
            tokio::select! {
                () = lifecycle.stopped() => return,
                // The gate owns the sender, and lives as long as this task.
                _ = changes.changed() => {}
                () = guarded.exchanges.asked.notified() => {}
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
    ) -> Result<Exchanged, ExchangeError> {
        let token = IdToken::parse(text)?;
        let ring = Arc::clone(&self.ring.borrow());
        let issuer = ring
            .issuers()
            .iter()
            .find(|it| *it.settings.url == *token.issuer());
        let issuer = issuer.ok_or_else(|| {
            refuse(
                RefusalClass::NoKeyMatches,
                format!("no issuer has the url {:.200?}", token.issuer()),
            )
        })?;
        let now = self.clock.wall();
        let verified = self.verify(&token, issuer, now).await?;
        let subject = verified.subject.clone();
        let key = matching(&ring, issuer, &verified, wants)?;
        let rules = key
            .exchange
            .as_deref()
            .expect("only keys with rules are searched");
        let content = rules.exchange(&key.name, issuer, verified, now)?;
        let sealed = ExchangedKey::seal(&content, &self.seal.load().exchanged);
        let sealed = sealed.ok_or_else(|| {
            refuse(
                RefusalClass::NoKeyMatches,
                "owner, metadata and names are too long for a key of 3 KiB",
            )
        })?;
        let access = self.admit_exchanged(content).map_err(|_| {
            // The API key has expired, or `sessions_after` is ahead.
            refuse(
                RefusalClass::NoKeyMatches,
                format!("the API key {:?} has ended", key.name),
            )
        })?;
        info!(key = %key.name, issuer = &*issuer.settings.name, subject = %subject.escape_debug(), "an ID token was exchanged");
        Ok(Exchanged {
            access,
            key: sealed,
            name: Arc::clone(&key.name),
            issuer: issuer.settings.url.clone(),
            subject,
            lives: rules.session,
        })
    }

    /// Verifies a token with the keys of its issuer, and waits for keys if they may be new.
    async fn verify(
        &self,
        token: &IdToken<'_>,
        issuer: &Issuer,
        now: SystemTime,
    ) -> Result<VerifiedToken, ExchangeError> {
        let settings = &issuer.settings;
        let away = |retry_after| ExchangeError::IssuerAway {
            issuer: settings.name.clone(),
            retry_after,
        };
        // Subscribed before the keys are looked at, so that no fetch is missed.
        let mut fetches = issuer.fetches();
        let mut may_wait = true;
        loop {
            match issuer.keys() {
                Keys::Known(keys) => {
                    let permit = self
                        .exchanges
                        .verifications
                        .try_acquire()
                        .map_err(|_| ExchangeError::Busy)?;
                    let verified = token.verify(&keys, &settings.url, &settings.audience, now)?;
                    drop(permit);
                    match verified {
                        Verification::Verified(token) => return Ok(token),
                        Verification::UnknownKid if may_wait && issuer.ask() => {}
                        // The issuer may have a new key, and cannot say so.
                        Verification::UnknownKid if issuer.is_failing() => {
                            return Err(away(PERIOD));
                        }
                        Verification::UnknownKid => {
                            let reason = "the issuer has no key of its kid";
                            return Err(refuse(RefusalClass::Signature, reason).into());
                        }
                    }
                }
                Keys::Coming if may_wait => {}
                Keys::Coming => return Err(away(PERIOD)),
                Keys::Away(retry_after) => return Err(away(retry_after)),
            }
            let _slot = self
                .exchanges
                .waits
                .try_acquire()
                .map_err(|_| ExchangeError::Busy)?;
            self.exchanges.asked.notify_one();
            // A fetch has two requests, each with this limit.
            drop(timeout(2 * FETCH_LIMIT, fetches.changed()).await);
            may_wait = false;
        }
    }
}

/// The API key that a token is for.
fn matching<'a>(
    ring: &'a KeyRing,
    issuer: &Issuer,
    token: &VerifiedToken,
    wants: Option<&str>,
) -> Result<&'a Arc<KeyEntry>, TokenRefusal> {
    let mut wrong = Vec::new();
    for key in ring.keys() {
        let Some(rules) = key
            .exchange
            .as_deref()
            .filter(|it| *it.issuer == *issuer.settings.name)
        else {
            continue;
        };
        if wants.is_some_and(|name| *name != *key.name) {
            continue;
        }
        match rules.check(&token.claims) {
            Ok(()) => return Ok(key),
            Err(claim) => wrong.push(format!("{}: {claim}", key.name)),
        }
    }
    wrong.truncate(10);
    let wrong = match wrong.as_slice() {
        [] => "none is for this issuer and name".to_owned(),
        wrong => format!("the first claims that differ are {}", wrong.join(", ")),
    };
    let reason = format!("subject {:.200?}: {wrong}", token.subject);
    Err(refuse(RefusalClass::NoKeyMatches, reason))
}
