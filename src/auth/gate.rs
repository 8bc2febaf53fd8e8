//! The gate: admits callers by their API keys or sessions.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout},
};
use tracing::error;

use crate::{
    audit::ReloadedKeys,
    clock::Clock,
    config::AuthConfig,
    lock::{CallerId, IdempotencyHash, LockName, MetadataError, NamePrefix, Said, Ttl},
};

use super::{
    ApiKey, ApiKeyError, ApiKeyId, Excess, KeyEntry, KeyLimits, KeyRing, LeaseSlot, LimitSlot,
    Permission, Rate, RateReading, Refusal, SealedSession, SessionSeal,
    address_limiter::{AddressLimiter, Tally},
    exchanged_caller::ExchangedCaller,
    oidc::{ExchangedContent, ExchangedKey},
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
    pub(super) session_ttl: Duration,
    /// How much of its limits each API key has used, by the name of the key; and each caller, by its mark, of the limits for
    /// each caller.
    tallies: Mutex<HashMap<Arc<str>, Arc<Tally>>>,
    /// Whether the keys file has become invalid since the keys were read.
    is_outdated: watch::Sender<bool>,
    /// How many ID tokens may be verified at a time.
    pub(super) verifications: Semaphore,
    /// How many ID tokens from addresses with too many refusals may be verified at a time.
    pub(super) suspects: Semaphore,
    /// How many people from such addresses may sign in at a time.
    pub(super) suspect_sign_ins: Semaphore,
    /// The data directory that keeps the secret of exchanged keys, if no file is configured.
    directory: OnceLock<PathBuf>,
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
            verifications: Semaphore::new(MAX_VERIFICATIONS),
            suspects: Semaphore::new(1),
            suspect_sign_ins: Semaphore::new(MAX_VERIFICATIONS),
            directory: OnceLock::new(),
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
        let seal = guarded.seal.load();
        let Some(session) = seal.open(sealed) else {
            let person = seal.open_person(sealed);
            let person = person.ok_or_else(|| guarded.count(Refusal::NoSession, from))?;
            let admitted = guarded.admit_exchanged(person).ok();
            let admitted = admitted.filter(|access| !access.has_ended());
            return admitted.ok_or(Refusal::NoSession);
        };
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
        let mut tallies = guarded.tallies.lock();
        tallies.retain(|name, tally| is_named(name) || tally.is_in_use());
        drop(tallies);
        guarded.ring.send_replace(Arc::new(ring));
        guarded.is_outdated.send_replace(false);
        guarded.keep_exchanged();
    }

    /// Keeps the secret of exchanged keys in a data directory, as soon as there is an issuer.
    pub fn keep_exchanged_in(&self, directory: &Path) {
        if let Some(guarded) = &self.0 {
            guarded.directory.get_or_init(|| directory.to_owned());
            guarded.keep_exchanged();
        }
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
    /// Takes the secret of exchanged keys from the data directory, if there are issuers. Without it, the gateway serves,
    /// and exchanged keys end with the process.
    fn keep_exchanged(&self) {
        let Some(directory) = self.directory.get() else {
            return;
        };
        if self.ring.borrow().issuers().is_empty() {
            return;
        }
        match self.seal.load().of_directory(directory) {
            Ok(seal) => self.seal.store(Arc::new(seal)),
            Err(error) => error!(%error, "exchanged keys will end when this process ends"),
        }
    }

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
        let caller = ExchangedCaller::new(content, &key, &ring);
        let session_until = caller.content.person.is_some().then_some(caller.until);
        let admitted = Admitted::Exchanged(Arc::new(caller));
        Ok(self.access(&key, admitted, session_until))
    }

    fn access(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        admitted: Admitted,
        session_until: Option<SystemTime>,
    ) -> Access {
        let mut tallies = self.tallies.lock();
        let mut tally = |of: &Arc<str>| Arc::clone(tallies.entry(Arc::clone(of)).or_default());
        let own = match &admitted {
            Admitted::Exchanged(it) if key.per_caller != KeyLimits::default() => {
                Some(tally(&it.mark))
            }
            _ => None,
        };
        let tally = tally(&key.name);
        if tallies.len() > MAX_TALLIES {
            tallies.retain(|_, tally| tally.is_in_use());
        }
        Access(Some(Authenticated {
            key: Arc::clone(key),
            admitted,
            gate: Arc::clone(self),
            tally,
            own,
            session_until,
            keeps: false,
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
    /// The tally of this caller alone, if its API key has limits for each caller.
    own: Option<Arc<Tally>>,
    /// When the session ends, if the caller was admitted with a session.
    session_until: Option<SystemTime>,
    /// Whether the caller only keeps a lease, for which an exchanged key lasts longer.
    keeps: bool,
}

/// What a caller has sent to be admitted.
#[derive(Debug, Clone)]
enum Admitted {
    /// A secret of its API key, or a session that began with it.
    Secret(ApiKeyId),
    /// A key for which it has exchanged an ID token.
    Exchanged(Arc<ExchangedCaller>),
}

/// How many ID tokens may be verified at a time: a verification takes a fraction of a millisecond, and anybody may ask
/// for one.
const MAX_VERIFICATIONS: usize = 4;
/// How many tallies are kept of API keys and callers that have no lease, waiter or stream.
const MAX_TALLIES: usize = 20_000;
/// How far ahead of this gateway's clock an exchange may have been.
const MAX_AHEAD: Duration = Duration::from_mins(1);

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
        let until = authenticated.exchanged().map(|it| it.until);
        let expires_at = authenticated.key.expires_at;
        let ends = [authenticated.session_until, until, expires_at];
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
        let exchanged = self.0.as_ref().filter(|it| it.exchanged().is_some());
        exchanged.is_some_and(|it| it.session_left() == Some(Duration::ZERO))
    }

    /// Whether the caller has an exchanged key.
    pub fn is_exchanged(&self) -> bool {
        self.0.as_ref().is_some_and(|it| it.exchanged().is_some())
    }

    /// The URL of the issuer and the subject that a token of the caller has proved.
    pub fn proven(&self) -> Option<(&str, &str)> {
        let content = &self.0.as_ref()?.exchanged()?.content;
        Some((&content.issuer, &content.subject))
    }

    /// Adds to a lease what the API key declares of the caller: an owner wins over the owner that the caller names, which
    /// stays in the metadata. Fails if the metadata is too much together.
    pub fn declare(&self, said: &mut Said) -> Result<(), MetadataError> {
        let exchanged = self.0.as_ref().and_then(Authenticated::exchanged);
        exchanged.map_or(Ok(()), |it| it.declare(said))
    }

    /// The caller as people are shown it: with an API key the name of the key. `None` at a gateway without keys.
    pub fn name(&self) -> Option<&Arc<str>> {
        let it = self.0.as_ref()?;
        Some(it.exchanged().map_or(&it.key.name, |it| &it.label))
    }

    /// The mark of the caller ([`CallerId::mark`]), for every question whether it is the same caller that needs a text.
    /// `None` at a gateway without keys.
    pub fn mark(&self) -> Option<&Arc<str>> {
        let it = self.0.as_ref()?;
        Some(it.exchanged().map_or(&it.key.name, |it| &it.mark))
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
        let now = Instant::now();
        if let Some((own, limits)) = authenticated.own() {
            own.request(limits.rate, now)?;
        }
        let rate = authenticated.key.limits.rate;
        authenticated.tally.request(rate, now)
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
        let Some(it) = &self.0 else {
            return Ok(None);
        };
        let most = |limits: &KeyLimits| limits.max_waiters.unwrap_or(KeyLimits::DEFAULT_LASTING);
        let slot = it.tally.waiter(most(&it.key.limits))?;
        Ok(Some(match it.own() {
            None => slot,
            Some((own, limits)) => own.waiter(most(limits))?.within(slot),
        }))
    }

    /// Counts a stream against the key's limit of streams, until the returned slot is dropped.
    pub fn stream(&self) -> Result<Option<LimitSlot>, Excess> {
        let Some(it) = &self.0 else {
            return Ok(None);
        };
        let most = |limits: &KeyLimits| limits.max_streams.unwrap_or(KeyLimits::DEFAULT_LASTING);
        let slot = it.tally.stream(most(&it.key.limits))?;
        Ok(Some(match it.own() {
            None => slot,
            Some((own, limits)) => own.stream(most(limits))?.within(slot),
        }))
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

    /// The time left of the session or the exchanged key, if the caller has one; zero once it is over. A program that
    /// `keeps` a lease has an exchanged key for longer. A person has not, and can sign in again.
    fn session_left(&self) -> Option<Duration> {
        let until = match self.exchanged() {
            None => self.session_until?,
            Some(exchanged) if self.keeps && self.session_until.is_none() => {
                exchanged.content.renews_until()
            }
            Some(exchanged) => exchanged.until,
        };
        Some(self.gate.left(until).unwrap_or_default())
    }

    /// Whether the secret that was sent still grants a permission on a name; without a name, on any name.
    fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        self.still(|key| key.permissions.permits(permission, name))
    }

    /// Whether what was sent is still valid, and its key is such a key now.
    fn still(&self, is_such: impl FnOnce(&KeyEntry) -> bool) -> bool {
        let ring = Arc::clone(&self.gate.ring.borrow());
        let is_such = |key: &Arc<KeyEntry>| !self.gate.is_expired(key) && is_such(key);
        self.session_left() != Some(Duration::ZERO)
            && match &self.admitted {
                Admitted::Secret(secret) => ring.with_secret(*secret).is_some_and(is_such),
                Admitted::Exchanged(it) => it.entry(&ring).is_some_and(|key| is_such(&key)),
            }
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
        let (rate, now) = (self.key.limits.rate, Instant::now());
        self.tally.force_take(rate, now);
        if let Some((own, limits)) = self.own() {
            own.force_take(limits.rate, now);
        }
    }

    /// The tally of all callers of the API key, and that of this caller alone if it has limits; each with its limits.
    fn tallies(&self) -> impl Iterator<Item = (&Arc<Tally>, &KeyLimits)> {
        std::iter::once((&self.tally, &self.key.limits)).chain(self.own())
    }

    /// The tally of this caller alone, and its limits.
    fn own(&self) -> Option<(&Arc<Tally>, &KeyLimits)> {
        Some((self.own.as_ref()?, &self.key.per_caller))
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
    /// The right to have a lease kept, which lasts for longer than the exchanged key with which it was acquired.
    #[must_use]
    pub fn to_keep(mut self) -> Self {
        if let Some((authenticated, _)) = &mut self.0 {
            authenticated.keeps = true;
        }
        self
    }

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
        let (request, now) = (idempotency.map(|hash| (hash, name.clone())), Instant::now());
        let mut slot = None;
        for (tally, limits) in authenticated.tallies() {
            if let Some(most) = limits.max_leases {
                slot = Some(tally.leases.take(most, request.clone(), slot, now)?);
            }
        }
        Ok(slot)
    }

    /// Takes a slot for a lease that the caller has already and keeps here. There is always a slot, because a limit
    /// must not cost a holder its lock.
    pub fn adopted_slot(&self) -> Option<LeaseSlot> {
        let (authenticated, _) = self.0.as_ref()?;
        let limited = authenticated
            .tallies()
            .filter(|(_, limits)| limits.max_leases.is_some());
        limited.fold(None, |sum, (tally, _)| Some(tally.leases.adopt(sum)))
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
