//! Lets callers in by their keys.

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
    Permission, RateReading, Refusal, SealedSession, SessionSeal,
    address_limiter::{AddressLimiter, Tally},
    session::Session,
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
        let found = guarded.find(presented);
        found.map_err(|refusal| guarded.count(refusal, from))
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
            Some(key) if guarded.left(session.until).is_some() && !guarded.is_expired(key) => {
                Ok(guarded.access(key, session.secret, Some(session.until)))
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Begins a session for somebody who was let in with a key. `None` for anybody at an open gate, and
    /// for who has only a session: it is not made longer.
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

    /// Somebody who shows this, if they would be let in. Nothing is counted.
    pub fn recognize(&self, presented: &str) -> Option<Access> {
        let guarded = self.0.as_ref()?;
        guarded.find(presented).ok()
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
        Ok(Charge(Some(Payer::Address(Arc::clone(guarded), from))))
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
        guarded.tallies.lock().retain(|name, _| is_named(name));
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
}

// === impl GateInner ===

impl GateInner {
    fn is_expired(&self, key: &KeyEntry) -> bool {
        key.is_expired(self.clock.wall())
    }

    /// What is left until a time; `None` once it is over.
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

    /// Counts somebody who is refused. Who was refused too often learns only that.
    fn count(&self, refusal: Refusal, from: Option<IpAddr>) -> Refusal {
        match self.limiter.count(from, Instant::now()) {
            Ok(()) => refusal,
            Err(retry_after) => Refusal::TooMany { retry_after },
        }
    }
}

// === Access ===
//
// Somebody who was let in, and what they may do.

/// Somebody who was let in: with a key, or, at a gateway without keys, anybody. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Access(Option<Authenticated>);

#[derive(Debug, Clone)]
struct Authenticated {
    key: Arc<KeyEntry>,
    secret: ApiKeyId,
    gate: Arc<GateInner>,
    tally: Arc<Tally>,
    /// When the session ends, if it is one.
    session_until: Option<SystemTime>,
}

// === impl Access ===

impl Access {
    /// Anybody, at a gateway without keys: everything is permitted.
    pub const ANYBODY: Self = Self(None);

    /// Whether it was let in with a session and not with a key.
    pub fn is_session(&self) -> bool {
        let authenticated = self.0.as_ref();
        authenticated.is_some_and(|authenticated| authenticated.session_until.is_some())
    }

    /// When it ends, if it does: with its session or with its key, whichever is sooner.
    pub fn ends_at(&self) -> Option<SystemTime> {
        let authenticated = self.0.as_ref()?;
        let ends = [authenticated.session_until, authenticated.key.expires_at];
        ends.into_iter().flatten().min()
    }

    /// The scope of idempotency keys: the name of the key, so that a new secret changes nothing.
    pub fn id(&self) -> CallerId {
        match &self.0 {
            None => CallerId::ANONYMOUS,
            Some(authenticated) => CallerId::of_key(Arc::clone(&authenticated.key.name)),
        }
    }

    /// The name of the key.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.key().map(|key| &key.name)
    }

    /// The key, as it was when it was shown.
    pub fn key(&self) -> Option<&Arc<KeyEntry>> {
        self.0.as_ref().map(|authenticated| &authenticated.key)
    }

    /// Whether something is permitted on a name; without a name, whether it is on any.
    pub fn permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        self.key()
            .is_none_or(|key| key.permissions.permits(permission, name))
    }

    /// Whether it may see a lock, as the key was when it was shown: for a list.
    pub fn views(&self, name: &LockName) -> bool {
        self.permits(Permission::View, Some(name))
    }

    /// Whether something is permitted on every lock whose name begins so.
    pub fn permits_all(&self, permission: Permission, begin: &NamePrefix) -> bool {
        let names = |key: &Arc<KeyEntry>| key.permissions.names(permission).contains_all(begin);
        self.key().is_none_or(names)
    }

    /// Whether something is permitted now: for a stream, which outlives changes of the keys file. False for every name
    /// once the key is gone.
    pub fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        let authenticated = self.0.as_ref();
        authenticated.is_none_or(|it| it.still_permits(permission, name))
    }

    /// Ends when it may be that less is permitted than before: for a stream, which must then look
    /// at [`Access::still_permits`]. Never ends for anybody.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let changed = self.0.as_ref().map(Authenticated::changed);
        async move {
            match changed {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }
    }

    /// For how long a lock may be waited for or kept.
    pub fn authorization(&self, name: &LockName) -> Authorization {
        let authenticated = self.0.clone();
        Authorization(authenticated.map(|authenticated| (authenticated, name.clone())))
    }

    /// The longest TTL that it may ask for, if there is one.
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

    /// Counts so many more with a request that was let in: one that asks for several things. What the rate has not
    /// left for it later requests wait for.
    pub fn count_further_requests(&self, count: usize) {
        if let Some(authenticated) = &self.0 {
            (0..count).for_each(|_| authenticated.force_count_request());
        }
    }

    /// How much of its rate the key has used, if it has one.
    pub fn rate(&self) -> Option<RateReading> {
        let authenticated = self.0.as_ref()?;
        let rate = authenticated.key.limits.rate?;
        Some(authenticated.tally.rate_reading(rate))
    }

    /// Charges a request to the key that is not counted if its token is right: whoever sends wrong
    /// ones over and over pays for it with other requests.
    pub fn charge(&self) -> Charge {
        Charge(self.0.clone().map(Payer::Key))
    }

    /// Counts a request that may wait, for as long as the slot lives.
    pub fn waiter(&self) -> Result<Option<LimitSlot>, Excess> {
        let Some(Authenticated { key, tally, .. }) = &self.0 else {
            return Ok(None);
        };
        let most = key.limits.max_waiters.unwrap_or(KeyLimits::DEFAULT_LASTING);
        tally.waiter(most).map(Some)
    }

    /// Counts a stream, for as long as the slot lives.
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
    /// What is left of the session, if it is one. Nothing: it is over.
    fn session_left(&self) -> Option<Duration> {
        let until = self.session_until?;
        Some(self.gate.left(until).unwrap_or_default())
    }

    /// Whether the secret that was shown still permits something on a name; without a name, on any.
    fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        let ring = Arc::clone(&self.gate.ring.borrow());
        let key = ring.with_secret(self.secret);
        self.session_left() != Some(Duration::ZERO)
            && key.is_some_and(|key| {
                !self.gate.is_expired(key) && key.permissions.permits(permission, name)
            })
    }

    /// Ends when the keys have changed, one of them has expired, or the session is over.
    fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let (left, mut ring) = (self.session_left(), self.gate.ring.subscribe());
        async move {
            // No error: the sender lives as long as anybody who asks.
            match left {
                None => drop(ring.changed().await),
                Some(left) => drop(timeout(left, ring.changed()).await),
            }
        }
    }

    /// Counts a request that was carried out although it was not counted before.
    fn force_count_request(&self) {
        let rate = self.key.limits.rate;
        self.tally.force_take(rate, Instant::now());
    }
}

// === Charge ===
//
// A request that is charged to somebody, unless it turns out to be right.

/// A request with a token that may be wrong: charged to whoever sent it unless it was no guess, also
/// when its sender hangs up before the answer.
#[derive(Debug, Default)]
#[must_use = "dropped at once, it is charged at once"]
pub struct Charge(Option<Payer>);

#[derive(Debug)]
enum Payer {
    /// A key. It pays at the end: a renewal that is right must not cost it anything meanwhile.
    Key(Authenticated),
    /// An address. It has paid, so that it cannot have more under way than it may have wrong.
    Address(Arc<GateInner>, Option<IpAddr>),
}

// === impl Charge ===

impl Charge {
    /// Charges a token that was a guess. A token that was right, or of which that is unknown, costs nothing.
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
// For how long somebody may have what was asked for.

/// For how long somebody may wait for a lock, or have it kept: until the key is gone, its secret is
/// taken out of it, it has expired, or it may no longer acquire that lock.
#[derive(Debug, Clone, Default)]
pub struct Authorization(Option<(Authenticated, LockName)>);

// === impl Authorization ===

impl Authorization {
    /// Whether it still stands.
    pub fn is_valid(&self) -> bool {
        let authorized = self.0.as_ref();
        authorized.is_none_or(|(it, name)| it.still_permits(Permission::Acquire, Some(name)))
    }

    /// The longest TTL that goes with it, if there is one.
    pub fn max_ttl(&self) -> Option<Ttl> {
        self.0.as_ref()?.0.key.limits.max_ttl
    }

    /// A slot for a lease that is asked for under this idempotency key; `None` if the API key may have any number.
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

    /// A slot for a lease that the caller has already and goes on with here. There always is one: nobody loses a
    /// lock to a limit.
    pub fn adopted_slot(&self) -> Option<LeaseSlot> {
        let (authenticated, _) = self.0.as_ref()?;
        authenticated.key.limits.max_leases?;
        Some(authenticated.tally.leases.adopt())
    }

    /// Ends when it no longer stands; within seconds of an expiry, at once after a change of the
    /// keys. Safe to drop and call again.
    pub async fn revoked(&self) {
        let Some((authenticated, _)) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            // Before the look at it: a change in between is not missed. Boxed, so that callers without a key
            // do not pay for its size.
            let changed = Box::pin(authenticated.changed());
            if !self.is_valid() {
                return;
            }
            changed.await;
        }
    }
}
