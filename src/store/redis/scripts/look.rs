//! Scripts that look at a lock: `inspect.lua`, `list.lua` and `count.lua`; and `advance.lua`, which passes on a lock that is
//! free.

use std::time::Duration;

use crate::{
    lock::FencingToken,
    store::{
        StoreError,
        contract::{Contention, Holder, INSPECTED_WAITERS, Inspection},
    },
};

use super::{super::client::Command, lock_scripts::LockScripts};

/// What became of a lock whose lease should have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Advance {
    /// Somebody holds it, for this long; `None`: without an expiry.
    Held(Option<Duration>),
    /// It was free, and somebody was queued for it.
    Passed,
    /// It is free, and nobody is queued for it who is alive.
    Idle,
}

// === impl LockScripts ===

impl LockScripts<'_> {
    pub(in crate::store::redis) async fn inspect(&self) -> Result<Inspection, StoreError> {
        let fill = |command: &mut Command, _| {
            command.arg(INSPECTED_WAITERS);
        };
        let run = self.run(&self.context.scripts.inspect, self.keys.lock(), fill);
        let mut reply = run.await?.reply;
        if reply.kind() != "shown" {
            return Err(reply.unexpected());
        }
        let queue = reply.queue().ok_or_else(|| reply.unexpected())?;
        let Contention { holder, waiters } = reply.contention(&self.keys)?;
        let floors = &self.context.gateway.floors;
        floors.raise_to_holder(self.keys.slot(), holder.as_ref());
        Ok(Inspection {
            holder,
            queue,
            waiters,
        })
    }

    /// Shows who holds the lock, of those who share it at most so many, or the one with the fence if it is there. What this
    /// version does not understand, a key of another type or a record of another layout, is foreign without a mark.
    pub(in crate::store::redis) async fn list(
        &self,
        most: usize,
        fence: Option<FencingToken>,
    ) -> Result<Option<Holder>, StoreError> {
        let fill = |command: &mut Command, _| {
            let fence = fence.map(|fence| format!("{:016}", fence.get()));
            command.arg(most).arg(fence);
        };
        let run = self.run(&self.context.scripts.list, self.keys.lock(), fill);
        let mut reply = run.await?.reply;
        if reply.kind() == "free" {
            return Ok(None);
        }
        let expires_in = reply.rest().ok_or_else(|| reply.unexpected())?;
        let foreign = |mark| Holder::Foreign { expires_in, mark };
        let holder = match reply.kind() {
            // What makes no lease was not written by us.
            "held" => Some(reply.read_held().map_or(foreign(None), Holder::Lease)),
            "shared" => reply.shared().map(Holder::Shared),
            "foreign" => reply.mark().map(|mark| foreign(Some(mark))),
            "odd" => Some(foreign(None)),
            _ => None,
        };
        holder.map(Some).ok_or_else(|| reply.unexpected())
    }

    /// How many wait for a lock, by the same look at the first of them as an inspect takes.
    pub(in crate::store::redis) async fn count(&self) -> Result<u64, StoreError> {
        let fill = |command: &mut Command, _| {
            command.arg(INSPECTED_WAITERS);
        };
        let run = self.run(&self.context.scripts.count, self.keys.wait(), fill);
        let mut reply = run.await?.reply;
        let count = reply.count().filter(|_| reply.kind() == "counted");
        count.ok_or_else(|| reply.unexpected())
    }

    pub(in crate::store::redis) async fn advance(&self) -> Result<Advance, StoreError> {
        let fill = |command: &mut Command, _| {
            command.arg(self.floor());
        };
        let run = self.run_with_news(&self.context.scripts.advance, self.keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "held" => {
                let left = reply.rest().ok_or_else(|| reply.unexpected())?;
                Ok(Advance::Held(left))
            }
            "passed" => Ok(Advance::Passed),
            "idle" => Ok(Advance::Idle),
            _ => Err(reply.refusal(&self.keys)),
        }
    }
}
