//! Chooses what the history of a lock records: the facts about its leases that last long enough, or end unusually.

use crate::{
    engine::{
        facts::{Fact, ReleasedBy},
        loss::ABANDONED,
    },
    lock::LockName,
};

use super::{
    fact::{Actor, BROKEN, EXPIRED, LOST, RELEASED, RecordedLease, STALE_WRITE_REFUSED},
    recorder::Recorder,
};

/// The kind of the note that the holder was asked to release the lease.
const RELEASE_REQUESTED: &str = "release-requested";
/// The kind of the note that a rest was ended by a break.
const REST_ENDED: &str = "rest-ended";

// === impl Recorder ===

impl Recorder {
    /// Records a fact about a lease of this lock, if the history shows it.
    pub(in crate::engine) fn hear(&self, name: &LockName, fact: Fact<'_>) {
        match fact {
            Fact::Lasting(lease) => self.opened(name, *lease),
            // The gateway that ended the lease records the end, or counts the lease if it was short. The beginning is
            // known only here.
            Fact::EndedElsewhere(lease) if lease.opens() && self.is_long(lease.since) => {
                self.opened(name, lease.recorded());
            }
            Fact::ReleaseRequested(lease, request, by) => {
                let reason = Some(request.reason.as_str());
                self.note(name, lease.fence, RELEASE_REQUESTED, by, reason);
            }
            Fact::Released(lease, ended, by) => {
                // A lease that no caller has was recorded when it was left to the reaper.
                let lease = lease.filter(|_| matches!(by, ReleasedBy::Holder(..)));
                self.released(name, lease, ended, by.cause());
            }
            Fact::Unreserved(lease, by, reason) => {
                let mut lease = RecordedLease::from(lease);
                lease.even_if_short = true;
                self.note(name, lease, RELEASED, by, Some(reason));
            }
            // A rest has the fence of a lease that its holder has released.
            Fact::Broken(Some(lease), by, reason) if lease.is_resting => {
                self.note(name, lease.fence, REST_ENDED, by, Some(reason));
            }
            Fact::Broken(Some(lease), by, reason) => {
                self.note(name, lease, BROKEN, by, Some(reason));
            }
            // A lease that a renewal or a release has not found is recorded when the store has said how it has ended.
            Fact::Expired(_, Some(lease), _) => {
                let how = if lease.is_lost { LOST } else { EXPIRED };
                self.note(name, *lease, how, None, None);
            }
            // A short lease does not count, because no caller had it.
            Fact::Abandoned(lease) if lease.since.is_some_and(|since| self.is_long(since)) => {
                self.note(name, *lease, RELEASED, None, Some(ABANDONED));
            }
            Fact::StaleWriteRefused(fence, by) => {
                let by = by.cloned().map(Actor::Key);
                self.note(name, fence, STALE_WRITE_REFUSED, by.as_ref(), None);
            }
            _ => {}
        }
    }
}
