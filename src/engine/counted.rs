//! How operations end, in the words in which they are counted.

use crate::{
    store::{
        StoreError,
        contract::{Release, Renewal},
    },
    telemetry::metrics::{Ended, Outcome},
};

use super::{AcquireError, Granted};

/// What an answer of the store is counted as.
pub(super) trait Counted {
    /// In which way it ended.
    fn ended(&self) -> Ended;
}

/// In which way a renewal or a release ended.
pub(super) fn ended<T: Counted>(answer: &Result<T, StoreError>) -> Ended {
    match answer {
        Ok(answer) => answer.ended(),
        Err(StoreError::Unavailable(_)) => Ended::Unavailable,
        Err(StoreError::Indeterminate(_)) => Ended::Unknown,
        Err(StoreError::ForeignData { .. } | StoreError::FenceExhausted) => Ended::Failed,
    }
}

/// In which way an acquire ended.
pub(super) fn outcome(answer: &Result<Granted, AcquireError>) -> Outcome {
    match answer {
        Ok(granted) if granted.delivery.is_replay() => Outcome::Again,
        Ok(_) => Outcome::Granted,
        Err(error) => failure(error),
    }
}

/// In which way an acquire ended that got no lock.
pub(super) fn failure(error: &AcquireError) -> Outcome {
    match error {
        AcquireError::Held { .. } => Outcome::Held,
        AcquireError::TooManyWaiters
        | AcquireError::Superseded
        | AcquireError::IdempotencyMismatch
        | AcquireError::IdempotencyExpired
        | AcquireError::Revoked
        | AcquireError::Draining => Outcome::Refused,
        AcquireError::Store(StoreError::Unavailable(_)) => Outcome::Unavailable,
        AcquireError::Store(StoreError::Indeterminate(_)) => Outcome::Unknown,
        AcquireError::Store(StoreError::ForeignData { .. } | StoreError::FenceExhausted) => {
            Outcome::Failed
        }
    }
}

// === impl Counted ===

impl Counted for Renewal {
    fn ended(&self) -> Ended {
        match self {
            Self::Renewed(_) => Ended::Done,
            Self::Adopted => Ended::Adopted,
            Self::Lost(_) => Ended::Lost,
        }
    }
}

impl Counted for Release {
    fn ended(&self) -> Ended {
        match self {
            Self::Released => Ended::Done,
            Self::Adopted => Ended::Adopted,
            Self::Lost(_) => Ended::Lost,
        }
    }
}
