//! Lets callers in by their keys.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::Instant};

use crate::{
    audit::ReloadedKeys,
    clock::Clock,
    config::AuthConfig,
    lock::{LockName, TokenHash},
};

use super::{
    Access, ApiKey, ApiKeyError, ApiKeyId, Charge, KeyEntry, KeyRing, Permission, Refusal,
    SealedSession, SessionSeal, address_limiter::AddressLimiter, leases::Leases, session::Session,
    tally::Tally,
};

/// Lets callers in by their keys, or everybody if there are none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Gate(Option<Arc<GateInner>>);

#[derive(Debug)]
struct GateInner {
    ring: watch::Sender<Arc<KeyRing>>,
    clock: Arc<dyn Clock>,
    limiter: AddressLimiter,
    seal: SessionSeal,
    session_ttl: Duration,
    /// By the name of the key.
    tallies: Mutex<HashMap<Arc<str>, Arc<Tally>>>,
    leases: Leases,
    /// Whether the keys are those of a file that has become invalid since.
    is_outdated: watch::Sender<bool>,
}

// === impl Gate ===

impl Gate {
    /// A gate that lets everybody in.
    pub fn open() -> Self {
        Self(None)
    }

    /// A gate that lets in who has one of these keys, or a session under this seal. `clock` decides
    /// which of them have expired.
    pub fn guarded(
        ring: KeyRing,
        seal: SessionSeal,
        config: &AuthConfig,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self(Some(Arc::new(GateInner {
            seal,
            session_ttl: config.session_ttl_ms.duration(),
            ring: watch::Sender::new(Arc::new(ring)),
            clock,
            limiter: AddressLimiter::new(config.max_refused_per_minute, Instant::now()),
            tallies: Mutex::default(),
            leases: Leases::default(),
            is_outdated: watch::Sender::new(false),
        })))
    }

    /// Whether it lets everybody in.
    pub fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Lets somebody in who shows this, from this address.
    pub fn admit(&self, presented: Option<&str>, from: Option<IpAddr>) -> Result<Access, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Access::ANYBODY);
        };
        let presented = presented.ok_or(Refusal::NoKey)?;
        self.find(guarded, presented)
            .map_err(|refusal| guarded.count(refusal, from))
    }

    /// Lets somebody in who has shown this key before, from this address. One that was never sealed
    /// here is a guess, and counted like a key that is not known; one that is over is not, because the
    /// page of an honest browser asks with it until it knows.
    pub fn resume(&self, sealed: &str, from: Option<IpAddr>) -> Result<Access, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Access::ANYBODY);
        };
        let session = guarded.seal.open(sealed);
        let session = session.ok_or_else(|| guarded.count(Refusal::NoSession, from))?;
        let ring = Arc::clone(&guarded.ring.borrow());
        match ring.with_secret(session.secret) {
            Some(key) if !guarded.is_over(session.until) && !guarded.is_expired(key) => {
                Ok(self.access(guarded, key, session.secret, Some(session.until)))
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Begins a session for somebody who was let in with a key. `None` for anybody at an open gate, and
    /// for who has only a session: it is not made longer.
    pub fn begin_session(&self, access: Access) -> Option<(Access, SealedSession)> {
        let guarded = self.0.as_ref()?;
        let secret = access.secret().filter(|_| !access.is_session())?;
        let session = Session {
            secret,
            until: guarded.clock.wall() + guarded.session_ttl,
        };
        let access = access.until(session.until);
        Some((access, guarded.seal.seal(&session)))
    }

    /// What is left until a time; `None` once it is over.
    pub(super) fn left(&self, until: SystemTime) -> Option<Duration> {
        let guarded = self.0.as_ref()?;
        let left = until.duration_since(guarded.clock.wall()).ok()?;
        (!left.is_zero()).then_some(left)
    }

    /// Somebody who shows this, if they would be let in. Nothing is counted.
    pub fn recognize(&self, presented: &str) -> Option<Access> {
        let guarded = self.0.as_ref()?;
        self.find(guarded, presented).ok()
    }

    /// Charges something to an address from which somebody has sent a token without a key. The limit
    /// is that of keys that are refused: both are guesses.
    pub fn charge(&self, from: Option<IpAddr>) -> Result<Charge, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Charge::default());
        };
        guarded
            .limiter
            .count(from, Instant::now())
            .map_err(|retry_after| Refusal::TooManyTokens { retry_after })?;
        Ok(Charge::to_address(self.clone(), from))
    }

    /// Takes a charge back.
    pub(super) fn refund(&self, from: Option<IpAddr>) {
        if let Some(guarded) = &self.0 {
            guarded.limiter.refund(from, Instant::now());
        }
    }

    /// What would be new if these keys were let in from now on.
    pub fn changes_from(&self, ring: &KeyRing) -> ReloadedKeys {
        let before = self.0.as_ref().map(|it| Arc::clone(&it.ring.borrow()));
        ring.changes_since(&before.unwrap_or_default())
    }

    /// From now on these keys are let in, and no others.
    pub fn replace(&self, ring: KeyRing) {
        let Some(guarded) = &self.0 else { return };
        let is_named = |name: &Arc<str>| ring.keys().iter().any(|key| key.name == *name);
        guarded.tallies().retain(|name, _| is_named(name));
        guarded.ring.send_replace(Arc::new(ring));
        guarded.is_outdated.send_replace(false);
    }

    /// The file has changed and cannot be used: the keys that were read before go on.
    pub fn mark_outdated(&self) {
        if let Some(guarded) = &self.0 {
            guarded.is_outdated.send_replace(true);
        }
    }

    /// Whether the keys are those of a file that has become invalid since.
    pub fn is_outdated(&self) -> bool {
        let guarded = self.0.as_ref();
        guarded.is_some_and(|guarded| *guarded.is_outdated.borrow())
    }

    /// A lease was renewed by somebody who has its token.
    pub fn lease_renewed(&self, name: &LockName, token: TokenHash, until: Instant) {
        if let Some(guarded) = &self.0 {
            guarded.leases.renewed(name, token, until);
        }
    }

    /// A lease has ended.
    pub fn lease_ended(&self, name: &LockName, token: TokenHash) {
        if let Some(guarded) = &self.0 {
            guarded.leases.ended(name, token);
        }
    }

    /// Whether a secret that was let in before may still do something.
    pub(super) fn still_permits(
        &self,
        secret: ApiKeyId,
        permission: Permission,
        name: Option<&LockName>,
    ) -> bool {
        let Some(guarded) = &self.0 else { return true };
        let ring = Arc::clone(&guarded.ring.borrow());
        ring.with_secret(secret)
            .is_some_and(|key| !guarded.is_expired(key) && key.permits(permission, name))
    }

    /// Ends when the keys have changed, or one of them has expired. Waits for ever at an open gate.
    pub(super) fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ring = self.0.as_ref().map(|guarded| guarded.ring.subscribe());
        async move {
            let changed = match &mut ring {
                Some(ring) => ring.changed().await.is_ok(),
                None => false,
            };
            if !changed {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Lets those who wait for a change look again if a key has expired since a time. Answers the
    /// time until which it has looked.
    pub(super) fn announce_expired(&self, since: SystemTime) -> SystemTime {
        let Some(guarded) = &self.0 else { return since };
        let now = guarded.clock.wall();
        let ring = Arc::clone(&guarded.ring.borrow());
        let keys = ring.keys().iter();
        if keys
            .clone()
            .any(|key| key.is_expired(now) && !key.is_expired(since))
        {
            guarded.ring.send_modify(|_| {});
        }
        now
    }

    pub(super) fn leases(&self) -> Option<&Leases> {
        self.0.as_ref().map(|guarded| &guarded.leases)
    }

    fn find(&self, guarded: &GateInner, presented: &str) -> Result<Access, Refusal> {
        let key = ApiKey::parse(presented).map_err(|error| match error {
            ApiKeyError::NotAKey => Refusal::NotAKey,
            ApiKeyError::Damaged => Refusal::Damaged,
        })?;
        let ring = Arc::clone(&guarded.ring.borrow());
        match ring.find(&key) {
            Some(entry) if !guarded.is_expired(entry) => {
                Ok(self.access(guarded, entry, key.id(), None))
            }
            _ => Err(Refusal::Unknown),
        }
    }

    fn access(
        &self,
        guarded: &GateInner,
        key: &Arc<KeyEntry>,
        secret: ApiKeyId,
        session_until: Option<SystemTime>,
    ) -> Access {
        let tally = Arc::clone(guarded.tallies().entry(Arc::clone(&key.name)).or_default());
        Access::with(Arc::clone(key), secret, self.clone(), tally, session_until)
    }
}

// === impl GateInner ===

impl GateInner {
    fn is_expired(&self, key: &KeyEntry) -> bool {
        key.is_expired(self.clock.wall())
    }

    fn is_over(&self, until: SystemTime) -> bool {
        until <= self.clock.wall()
    }

    /// Counts somebody who is refused. Who was refused too often learns only that.
    fn count(&self, refusal: Refusal, from: Option<IpAddr>) -> Refusal {
        match self.limiter.count(from, Instant::now()) {
            Ok(()) => refusal,
            Err(retry_after) => Refusal::TooMany { retry_after },
        }
    }

    fn tallies(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Arc<Tally>>> {
        self.tallies
            .lock()
            .expect("no code panics while it holds the tallies")
    }
}
