//! How operations end, in the words in which they are counted.

use crate::{
    store::{
        StoreError,
        contract::{Release, Renewal},
    },
    telemetry::metrics::{AcquireOutcome, LeaseOutcome},
};

use super::{AcquireError, Granted};

/// What an answer of the store is counted as.
pub(super) trait MetricOutcome {
    /// In which way it ended.
    fn outcome(&self) -> LeaseOutcome;
}

/// In which way a renewal or a release ended.
pub(super) fn lease_outcome<T: MetricOutcome>(answer: &Result<T, StoreError>) -> LeaseOutcome {
    match answer {
        Ok(answer) => answer.outcome(),
        Err(StoreError::Unavailable(_)) => LeaseOutcome::Unavailable,
        Err(StoreError::Indeterminate(_)) => LeaseOutcome::Unknown,
        Err(StoreError::ForeignData { .. } | StoreError::FenceExhausted) => LeaseOutcome::Failed,
    }
}

/// In which way an acquire ended.
pub(super) fn acquire_outcome(answer: &Result<Granted, AcquireError>) -> AcquireOutcome {
    match answer {
        Ok(granted) if granted.delivery.is_replay() => AcquireOutcome::Again,
        Ok(_) => AcquireOutcome::Granted,
        Err(error) => failure_outcome(error),
    }
}

/// In which way an acquire ended that got no lock.
pub(super) fn failure_outcome(error: &AcquireError) -> AcquireOutcome {
    match error {
        AcquireError::Held { .. } => AcquireOutcome::Held,
        AcquireError::TooManyWaiters
        | AcquireError::Superseded
        | AcquireError::IdempotencyMismatch
        | AcquireError::IdempotencyExpired
        | AcquireError::Revoked
        | AcquireError::Draining => AcquireOutcome::Refused,
        AcquireError::Store(StoreError::Unavailable(_)) => AcquireOutcome::Unavailable,
        AcquireError::Store(StoreError::Indeterminate(_)) => AcquireOutcome::Unknown,
        AcquireError::Store(StoreError::ForeignData { .. } | StoreError::FenceExhausted) => {
            AcquireOutcome::Failed
        }
    }
}

// === impl MetricOutcome ===

impl MetricOutcome for Renewal {
    fn outcome(&self) -> LeaseOutcome {
        match self {
            Self::Renewed(_) => LeaseOutcome::Done,
            Self::Adopted => LeaseOutcome::Adopted,
            Self::Lost(_) => LeaseOutcome::Lost,
        }
    }
}

impl MetricOutcome for Release {
    fn outcome(&self) -> LeaseOutcome {
        match self {
            Self::Released => LeaseOutcome::Done,
            Self::Adopted => LeaseOutcome::Adopted,
            Self::Lost(_) => LeaseOutcome::Lost,
        }
    }
}
