//! Somebody who was let in, and what they may do.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, sleep};

use crate::lock::{CallerId, IdempotencyKey, LockName, NamePrefix, Ttl};

use super::{
    ApiKeyId, Authorization, Charge, Excess, Gate, KeyEntry, KeyLimits, LeaseSlot, LimitSlot,
    Permission, leases::Leases, tally::Tally,
};

/// Somebody who was let in: with a key, or, at a gateway without keys, anybody. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Access(Option<Authenticated>);

#[derive(Debug, Clone)]
struct Authenticated {
    key: Arc<KeyEntry>,
    secret: ApiKeyId,
    gate: Gate,
    tally: Arc<Tally>,
    /// When the session ends, if it is one.
    session_until: Option<SystemTime>,
}

// === impl Access ===

impl Access {
    /// Anybody, at a gateway without keys: everything is permitted.
    pub const ANYBODY: Self = Self(None);

    pub(super) fn with(
        key: Arc<KeyEntry>,
        secret: ApiKeyId,
        gate: Gate,
        tally: Arc<Tally>,
        session_until: Option<SystemTime>,
    ) -> Self {
        Self(Some(Authenticated {
            key,
            secret,
            gate,
            tally,
            session_until,
        }))
    }

    /// The same for a session that ends then.
    pub(super) fn until(self, end: SystemTime) -> Self {
        let session_until = Some(end);
        Self(self.0.map(|authenticated| Authenticated {
            session_until,
            ..authenticated
        }))
    }

    /// Which secret of the key was shown.
    pub(super) fn secret(&self) -> Option<ApiKeyId> {
        self.0.as_ref().map(|authenticated| authenticated.secret)
    }

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
        self.key().is_none_or(|key| key.permits(permission, name))
    }

    /// Whether it may see a lock, as the key was when it was shown: for a list.
    pub fn views(&self, name: &LockName) -> bool {
        self.permits(Permission::View, Some(name))
    }

    /// Whether it may see every lock whose name begins so.
    pub fn views_all(&self, begin: &NamePrefix) -> bool {
        self.key().is_none_or(|key| key.view.contains_all(begin))
    }

    /// Whether it may see a lock now: for a stream, which outlives changes of the keys file. False
    /// for every name once the key is gone.
    pub fn still_views(&self, name: &LockName) -> bool {
        self.still_permits(Permission::View, Some(name))
    }

    /// The same for any permission.
    pub fn still_permits(&self, permission: Permission, name: Option<&LockName>) -> bool {
        let Some(authenticated) = &self.0 else {
            return true;
        };
        authenticated.session_left() != Some(Duration::ZERO)
            && authenticated
                .gate
                .still_permits(authenticated.secret, permission, name)
    }

    /// Ends when it may be that less is permitted than before: for a stream, which must then look
    /// at [`Access::still_permits`]. Never ends for anybody.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let authenticated = self.0.as_ref();
        let left = authenticated.and_then(Authenticated::session_left);
        let changed = authenticated
            .map_or_else(Gate::open, |authenticated| authenticated.gate.clone())
            .changed();
        async move {
            match left {
                None => changed.await,
                Some(left) => tokio::select! {
                    () = changed => {}
                    () = sleep(left) => {}
                },
            }
        }
    }

    /// For how long a lock may be waited for or kept.
    pub fn authorization(&self, name: &LockName) -> Authorization {
        match &self.0 {
            None => Authorization::default(),
            Some(_) => Authorization::of(self.clone(), name.clone()),
        }
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

    /// Charges a request to the key that is not counted if its token is right: whoever sends wrong
    /// ones over and over pays for it with other requests.
    pub fn charge(&self) -> Charge {
        Charge::to_key(self.clone())
    }

    /// Counts a request that was carried out although it was not counted before.
    pub(super) fn force_count_request(&self) {
        if let Some(authenticated) = &self.0 {
            authenticated
                .tally
                .force_take(authenticated.key.limits.rate, Instant::now());
        }
    }

    /// Counts a request that may wait, for as long as the slot lives.
    pub fn waiter(&self) -> Result<Option<LimitSlot>, Excess> {
        let Some(authenticated) = &self.0 else {
            return Ok(None);
        };
        let most = authenticated.key.limits.max_waiters;
        let most = most.unwrap_or(KeyLimits::DEFAULT_LASTING);
        authenticated.tally.waiter(most).map(Some)
    }

    /// Counts a stream, for as long as the slot lives.
    pub fn stream(&self) -> Result<Option<LimitSlot>, Excess> {
        let Some(authenticated) = &self.0 else {
            return Ok(None);
        };
        let most = authenticated.key.limits.max_streams;
        let most = most.unwrap_or(KeyLimits::DEFAULT_LASTING);
        authenticated.tally.stream(most).map(Some)
    }

    /// Makes room for a lease that is asked for, under this idempotency key.
    pub fn lease(
        &self,
        name: &LockName,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<LeaseSlot, Excess> {
        let (Some(authenticated), Some(leases), Some(most)) = self.leases() else {
            return Ok(LeaseSlot::default());
        };
        let idempotency = idempotency_key.map(|key| key.hash(&self.id(), name));
        leases.ask(
            &authenticated.key.name,
            most,
            name,
            idempotency,
            Instant::now(),
        )
    }

    /// Room for a lease that somebody has already and goes on with here. There is always some:
    /// nobody loses a lock to a limit.
    pub fn adopted_lease(&self, name: &LockName) -> LeaseSlot {
        match self.leases() {
            (Some(authenticated), Some(leases), Some(_)) => {
                leases.adopt(&authenticated.key.name, name)
            }
            _ => LeaseSlot::default(),
        }
    }

    fn leases(&self) -> (Option<&Authenticated>, Option<&Leases>, Option<usize>) {
        let authenticated = self.0.as_ref();
        let leases = authenticated.and_then(|authenticated| authenticated.gate.leases());
        (
            authenticated,
            leases,
            authenticated.and_then(|authenticated| authenticated.key.limits.max_leases),
        )
    }
}

// === impl Authenticated ===

impl Authenticated {
    /// What is left of the session, if it is one. Nothing: it is over.
    fn session_left(&self) -> Option<Duration> {
        let until = self.session_until?;
        Some(self.gate.left(until).unwrap_or_default())
    }
}
