//! The gate: admits callers by their API keys or sessions.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout},
};

use crate::{
    audit::ReloadedKeys,
    clock::Clock,
    config::AuthConfig,
    lock::{
        CallerId, IdempotencyHash, LockName, Metadata, MetadataError, NamePrefix, Owner, Said, Ttl,
    },
};

use super::{
    ApiKey, ApiKeyError, ApiKeyId, Excess, KeyEntry, KeyLimits, KeyRing, LeaseSlot, LimitSlot,
    Permission, Rate, RateReading, Refusal, SealedSession, SessionSeal,
    address_limiter::{AddressLimiter, Tally},
    oidc::{ExchangedContent, ExchangedKey, Rendered},
    session::Session,
};

/// Admits callers by their API keys, or all callers if there are no keys. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Gate(pub(super) Option<Arc<GateInner>>);

#[derive(Debug)]
pub(super) struct GateInner {
    pub(super) ring: watch::Sender<Arc<KeyRing>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limiter: AddressLimiter,
    pub(super) seal: ArcSwap<SessionSeal>,
    session_ttl: Duration,
    /// How much of its limits each API key has used, by the name of the key.
    tallies: Mutex<HashMap<Arc<str>, Arc<Tally>>>,
    /// Whether the keys file has become invalid since the keys were read.
    is_outdated: watch::Sender<bool>,
    pub(super) exchanges: Exchanges,
}

/// Bounds the work for ID tokens, which callers without a key send.
#[derive(Debug)]
pub(super) struct Exchanges {
    /// How many tokens may be verified at a time.
    pub(super) verifications: Semaphore,
    /// How many tokens from addresses with too many refusals may be verified at a time.
    pub(super) suspects: Semaphore,
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
            seal: ArcSwap::from_pointee(seal),
            session_ttl: config.session_ttl_ms.duration(),
            ring: watch::Sender::new(Arc::new(ring)),
            clock,
            limiter: AddressLimiter::new(config.max_refused_per_minute, Instant::now()),
            tallies: Mutex::default(),
            is_outdated: watch::Sender::new(false),
            exchanges: Exchanges {
                verifications: Semaphore::new(MAX_VERIFICATIONS),
                suspects: Semaphore::new(1),
            },
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
        found.map_err(|refusal| match refusal {
            // Once, the exchanged key was right: it is no guess.
            Refusal::ExchangeOver => refusal,
            _ => guarded.count(refusal, from),
        })
    }

    /// Admits a caller by its sealed session. A session that was never sealed with this secret is a guess, and
    /// counted like an unknown key. An expired session is not counted, because the page of an honest browser sends it
    /// until it learns of the end.
    pub fn resume(&self, sealed: &str, from: Option<IpAddr>) -> Result<Access, Refusal> {
        let Some(guarded) = &self.0 else {
            return Ok(Access::ANYBODY);
        };
        let session = guarded.seal.load().open(sealed);
        let session = session.ok_or_else(|| guarded.count(Refusal::NoSession, from))?;
        let ring = Arc::clone(&guarded.ring.borrow());
        match ring.with_secret(session.secret) {
            Some(key) if guarded.left(session.until).is_some() && !guarded.is_expired(key) => {
                Ok(guarded.access(key, Admitted::Secret(session.secret), Some(session.until)))
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Begins a session for a caller that was admitted with a key. `None` if the gate admits all callers, and for a
    /// caller that has only a session or an exchanged key, because neither is prolonged.
    pub fn begin_session(&self, access: Access) -> Option<(Access, SealedSession)> {
        let guarded = self.0.as_ref()?;
        let mut authenticated = access.0.filter(|it| it.session_until.is_none())?;
        let Admitted::Secret(secret) = authenticated.admitted else {
            return None;
        };
        let session = Session {
            secret,
            until: guarded.clock.wall() + guarded.session_ttl,
        };
        authenticated.session_until = Some(session.until);
        Some((
            Access(Some(authenticated)),
            guarded.seal.load().seal(&session),
        ))
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
    pub fn replace(&self, mut ring: KeyRing) {
        let Some(guarded) = &self.0 else { return };
        ring.keep_issuers(&guarded.ring.borrow());
        let is_named = |name: &Arc<str>| ring.keys().iter().any(|key| key.name == *name);
        guarded.tallies.lock().retain(|name, _| is_named(name));
        guarded.ring.send_replace(Arc::new(ring));
        guarded.is_outdated.send_replace(false);
    }

    /// Replaces the secrets that seal sessions and exchanged keys.
    pub fn replace_seal(&self, seal: SessionSeal) {
        if let Some(guarded) = &self.0 {
            guarded.seal.store(Arc::new(seal));
        }
    }

    /// The names of the issuers whose keys could not be fetched when they were due.
    pub fn failing_issuers(&self) -> Vec<Box<str>> {
        let Some(guarded) = &self.0 else {
            return Vec::new();
        };
        let ring = guarded.ring.borrow();
        let failing = ring.issuers().iter().filter(|issuer| issuer.is_failing());
        failing.map(|issuer| issuer.settings.name.clone()).collect()
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
        let key = match ApiKey::parse(presented) {
            Ok(key) => key,
            Err(ApiKeyError::NotAKey) => return self.find_exchanged(presented),
            Err(ApiKeyError::Damaged) => return Err(Refusal::Damaged),
        };
        let ring = Arc::clone(&self.ring.borrow());
        let entry = ring.find(&key).filter(|entry| !self.is_expired(entry));
        let entry = entry.ok_or(Refusal::Unknown)?;
        Ok(self.access(entry, Admitted::Secret(key.id()), None))
    }

    /// Admits a caller by its exchanged key. After the end of that key the caller may renew, until a day after the
    /// exchange.
    fn find_exchanged(self: &Arc<Self>, presented: &str) -> Result<Access, Refusal> {
        if !presented.starts_with(ExchangedKey::PREFIX) {
            return Err(Refusal::NotAKey);
        }
        let content = ExchangedKey::open(presented, &self.seal.load().exchanged);
        self.admit_exchanged(content.ok_or(Refusal::Unknown)?)
    }

    pub(super) fn admit_exchanged(
        self: &Arc<Self>,
        content: ExchangedContent,
    ) -> Result<Access, Refusal> {
        // A key that was sealed ahead, by a gateway whose clock is wrong, would live too long.
        let is_ahead = content.at() > self.clock.wall() + MAX_AHEAD;
        if is_ahead || self.left(content.renews_until()).is_none() {
            return Err(Refusal::ExchangeOver);
        }
        let ring = Arc::clone(&self.ring.borrow());
        let key = ring
            .with_exchanged(&content)
            .filter(|key| !self.is_expired(key));
        let key = key.ok_or(Refusal::ExchangeOver)?;
        let session = key.exchange.as_ref().map(|rules| rules.session);
        let caller = ExchangedCaller::new(content, session.unwrap_or_default());
        Ok(self.access(&key, Admitted::Exchanged(Arc::new(caller)), None))
    }

    fn access(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        admitted: Admitted,
        session_until: Option<SystemTime>,
    ) -> Access {
        let mut tallies = self.tallies.lock();
        let tally = tallies.entry(Arc::clone(&key.name)).or_default();
        Access(Some(Authenticated {
            key: Arc::clone(key),
            admitted,
            gate: Arc::clone(self),
            tally: Arc::clone(tally),
            session_until,
        }))
    }

    /// Counts a refusal for an address. If the address has too many refusals, the answer says only that.
    pub(super) fn count(&self, refusal: Refusal, from: Option<IpAddr>) -> Refusal {
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
    admitted: Admitted,
    gate: Arc<GateInner>,
    tally: Arc<Tally>,
    /// When the session ends, if the caller was admitted with a session.
    session_until: Option<SystemTime>,
}

/// What a caller has sent to be admitted.
#[derive(Debug, Clone)]
enum Admitted {
    /// A secret of its API key, or a session that began with it.
    Secret(ApiKeyId),
    /// A key for which it has exchanged an ID token.
    Exchanged(Arc<ExchangedCaller>),
}

/// A caller with an exchanged key.
#[derive(Debug)]
struct ExchangedCaller {
    content: ExchangedContent,
    /// When the key ends for everything but renewals: as it was sealed, or sooner if its API key says so now.
    until: SystemTime,
    id: CallerId,
    label: Arc<str>,
    mark: Arc<str>,
}

/// How many ID tokens may be verified at a time: a verification takes a fraction of a millisecond, and anybody may ask
/// for one.
const MAX_VERIFICATIONS: usize = 4;
/// How far ahead of this gateway's clock an exchange may have been.
const MAX_AHEAD: Duration = Duration::from_mins(1);
/// The metadata entry with the owner that a caller has named, if its API key declares another.
const SAID_OWNER: &str = "said_owner";

// === impl ExchangedCaller ===

impl ExchangedCaller {
    fn new(content: ExchangedContent, session: Duration) -> Self {
        let ExchangedContent {
            name,
            issuer,
            subject,
            workload,
            ..
        } = &content;
        let id = CallerId::of_subject(name, issuer, subject, workload);
        Self {
            until: content.until().min(content.at() + session),
            label: id.label().unwrap_or_default(),
            mark: id.mark().unwrap_or_default(),
            id,
            content,
        }
    }
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
        let exchanged = authenticated.exchanged().map(|it| it.until);
        let ends = [
            authenticated.session_until,
            exchanged,
            authenticated.key.expires_at,
        ];
        ends.into_iter().flatten().min()
    }

    /// Who the caller is: with an API key the name of the key, so that a new secret changes nothing.
    pub fn id(&self) -> CallerId {
        match &self.0 {
            None => CallerId::ANONYMOUS,
            Some(authenticated) => match authenticated.exchanged() {
                None => CallerId::of_key(Arc::clone(&authenticated.key.name)),
                Some(exchanged) => exchanged.id.clone(),
            },
        }
    }

    /// Whether the caller has an exchanged key that has ended, so that it may only renew and release.
    pub fn has_ended(&self) -> bool {
        let authenticated = self.0.as_ref();
        authenticated.is_some_and(|it| {
            it.exchanged()
                .is_some_and(|exchanged| it.gate.left(exchanged.until).is_none())
        })
    }

    /// Whether the caller has an exchanged key.
    pub fn is_exchanged(&self) -> bool {
        self.0.as_ref().is_some_and(|it| it.exchanged().is_some())
    }

    /// Adds to a lease what the API key declares of the caller: an owner wins over the owner that the caller names, which
    /// stays in the metadata. Fails if the metadata is too much together.
    pub fn declare(&self, said: &mut Said) -> Result<(), MetadataError> {
        let Some(exchanged) = self.0.as_ref().and_then(Authenticated::exchanged) else {
            return Ok(());
        };
        let Rendered {
            owner, metadata, ..
        } = &exchanged.content.rendered;
        // Claims that make no owner must not leave the choice to the caller.
        let owner = owner.as_ref().and_then(|owner| {
            let label = exchanged.label.get(..Owner::MAX_CHARS);
            let label = label.unwrap_or(&exchanged.label);
            Owner::new(owner).or_else(|_| Owner::new(label)).ok()
        });
        if owner.is_none() && metadata.is_empty() {
            return Ok(());
        }
        let entries = said
            .metadata
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut entries: BTreeMap<_, _> = entries.collect();
        if let Some(owner) = owner
            && let Some(named) = said.owner.replace(owner)
            && said.owner.as_ref() != Some(&named)
        {
            entries.insert(SAID_OWNER.to_owned(), named.as_str().to_owned());
        }
        entries.extend(metadata.clone());
        said.metadata = Metadata::new(entries)?;
        Ok(())
    }

    /// The caller as people are shown it: with an API key the name of the key. `None` at a gateway without keys.
    pub fn name(&self) -> Option<&Arc<str>> {
        let authenticated = self.0.as_ref()?;
        Some(
            authenticated
                .exchanged()
                .map_or(&authenticated.key.name, |it| &it.label),
        )
    }

    /// The mark of the caller ([`CallerId::mark`]), for every question whether it is the same caller that needs a text.
    /// `None` at a gateway without keys.
    pub fn mark(&self) -> Option<&Arc<str>> {
        let authenticated = self.0.as_ref()?;
        Some(
            authenticated
                .exchanged()
                .map_or(&authenticated.key.name, |it| &it.mark),
        )
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
        authenticated.is_none_or(|it| it.still_permits(permission, name, false))
    }

    /// Whether a permission is granted now on every lock.
    pub fn still_permits_all(&self, permission: Permission) -> bool {
        let on_all = |key: &KeyEntry| {
            let names = key.permissions.names(permission);
            names.contains_all(&NamePrefix::default())
        };
        let authenticated = self.0.as_ref();
        authenticated.is_none_or(|it| it.still(false, on_all))
    }

    /// The returned future ends when the caller's permissions may have been reduced: a stream must then check
    /// [`Access::still_permits`]. Never ends at a gateway without keys.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let changed = self.0.as_ref().map(|it| it.changed(false));
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
        Authorization {
            authorized: authenticated.map(|authenticated| (authenticated, name.clone())),
            keeps: false,
        }
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
    /// The caller, if it has an exchanged key.
    fn exchanged(&self) -> Option<&ExchangedCaller> {
        match &self.admitted {
            Admitted::Secret(_) => None,
            Admitted::Exchanged(exchanged) => Some(exchanged),
        }
    }

    /// The time left of the session or the exchanged key, if the caller has one; zero once it is over. Whoever `keeps` a
    /// lease has an exchanged key for longer.
    fn session_left(&self, keeps: bool) -> Option<Duration> {
        let until = match self.exchanged() {
            None => self.session_until?,
            Some(exchanged) if keeps => exchanged.content.renews_until(),
            Some(exchanged) => exchanged.until,
        };
        Some(self.gate.left(until).unwrap_or_default())
    }

    /// Whether the secret that was sent still grants a permission on a name; without a name, on any name.
    fn still_permits(&self, permission: Permission, name: Option<&LockName>, keeps: bool) -> bool {
        self.still(keeps, |key| key.permissions.permits(permission, name))
    }

    /// Whether what was sent is still valid, and its key is such a key now.
    fn still(&self, keeps: bool, is_such: impl FnOnce(&KeyEntry) -> bool) -> bool {
        let ring = Arc::clone(&self.gate.ring.borrow());
        let is_such = |key: &Arc<KeyEntry>| !self.gate.is_expired(key) && is_such(key);
        self.session_left(keeps) != Some(Duration::ZERO)
            && match &self.admitted {
                Admitted::Secret(secret) => ring.with_secret(*secret).is_some_and(is_such),
                Admitted::Exchanged(it) => ring
                    .with_exchanged(&it.content)
                    .is_some_and(|key| is_such(&key)),
            }
    }

    /// The returned future ends when the keys have changed, one of the keys has expired, or the session is over.
    fn changed(&self, keeps: bool) -> impl Future<Output = ()> + Send + use<> {
        let (left, mut ring) = (self.session_left(keeps), self.gate.ring.subscribe());
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
pub struct Authorization {
    authorized: Option<(Authenticated, LockName)>,
    /// Whether the caller has a lease, and no longer waits for it.
    keeps: bool,
}

// === impl Authorization ===

impl Authorization {
    /// The right to have a lease kept, which lasts for longer than the exchanged key with which it was acquired.
    #[must_use]
    pub fn to_keep(self) -> Self {
        Self {
            keeps: true,
            ..self
        }
    }

    /// Whether the caller is still authorized.
    pub fn is_valid(&self) -> bool {
        let authorized = self.authorized.as_ref();
        authorized
            .is_none_or(|(it, name)| it.still_permits(Permission::Acquire, Some(name), self.keeps))
    }

    /// The longest TTL that the caller may ask for, if there is a limit.
    pub fn max_ttl(&self) -> Option<Ttl> {
        self.authorized.as_ref()?.0.key.limits.max_ttl
    }

    /// Takes a slot for a lease that is requested under this idempotency key; `None` if the API key has no limit of
    /// leases.
    pub fn lease_slot(
        &self,
        idempotency: Option<IdempotencyHash>,
    ) -> Result<Option<LeaseSlot>, Excess> {
        let Some((authenticated, name)) = &self.authorized else {
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
        let (authenticated, _) = self.authorized.as_ref()?;
        authenticated.key.limits.max_leases?;
        Some(authenticated.tally.leases.adopt())
    }

    /// Waits until the caller is no longer authorized: within seconds of an expiry, at once after a change of the
    /// keys. The future may be dropped and the method called again.
    pub async fn revoked(&self) {
        let Some((authenticated, _)) = &self.authorized else {
            return std::future::pending().await;
        };
        loop {
            // The task subscribes to changes of the keys before the check, so that no change is missed. The future is
            // boxed, so that callers without a key do not pay for the size.
            let changed = Box::pin(authenticated.changed(self.keeps));
            if !self.is_valid() {
                return;
            }
            changed.await;
        }
    }
}
