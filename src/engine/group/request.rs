//! A request to acquire several locks, all or none, and its outcome.

use std::time::Duration;

use crate::{
    auth::{Excess, LeaseSlot},
    engine::{AcquireError, AcquireRequest, Delivery},
    lock::{GroupNames, Lease, LockName, TokenHash},
    store::{StoreError, Unavailability},
};

/// One request to acquire several locks, all or none.
#[derive(Debug, Clone)]
pub struct GroupRequest {
    pub(super) names: GroupNames,
    /// One request for each lock, in the order of the names. The requests differ in the lock, its sharing and the
    /// authorization only; the last request has the idempotency key.
    pub(super) parts: Vec<AcquireRequest>,
}

/// Leases of several locks, with one token, on their way to their holder.
///
/// If this value is dropped before [`Delivery::delivered`], all leases are released.
#[derive(Debug)]
pub struct GrantedGroup {
    /// The leases of the group, in the order of their lock names.
    pub leases: Vec<Lease>,
    /// The hash of the token of all these leases.
    pub hash: TokenHash,
    /// How long the caller waited for all of the locks.
    pub waited: Duration,
    /// The delivery guard, which must be told when the leases have reached their holder.
    pub delivery: Delivery,
}

/// Why a group was not acquired. None of its locks is held for the caller.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct GroupAcquireError {
    /// The lock that could not be acquired; `None` if the error is not about a single lock.
    pub name: Option<LockName>,
    /// Why that lock, or the whole group, could not be acquired.
    pub error: AcquireError,
}

// === impl GroupRequest ===

impl GroupRequest {
    /// Makes a request for several locks; `part` makes the request for each of them.
    pub fn new<E>(
        names: GroupNames,
        part: impl FnMut(&LockName) -> Result<AcquireRequest, E>,
    ) -> Result<Self, E> {
        let mut parts: Vec<_> = names.iter().map(part).collect::<Result<_, E>>()?;
        // Only the last lock has the key: its lease decides which request has the group, so that two requests under
        // one key cannot have a part each.
        if let [others @ .., _last] = parts.as_mut_slice() {
            for other in others {
                other.idempotency_key = None;
            }
        }
        Ok(Self { names, parts })
    }

    /// The names of the requested locks.
    pub fn names(&self) -> &GroupNames {
        &self.names
    }

    /// The requests for the single locks, in the order of the names.
    pub fn parts(&self) -> &[AcquireRequest] {
        &self.parts
    }

    /// The request for the last lock, which has the idempotency key, if there is one.
    pub fn keyed(&self) -> &AcquireRequest {
        self.parts.last().expect("a group has at least 2 names")
    }

    /// Takes a slot for each lease, if the API key has a limit. A repeated request has the slots of the first
    /// request.
    pub(super) fn lease_slots(&self) -> Result<Vec<Option<LeaseSlot>>, Excess> {
        let keyed = self.keyed();
        let key = keyed.idempotency_key.as_ref();
        let idempotency = key.map(|key| key.hash(&keyed.caller, &keyed.name));
        let slots = self.parts.iter();
        slots
            .map(|part| part.authorization.lease_slot(idempotency))
            .collect()
    }
}

// === impl GroupAcquireError ===

impl GroupAcquireError {
    pub(super) fn new(name: &LockName, error: AcquireError) -> Self {
        let name = Some(name.clone());
        Self { name, error }
    }

    /// Whether the store did not answer, or could not carry out a command.
    pub(super) fn is_of_store(&self) -> bool {
        matches!(self.error, AcquireError::Store(_))
    }

    /// Whether an attempt with the same token was released as undelivered.
    pub(super) fn is_withdrawn(&self) -> bool {
        let withdrawn = StoreError::Unavailable(Unavailability::Withdrawn);
        matches!(&self.error, AcquireError::Store(error) if *error == withdrawn)
    }
}

impl From<StoreError> for GroupAcquireError {
    fn from(error: StoreError) -> Self {
        Self {
            name: None,
            error: error.into(),
        }
    }
}
