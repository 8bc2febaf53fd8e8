//! The kinds of facts: a grant, a renewal, an end and the like, each with the data that metrics, events and history
//! need of it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    engine::{Actor, LossReason, history::RecordedLease, leases::RegisteredLease, loss::ABANDONED},
    lock::{FencingToken, HeldLease, Lease, Mode, OrderNumber, Owner, ReleaseRequest},
    store::{
        contract::{Attempt, Loss, QueuePosition},
        history::EndedLease,
    },
    telemetry::metrics::SeenBy,
};

/// One thing that has happened to a lock or to a lease, as this gateway learnt it.
#[derive(Debug)]
pub(in crate::engine) enum Fact<'a> {
    /// A request began to wait, at this position.
    Queued(&'a Attempt, &'a QueuePosition),
    /// A new lease was granted, or is answered for the first time.
    Acquired(&'a Lease),
    /// A lease was renewed.
    Renewed(&'a HeldLease),
    /// A lease lives, and has lasted long enough to be recorded by the history.
    Lasting(Box<RecordedLease>),
    /// The holder of a lease was asked to release it, by this caller.
    ReleaseRequested(&'a HeldLease, &'a ReleaseRequest, Option<&'a Actor>),
    /// A release has ended a lease: the lease, if this gateway knew it, and what the store said of it. The store says
    /// nothing if an earlier copy of the release has ended the lease.
    Released(
        Option<&'a RegisteredLease>,
        Option<EndedLease>,
        ReleasedBy<'a>,
    ),
    /// The API key that had made a reservation has ended it, for this reason.
    Unreserved(&'a HeldLease, Option<&'a Actor>, &'a str),
    /// A lease, or a foreign lock if there is no lease, was broken by this caller for this reason.
    Broken(Option<&'a HeldLease>, Option<&'a Actor>, &'a str),
    /// The time of a lease of this gateway is over, and no other end is known here: what the history records of the
    /// lease, if it does, and its owner and mode, if this gateway reports the end.
    Expired(
        FencingToken,
        Option<Box<RecordedLease>>,
        Option<(Option<Owner>, Mode)>,
    ),
    /// A renewal or a release has found that a lease of this gateway had ended before. The last field says which of the
    /// two, if the holder had sent it.
    Gone(Box<RecordedLease>, Loss, Option<SeenBy>),
    /// A stream does not hold its lock any more.
    StreamLost(FencingToken, LossReason),
    /// No caller has the lease, and the reaper is about to release it.
    Abandoned(Box<RecordedLease>),
    /// Another gateway has ended a lease that this gateway knew, and tells of the end.
    EndedElsewhere(&'a RegisteredLease),
    /// A caller has set the order that the lock remembers, for this reason.
    OrderSet(Option<OrderNumber>, Option<&'a Actor>, &'a str),
    /// A check by this API key has refused a fencing token after a larger one was granted.
    StaleWriteRefused(FencingToken, Option<&'a Arc<str>>),
}

/// The party that released a lease, with the loss that the stream of the lease had reported, if any.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) enum ReleasedBy<'a> {
    /// The holder, or its stream when the holder hung up.
    Holder(Option<&'a Actor>, Option<LossReason>),
    /// The gateway, because no caller has the lease any more.
    Gateway(Option<LossReason>),
}

// === impl Fact ===

impl Fact<'_> {
    /// What has shown that a lease had ended while its holder relied on it; `None` if the fact shows no such thing.
    pub(super) fn lost_while_held(&self) -> Option<SeenBy> {
        match self {
            // A lease whose time is not over at its release was most likely released at another gateway, whose answer
            // was lost.
            Self::Gone(lease, Loss::HeldByAnother | Loss::Free, Some(seen_by))
                if *seen_by != SeenBy::Release || lease.until <= Instant::now() =>
            {
                Some(*seen_by)
            }
            Self::StreamLost(_, LossReason::Expired) => Some(SeenBy::Stream),
            _ => None,
        }
    }
}

// === impl ReleasedBy ===

impl<'a> ReleasedBy<'a> {
    /// The holder, if it is known, and the reason, unless the holder wanted the release.
    pub(in crate::engine) fn cause(self) -> (Option<&'a Actor>, Option<&'static str>) {
        match self {
            Self::Holder(by, lost) => (by, lost.map(LossReason::as_str)),
            Self::Gateway(lost) => (None, Some(lost.map_or(ABANDONED, LossReason::as_str))),
        }
    }
}
