//! Acquire several locks, all or none: the request, and what comes of it.

use std::time::Duration;

use crate::{
    auth::{Excess, LeaseSlot},
    engine::{AcquireError, AcquireRequest, Delivery},
    lock::{GroupNames, Lease, LockName, TokenHash},
    store::{StoreError, Unavailability},
};

/// What a caller asks for who wants several locks.
#[derive(Debug, Clone)]
pub struct GroupRequest {
    pub(super) names: GroupNames,
    /// One for each lock, in the order of the names. They differ in the lock and in the authorization only; the last has
    /// the idempotency key.
    pub(super) parts: Vec<AcquireRequest>,
}

/// Leases of several locks, with one token, on their way to their holder.
///
/// Dropped before [`Delivery::delivered`] all of them are given back.
#[derive(Debug)]
pub struct GrantedGroup {
    /// The leases, in the order of their names.
    pub leases: Vec<Lease>,
    /// The hash of their token.
    pub hash: TokenHash,
    /// How long the caller waited for all of them.
    pub waited: Duration,
    /// To be told when the leases have reached their holder.
    pub delivery: Delivery,
}

/// Why a group was not acquired. None of its locks is held for the caller.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct GroupAcquireError {
    /// The lock that could not be had; `None` if it is not about one.
    pub name: Option<LockName>,
    /// Why it could not.
    pub error: AcquireError,
}

// === impl GroupRequest ===

impl GroupRequest {
    /// A request for each of these locks, which `part` makes.
    pub fn new<E>(
        names: GroupNames,
        part: impl FnMut(&LockName) -> Result<AcquireRequest, E>,
    ) -> Result<Self, E> {
        let mut parts: Vec<_> = names.iter().map(part).collect::<Result<_, E>>()?;
        // One of them decides who has all, so that two requests under a key cannot have a part each.
        if let [others @ .., _last] = parts.as_mut_slice() {
            for other in others {
                other.idempotency_key = None;
            }
        }
        Ok(Self { names, parts })
    }

    /// The locks that are wanted.
    pub fn names(&self) -> &GroupNames {
        &self.names
    }

    /// The requests for each of them.
    pub fn parts(&self) -> &[AcquireRequest] {
        &self.parts
    }

    /// The part that has the idempotency key, if there is one.
    pub fn keyed(&self) -> &AcquireRequest {
        self.parts.last().expect("a group has at least 2 names")
    }

    /// A slot for each lease, if the API key may have only so many. A repeated request has the slots of the first.
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
    pub(super) fn of(name: &LockName, error: AcquireError) -> Self {
        let name = Some(name.clone());
        Self { name, error }
    }

    /// Whether the store gave no answer.
    pub(super) fn is_of_store(&self) -> bool {
        matches!(self.error, AcquireError::Store(_))
    }

    /// Whether an attempt with the same token was given back.
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
