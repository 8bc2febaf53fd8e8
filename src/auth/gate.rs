//! The gate: admits callers by their API keys or sessions.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    audit::ReloadedKeys,
    clock::Clock,
    config::AuthConfig,
    lock::{CallerId, IdempotencyHash, LockName, NamePrefix, Ttl},
};

use super::{
    ApiKey, ApiKeyError, ApiKeyId, Excess, KeyEntry, KeyLimits, KeyRing, LeaseSlot, LimitSlot,
    Permission, Rate, RateReading, Refusal, SealedSession, SessionSeal,
    address_limiter::{AddressLimiter, Tally},
    session::Session,
};

/// Admits callers by their API keys, or all callers if there are no keys. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Gate(Option<Arc<GateInner>>);

#[derive(Debug)]
struct GateInner {
    ring: watch::Sender<Arc<KeyRing>>,
    clock: Arc<dyn Clock>,
    limiter: AddressLimiter,
    seal: SessionSeal,
    session_ttl: Duration,
    /// How much of its limits each API key has used, by the name of the key.
    tallies: Mutex<HashMap<Arc<str>, Arc<Tally>>>,
    /// Whether the keys file has become invalid since the keys were read.
    is_outdated: watch::Sender<bool>,
}

// === impl Gate ===

impl Gate {
    /// A gate that admits all callers.
    pub fn open() -> Self {
        Self(None)
    }

    /// A gate that admits callers with one of these keys, or with a session under this seal. `clock` decides which
    /// keys and sessions have expired.
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
            is_outdated: watch::Sender::new(false),
        })))
    }

    /// Whether the gate admits all callers.
    pub fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Admits a caller by the API key it has sent, or counts the refusal for its address.
    pub fn admit(&self, presented: Option<&str>, from: Option<IpAddr>) -> Result<Access, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Access::ANYBODY);
        };
        let presented = presented.ok_or(Refusal::NoKey)?;
        let found = guarded.find(presented);
        found.map_err(|refusal| guarded.count(refusal, from))
    }

    /// Admits a caller by its sealed session. A session that was never sealed with this secret is a guess, and
    /// counted like an unknown key. An expired session is not counted, because the page of an honest browser sends it
    /// until it learns of the end.
    pub fn resume(&self, sealed: &str, from: Option<IpAddr>) -> Result<Access, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Access::ANYBODY);
        };
        let session = guarded.seal.open(sealed);
        let session = session.ok_or_else(|| guarded.count(Refusal::NoSession, from))?;
        let ring = Arc::clone(&guarded.ring.borrow());
        match ring.with_secret(session.secret) {
            Some(key) if guarded.left(session.until).is_some() && !guarded.is_expired(key) => {
                Ok(guarded.access(key, session.secret, Some(session.until)))
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Begins a session for a caller that was admitted with a key. `None` if the gate admits all callers, and for a
    /// caller that has only a session, because a session is not prolonged.
    pub fn begin_session(&self, access: Access) -> Option<(Access, SealedSession)> {
        let guarded = self.0.as_ref()?;
        let mut authenticated = access.0.filter(|it| it.session_until.is_none())?;
        let session = Session {
            secret: authenticated.secret,
            until: guarded.clock.wall() + guarded.session_ttl,
        };
        authenticated.session_until = Some(session.until);
        Some((Access(Some(authenticated)), guarded.seal.seal(&session)))
    }

    /// The access that a caller with this API key would get, if any. No refusal is counted.
    pub fn recognize(&self, presented: &str) -> Option<Access> {
        let guarded = self.0.as_ref()?;
        guarded.find(presented).ok()
    }

    /// Charges the address of a caller that has sent a token without a key. The limit is shared with refused keys,
    /// because both are guesses.
    pub fn charge(&self, from: Option<IpAddr>) -> Result<Charge, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Charge::default());
        };
        guarded
            .limiter
            .count(from, Instant::now())
            .map_err(|retry_after| Refusal::TooManyTokens { retry_after })?;
        Ok(Charge(Some(Payer::Address(Arc::clone(guarded), from))))
    }

    /// The keys that would be added, removed or changed if these keys replaced the current keys.
    pub fn changes_from(&self, ring: &KeyRing) -> ReloadedKeys {
        let before = self.0.as_ref().map(|it| Arc::clone(&it.ring.borrow()));
        ring.changes_since(&before.unwrap_or_default())
    }

    /// Replaces the keys: from now on only callers with the new keys are admitted.
    pub fn replace(&self, ring: KeyRing) {
        let Some(guarded) = &self.0 else { return };
        let is_named = |name: &Arc<str>| ring.keys().iter().any(|key| key.name == *name);
        guarded.tallies.lock().retain(|name, _| is_named(name));
        guarded.ring.send_replace(Arc::new(ring));
        guarded.is_outdated.send_replace(false);
    }

    /// Records that the keys file has changed and cannot be used: the gate keeps the keys that were read before.
    pub fn mark_outdated(&self) {
        if let Some(guarded) = &self.0 {
            guarded.is_outdated.send_replace(true);
        }
    }

    /// Whether the keys file has become invalid since the keys were read.
    pub fn is_outdated(&self) -> bool {
        let guarded = self.0.as_ref();
        guarded.is_some_and(|guarded| *guarded.is_outdated.borrow())
    }

    /// Notifies streams and waiters if a key has expired after `since`, so that they check their permissions. Returns
    /// the time up to which expired keys were announced.
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
}

// === impl GateInner ===

impl GateInner {
    fn is_expired(&self, key: &KeyEntry) -> bool {
        key.is_expired(self.clock.wall())
    }

    /// The time left until `until`, by the clock of this gate; `None` once that time has come.
    fn left(&self, until: SystemTime) -> Option<Duration> {
        let left = until.duration_since(self.clock.wall()).ok()?;
        (!left.is_zero()).then_some(left)
    }

    fn find(self: &Arc<Self>, presented: &str) -> Result<Access, Refusal> {
        let key = ApiKey::parse(presented).map_err(|error| match error {
            ApiKeyError::NotAKey => Refusal::NotAKey,
            ApiKeyError::Damaged => Refusal::Damaged,
        })?;
        let ring = Arc::clone(&self.ring.borrow());
        let entry = ring.find(&key).filter(|entry| !self.is_expired(entry));
        let entry = entry.ok_or(Refusal::Unknown)?;
        Ok(self.access(entry, key.id(), None))
    }

    fn access(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        secret: ApiKeyId,
        session_until: Option<SystemTime>,
    ) -> Access {
        let mut tallies = self.tallies.lock();
        let tally = tallies.entry(Arc::clone(&key.name)).or_default();
        Access(Some(Authenticated {
            key: Arc::clone(key),
            secret,
            gate: Arc::clone(self),
            tally: Arc::clone(tally),
            session_until,
        }))
    }

    /// Counts a refusal for an address. If the address has too many refusals, the answer says only that.
    fn count(&self, refusal: Refusal, from: Option<IpAddr>) -> Refusal {
        match self.limiter.count(from, Instant::now()) {
            Ok(()) => refusal,
            Err(retry_after) => Refusal::TooMany { retry_after },
        }
    }
}

// === Access ===
//
// A caller that was admitted, and its permissions.

/// A caller that was admitted: with a key, or, at a gateway without keys, any caller. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Access(Option<Authenticated>);

#[derive(Debug, Clone)]
struct Authenticated {
    key: Arc<KeyEntry>,
    secret: ApiKeyId,
    gate: Arc<GateInner>,
    tally: Arc<Tally>,
    /// When the session ends, if the caller was admitted with a session.
    session_until: Option<SystemTime>,
}

// === impl Access ===

impl Access {
    /// Any caller of a gateway without keys: everything is permitted.
    pub const ANYBODY: Self = Self(None);

    /// Whether the caller was admitted with a session and not with a key.
    pub fn is_session(&self) -> bool {
        let authenticated = self.0.as_ref();
        authenticated.is_some_and(|authenticated| authenticated.session_until.is_some())
    }

    /// When the caller's access ends: with its session or with its key, whichever is sooner. `None` if neither ends.
    pub fn ends_at(&self) -> Option<SystemTime> {
        let authenticated = self.0.as_ref()?;
        let ends = [authenticated.session_until, authenticated.key.expires_at];
        ends.into_iter().flatten().min()
    }

    /// The scope of the caller's idempotency keys: the name of its API key, so that a new secret changes nothing.
    pub fn id(&self) -> CallerId {
        match &self.0 {
            None => CallerId::ANONYMOUS,
            Some(authenticated) => CallerId::of_key(Arc::clone(&authenticated.key.name)),
        }
    }

    /// The name of the caller's API key; `None` at a gateway without keys.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.key().map(|key| &key.name)
    }

    /// The caller's API key, as it was when the caller was admitted.
    pub fn key(&self) -> Option<&Arc<KeyEntry>> {
        self.0.as_ref().map(|authenticated| &authenticated.key)
    }

    /// Whether a permission is granted on a lock name; without a name, whether it is granted on any name.
    pub fn permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        self.key()
            .is_none_or(|key| key.permissions.permits(permission, name))
    }

    /// Whether the caller may see a lock in a list, by its key as it was when the caller was admitted.
    pub fn views(&self, name: &LockName) -> bool {
        self.permits(Permission::View, Some(name))
    }

    /// Whether a permission is granted on every lock whose name begins with `begin`.
    pub fn permits_all(&self, permission: Permission, begin: &NamePrefix) -> bool {
        let names = |key: &Arc<KeyEntry>| key.permissions.names(permission).contains_all(begin);
        self.key().is_none_or(names)
    }

    /// Whether a permission is granted now: for a stream, which outlives changes of the keys file. False for every
    /// name once the key is gone.
    pub fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        let authenticated = self.0.as_ref();
        authenticated.is_none_or(|it| it.still_permits(permission, name))
    }

    /// Whether a permission is granted now on every lock.
    pub fn still_permits_all(&self, permission: Permission) -> bool {
        let all = NamePrefix::default();
        let on_all = |key: &KeyEntry| key.permissions.names(permission).contains_all(&all);
        self.0.as_ref().is_none_or(|it| it.still(on_all))
    }

    /// The returned future ends when the caller's permissions may have been reduced: a stream must then check
    /// [`Access::still_permits`]. Never ends at a gateway without keys.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let changed = self.0.as_ref().map(Authenticated::changed);
        async move {
            match changed {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }
    }

    /// The caller's right to wait for this lock or to keep it, for checks while it waits or keeps it.
    pub fn authorization(&self, name: &LockName) -> Authorization {
        let authenticated = self.0.clone();
        Authorization(authenticated.map(|authenticated| (authenticated, name.clone())))
    }

    /// The longest TTL that the caller may ask for, if there is a limit.
    pub fn max_ttl(&self) -> Option<Ttl> {
        self.key().and_then(|key| key.limits.max_ttl)
    }

    /// Counts a request against the rate of the key.
    pub fn count_request(&self) -> Result<(), Excess> {
        let Some(authenticated) = &self.0 else {
            return Ok(());
        };
        authenticated
            .tally
            .request(authenticated.key.limits.rate, Instant::now())
    }

    /// Counts a check of a fencing token, of which there may be so many a second, and as many at once after a pause.
    pub fn count_check(&self, per_second: u64) -> Result<(), Excess> {
        let per_second = per_second as f64;
        let rate = Rate {
            per_second,
            burst: per_second,
        };
        let tally = self.0.as_ref().map(|authenticated| &authenticated.tally);
        tally.map_or(Ok(()), |tally| tally.check(rate, Instant::now()))
    }

    /// Counts `count` more requests for a request that asks for several locks. The request was admitted already, so a
    /// rate that is exceeded delays only later requests.
    pub fn count_further_requests(&self, count: usize) {
        if let Some(authenticated) = &self.0 {
            (0..count).for_each(|_| authenticated.force_count_request());
        }
    }

    /// How much of its rate the key has left, if the key has a rate.
    pub fn rate(&self) -> Option<RateReading> {
        let authenticated = self.0.as_ref()?;
        let rate = authenticated.key.limits.rate?;
        Some(authenticated.tally.rate_reading(rate))
    }

    /// Makes the charge for a request with a lock token: a right token costs nothing, and a wrong one counts against
    /// the rate of the key, so that a caller that guesses has fewer other requests.
    pub fn charge(&self) -> Charge {
        Charge(self.0.clone().map(Payer::Key))
    }

    /// Counts a request that may wait against the key's limit of waiters, until the returned slot is dropped.
    pub fn waiter(&self) -> Result<Option<LimitSlot>, Excess> {
        let Some(Authenticated { key, tally, .. }) = &self.0 else {
            return Ok(None);
        };
        let most = key.limits.max_waiters.unwrap_or(KeyLimits::DEFAULT_LASTING);
        tally.waiter(most).map(Some)
    }

    /// Counts a stream against the key's limit of streams, until the returned slot is dropped.
    pub fn stream(&self) -> Result<Option<LimitSlot>, Excess> {
        let Some(Authenticated { key, tally, .. }) = &self.0 else {
            return Ok(None);
        };
        let most = key.limits.max_streams.unwrap_or(KeyLimits::DEFAULT_LASTING);
        tally.stream(most).map(Some)
    }
}

// === impl Authenticated ===

impl Authenticated {
    /// The time left of the session, if the caller has one; zero once the session is over.
    fn session_left(&self) -> Option<Duration> {
        let until = self.session_until?;
        Some(self.gate.left(until).unwrap_or_default())
    }

    /// Whether the secret that was sent still grants a permission on a name; without a name, on any name.
    fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        self.still(|key| key.permissions.permits(permission, name))
    }

    /// Whether the secret that was sent is still valid, and its key is such a key now.
    fn still(&self, is_such: impl FnOnce(&KeyEntry) -> bool) -> bool {
        let ring = Arc::clone(&self.gate.ring.borrow());
        let key = ring.with_secret(self.secret);
        self.session_left() != Some(Duration::ZERO)
            && key.is_some_and(|key| !self.gate.is_expired(key) && is_such(key))
    }

    /// The returned future ends when the keys have changed, one of the keys has expired, or the session is over.
    fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let (left, mut ring) = (self.session_left(), self.gate.ring.subscribe());
        async move {
            // Waiting for a change of the keys cannot fail: the gate owns the sender, and lives as long as this
            // caller.
            match left {
                None => drop(ring.changed().await),
                Some(left) => drop(timeout(left, ring.changed()).await),
            }
        }
    }

    /// Counts a request that was carried out before it could be refused.
    fn force_count_request(&self) {
        let rate = self.key.limits.rate;
        self.tally.force_take(rate, Instant::now());
    }
}

// === Charge ===
//
// The charge for a request with a token that may be a guess.

/// The charge for a request with a token that may be wrong. The sender pays unless the token was no guess, also if
/// the sender hangs up before the answer.
#[derive(Debug, Default)]
#[must_use = "dropping the charge collects it"]
pub struct Charge(Option<Payer>);

#[derive(Debug)]
enum Payer {
    /// The request counts against the rate of the API key at the end, so that a renewal with a right token never uses
    /// up the rate.
    Key(Authenticated),
    /// The request was counted against the limit of the address in advance, so that the address cannot send more
    /// guesses at once than the limit allows.
    Address(Arc<GateInner>, Option<IpAddr>),
}

// === impl Charge ===

impl Charge {
    /// Ends the charge: a guess is charged. A token that was right, or may have been right, costs nothing.
    pub fn settle(mut self, is_guess: bool) {
        if !is_guess && let Some(Payer::Address(gate, from)) = self.0.take() {
            gate.limiter.refund(from, Instant::now());
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(Payer::Key(authenticated)) = &self.0 {
            authenticated.force_count_request();
        }
    }
}

// === Authorization ===
//
// How long a caller may wait for a lock or keep it.

/// The caller's right to wait for a lock, or to have its lease kept. The right ends when the API key is gone or has
/// expired, the secret is removed from the key, or the key may no longer acquire that lock.
#[derive(Debug, Clone, Default)]
pub struct Authorization(Option<(Authenticated, LockName)>);

// === impl Authorization ===

impl Authorization {
    /// Whether the caller is still authorized.
    pub fn is_valid(&self) -> bool {
        let authorized = self.0.as_ref();
        authorized.is_none_or(|(it, name)| it.still_permits(Permission::Acquire, Some(name)))
    }

    /// The longest TTL that the caller may ask for, if there is a limit.
    pub fn max_ttl(&self) -> Option<Ttl> {
        self.0.as_ref()?.0.key.limits.max_ttl
    }

    /// Takes a slot for a lease that is requested under this idempotency key; `None` if the API key has no limit of
    /// leases.
    pub fn lease_slot(
        &self,
        idempotency: Option<IdempotencyHash>,
    ) -> Result<Option<LeaseSlot>, Excess> {
        let Some((authenticated, name)) = &self.0 else {
            return Ok(None);
        };
        let Some(most) = authenticated.key.limits.max_leases else {
            return Ok(None);
        };
        let request = idempotency.map(|hash| (hash, name.clone()));
        let account = &authenticated.tally.leases;
        account.take(most, request, Instant::now()).map(Some)
    }

    /// Takes a slot for a lease that the caller has already and keeps here. There is always a slot, because a limit
    /// must not cost a holder its lock.
    pub fn adopted_slot(&self) -> Option<LeaseSlot> {
        let (authenticated, _) = self.0.as_ref()?;
        authenticated.key.limits.max_leases?;
        Some(authenticated.tally.leases.adopt())
    }

    /// Waits until the caller is no longer authorized: within seconds of an expiry, at once after a change of the
    /// keys. The future may be dropped and the method called again.
    pub async fn revoked(&self) {
        let Some((authenticated, _)) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            // The task subscribes to changes of the keys before the check, so that no change is missed. The future is
            // boxed, so that callers without a key do not pay for the size.
            let changed = Box::pin(authenticated.changed());
            if !self.is_valid() {
                return;
            }
            changed.await;
        }
    }
}
