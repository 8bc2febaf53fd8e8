//! What a hold counts as among the limits of its API key.

use tokio::time::Instant;

use crate::{
    auth::{Access, LeaseSlot, LimitSlot},
    engine::{AcquireRequest, Engine, HoldEnd, HoldEvent, LossReason},
    http::problem::Problem,
    lock::{LockName, TokenHash},
};

use super::waiter_count::WaiterCount;

/// What a hold counts as: a stream, a lease, and, until it is granted, perhaps a waiter. Dropped, it
/// counts as nothing: the lease is released then.
pub(super) struct HoldCount {
    _stream: Option<LimitSlot>,
    waiter: Option<WaiterCount>,
    lease: LeaseSlot,
    token: Option<TokenHash>,
}

// === impl HoldCount ===

impl HoldCount {
    /// A hold that asks for a lock.
    pub(super) fn asking(
        engine: &Engine,
        caller: &Access,
        request: &AcquireRequest,
    ) -> Result<Self, Problem> {
        Ok(Self {
            _stream: caller.stream()?,
            waiter: Some(WaiterCount::of(engine, caller, request)?),
            lease: caller.lease(&request.name, request.idempotency_key.as_ref())?,
            token: None,
        })
    }

    /// A hold that goes on with a lease. It is not refused: nobody loses a lock to a limit.
    pub(super) fn adopting(caller: &Access, name: &LockName) -> Self {
        Self {
            _stream: caller.stream().unwrap_or_default(),
            waiter: None,
            lease: caller.adopted_lease(name),
            token: None,
        }
    }

    /// Counts what happens.
    pub(super) fn update(&mut self, event: &HoldEvent) {
        match event {
            HoldEvent::Queued(_) => {}
            HoldEvent::Granted(lease) => {
                if let Some(mut waiter) = self.waiter.take() {
                    waiter.finish();
                }
                let token = lease.token.hash();
                self.token = Some(token);
                self.lease
                    .extend_until(token, Instant::now() + lease.held.expires_in);
            }
            HoldEvent::Renewed(held) => {
                if let Some(token) = self.token {
                    self.lease
                        .extend_until(token, Instant::now() + held.expires_in);
                }
            }
            HoldEvent::Ended(end) => {
                self.waiter = None;
                if outlives(end) {
                    std::mem::take(&mut self.lease).keep();
                }
            }
        }
    }
}

/// Whether the lease goes on when its stream ends in this way.
fn outlives(end: &HoldEnd) -> bool {
    match end {
        HoldEnd::Draining { left } => left.is_some(),
        HoldEnd::Lost(LossReason::Adopted | LossReason::Revoked | LossReason::Failed) => true,
        HoldEnd::Lost(
            LossReason::Expired
            | LossReason::HoldLimit
            | LossReason::Ended
            | LossReason::Broken
            | LossReason::Unread,
        )
        | HoldEnd::Refused(_)
        | HoldEnd::Released => false,
    }
}
