//! What is told to those who are not let in.

use std::time::Duration;

use http::HeaderValue;

use crate::{
    auth::{Access, Excess, Permission, Refusal},
    engine::{AcquireError, GroupAcquireError, ReleaseError},
    lock::{HeldLease, LockName, Ttl},
    store::contract::Loss,
};

use super::{Extra, Problem, ProblemCode as Code, from_engine::MAY_BE_REPEATED};

/// What a request without a key is told to send (RFC 6750).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"latchgate\"");
/// The same for a request with a key that is of no use.
const INVALID: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"latchgate\", error=\"invalid_token\"");

/// After how long to ask again for what may be free any moment.
const SOON: Duration = Duration::from_secs(2);

// === impl Problem ===

impl Problem {
    /// 403: the same whether the lock exists or not.
    pub(in crate::http) fn forbidden(permission: Permission, lock: Option<&LockName>) -> Self {
        let permission = permission.row().name;
        let detail = match lock {
            Some(name) => {
                format!("The API key has no permission `{permission}` for the lock `{name}`.")
            }
            None => format!("The API key has no permission `{permission}`."),
        };
        Self::new(Code::Forbidden, detail)
    }

    /// Why a lease was not released, for a caller without an API key: it is not told whether the lock is held
    /// by another.
    pub(in crate::http) fn for_unauthenticated(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(Loss::HeldByAnother | Loss::Free) => Self::new(
                Code::LeaseLost,
                format!("This token does not hold the lock.{MAY_BE_REPEATED}"),
            ),
            // It was the token of a lease once.
            ReleaseError::Lost(loss @ Loss::Broken { .. }) => loss.into(),
            ReleaseError::Store(error) => error.into(),
        }
    }

    /// Why a lock was not acquired, for one who may know who holds it or may not.
    pub(in crate::http) fn for_acquire(mut error: AcquireError, sees_holder: bool) -> Self {
        if let (AcquireError::Held { contention, .. }, false) = (&mut error, sees_holder)
            && let Some(holder) = &mut contention.holder
        {
            holder
                .leases_mut()
                .iter_mut()
                .for_each(HeldLease::hide_details);
        }
        error.into()
    }

    /// Why several locks were not acquired: which of them is in the way. `sees_holder` says of it whether the caller
    /// may know who holds it.
    pub(in crate::http) fn for_group(
        GroupAcquireError { name, error }: GroupAcquireError,
        sees_holder: impl FnOnce(&LockName) -> bool,
    ) -> Self {
        let Some(name) = name else {
            return error.into();
        };
        let mut problem = Self::for_acquire(error, sees_holder(&name));
        if let Extra::Locked(locked) = &mut problem.extra {
            locked.name = Some(name);
        } else {
            let detail = format!("{} It is about the lock `{name}`.", problem.detail);
            problem.detail = detail.into();
        }
        problem
    }

    fn too_many(code: Code, detail: &'static str, retry_after: Duration) -> Self {
        let ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
        Self::new(code, detail).with(Extra::RetryAfter(ms))
    }

    /// 403 if a caller may not ask for so long a TTL.
    pub(in crate::http) fn check_ttl(ttl: Ttl, caller: &Access) -> Result<(), Self> {
        match caller.max_ttl() {
            Some(cap) if ttl > cap => {
                let (ttl, cap) = (ttl.as_millis(), cap.as_millis());
                let detail =
                    format!("`ttl_ms` is {ttl} ms; the API key may ask for at most {cap} ms.");
                Err(Self::new(Code::LimitExceeded, detail))
            }
            _ => Ok(()),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (challenge, detail) = match refusal {
            Refusal::NoKey => (
                CHALLENGE,
                "The request has no API key. Send it as `Authorization: Bearer KEY`.",
            ),
            Refusal::NotAKey => (
                INVALID,
                "The header `Authorization` does not have an API key of this gateway. It is \
                 `Bearer KEY`, and a key begins with `lgk_`.",
            ),
            Refusal::Damaged => (
                INVALID,
                "The API key was cut off or mistyped: its checksum does not fit. A key has 64 \
                 characters.",
            ),
            Refusal::Unknown => (
                INVALID,
                "The API key is not known, or it has expired. Ask the operator for a new one.",
            ),
            Refusal::NoSession => (
                INVALID,
                "The session has ended. Sign in again, or send an API key as `Authorization: Bearer \
                 KEY`.",
            ),
            Refusal::TooMany { retry_after } => {
                let detail =
                    "Too many requests with API keys that are not known came from this address.";
                return Self::too_many(Code::RateLimited, detail, retry_after);
            }
            Refusal::TooManyTokens { retry_after } => {
                let detail = "Too many releases without an API key came from this address with \
                     tokens that hold no lock. Nothing happened. Send an API key with the release.";
                return Self::too_many(Code::RateLimited, detail, retry_after);
            }
        };
        Self::new(Code::Unauthorized, detail).with(Extra::Challenge(challenge))
    }
}

impl From<Excess> for Problem {
    fn from(excess: Excess) -> Self {
        let (code, detail, retry_after) = match excess {
            Excess::Requests { retry_after } => (
                Code::RateLimited,
                "The API key has sent more requests than it may. Nothing happened. Renew and \
                 release are not limited.",
                retry_after,
            ),
            Excess::Streams => (
                Code::RateLimited,
                "The API key has as many streams at this gateway as it may. Nothing happened.",
                SOON,
            ),
            Excess::Waiters => (
                Code::TooManyWaiters,
                "As many requests with the API key wait at this gateway as may. Nothing happened.",
                SOON,
            ),
            Excess::Leases { retry_after } => (
                Code::TooManyLeases,
                "The API key has as many leases from this gateway as it may, or is asking for them. \
                 Nothing happened.",
                retry_after,
            ),
        };
        Self::too_many(code, detail, retry_after)
    }
}
