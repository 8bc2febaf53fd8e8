//! Scripts on a lease: `renew.lua` and `release.lua`; `break.lua` and `ask.lua`, which end exactly what was seen to hold the
//! lock; those that look at a lock: `inspect.lua` and `list.lua`; and `advance.lua`, which passes on a lock that
//! is free.

use std::time::Duration;

use crate::{
    lock::{
        BreakTarget, FencingToken, ForeignMark, KeeperId, Limit, ReleaseRequest, Token, TokenHash,
    },
    store::{
        StoreError,
        contract::{
            Breaking, Contention, Holder, INSPECTED_WAITERS, Inspection, Loss, Release, Renewal,
            RenewalTtl, Renewer, Requesting, SHOWN_HOLDERS, SharedHolders,
        },
    },
};

use super::{
    super::{
        client::{
            Command,
            dispatch::{DispatchReply, Sending},
            failure::{Failure, passes_too_fast},
            request_text,
        },
        records::id,
    },
    lock_scripts::LockScripts,
};

// === impl LockScripts ===

impl LockScripts<'_> {
    pub(in crate::store::redis) async fn renew(
        &self,
        renewer: Renewer,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let id = id(token);
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg_ttl(ttl.asked).arg_ttl(ttl.max);
            match renewer {
                Renewer::Bearer => command,
                Renewer::Keeper(keeper) => command.arg(keeper.to_string()),
                Renewer::Adopter(keeper) => command.arg(keeper.to_string()).arg(1),
            };
        };
        let mut reply = self
            .run(&self.context.scripts.renew, &id, fill)
            .await?
            .reply;
        match reply.kind() {
            "renewed" => {
                let (held, margin) = reply.renewed(&self.keys)?;
                self.note_fence(&held);
                Ok(Renewal::Renewed(held, margin))
            }
            "adopted" => Ok(Renewal::Adopted),
            "another" => Ok(Renewal::Lost(Loss::HeldByAnother)),
            "free" => Ok(Renewal::Lost(Loss::Free)),
            "broken" | "overdue" => Ok(Renewal::Lost(reply.broken()?)),
            _ => Err(reply.unexpected()),
        }
    }

    pub(in crate::store::redis) async fn release(
        &self,
        keeper: Option<KeeperId>,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let id = id(token);
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg(self.floor());
            command.arg(keeper.map(|keeper| keeper.to_string()));
        };
        let run = self.run_with_news(&self.context.scripts.release, &id, fill);
        let DispatchReply { mut reply, earlier } = run.await?;
        let loss = match reply.kind() {
            "released" => return Ok(Release::Released),
            "adopted" => return Ok(Release::Adopted),
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            // Not by a copy of this command: that would have released it.
            "broken" => return Ok(Release::Lost(reply.broken()?)),
            "overdue" => reply.broken()?,
            _ => return Err(reply.unexpected()),
        };
        match earlier {
            None => Ok(Release::Lost(loss)),
            // Whether it was lost before, or released by the copy whose reply was lost, nobody can
            // tell.
            Some(unknown) => Err(unknown.into()),
        }
    }
}

// === Breaking ===
//
// Looks at what holds the lock, and ends exactly that: so a copy of the command breaks nothing else, and its answer is
// known from the look although the reply was lost.

/// How often it is looked again if the lock has passed on between the look and the break. Each time
/// takes a round trip in which that happens.
const LOOKS: usize = 32;

/// What is to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptTarget {
    /// The lease with this fencing token, whether it is alone or not.
    Lease(FencingToken),
    /// All that share the lock, up to this fencing token: a late copy must not break a newer one.
    UpTo(FencingToken),
    /// What a foreign client has written.
    Foreign(ForeignMark),
}

/// Why nothing is ended of what holds the lock.
enum NotEnded {
    NotHeld,
    HolderChanged(Holder),
    Ambiguous(SharedHolders),
    /// A foreign client cannot be asked to release the lock.
    Foreign(Holder),
}

// === impl LockScripts ===

impl LockScripts<'_> {
    /// Breaks what holds the lock; with `target`, only if it is that.
    pub(in crate::store::redis) async fn break_lock(
        &self,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        Ok(match self.end(target, None).await? {
            Ok(broken) => Breaking::Broken(broken),
            Err(NotEnded::NotHeld) => Breaking::NotHeld,
            Err(NotEnded::Ambiguous(holders)) => Breaking::Ambiguous(holders),
            Err(NotEnded::HolderChanged(holder) | NotEnded::Foreign(holder)) => {
                Breaking::HolderChanged(holder)
            }
        })
    }

    /// Asks what holds the lock to release it; with `target`, only if it is that.
    pub(in crate::store::redis) async fn request_release(
        &self,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        Ok(match self.end(target, Some(request)).await? {
            Ok(mut asked) => {
                for lease in asked.leases_mut() {
                    lease.request_release(request);
                }
                Requesting::Requested(asked)
            }
            Err(NotEnded::NotHeld) => Requesting::NotHeld,
            Err(NotEnded::Ambiguous(holders)) => Requesting::Ambiguous(holders),
            Err(NotEnded::HolderChanged(holder)) => Requesting::HolderChanged(holder),
            Err(NotEnded::Foreign(holder)) => Requesting::Foreign(holder),
        })
    }

    /// Ends what is meant, or asks for it if there is a `request`.
    async fn end(
        &self,
        target: Option<BreakTarget>,
        request: Option<&ReleaseRequest>,
    ) -> Result<Result<Holder, NotEnded>, StoreError> {
        for _ in 0..LOOKS {
            let Some(holder) = self.look(target).await? else {
                return Ok(Err(NotEnded::NotHeld));
            };
            let (meant, holder) = match choose(holder, target) {
                Ok(chosen) => chosen,
                Err(why) => return Ok(Err(why)),
            };
            let is_ended = match (request, meant) {
                (None, _) => self.break_meant(meant).await?,
                (Some(_), ScriptTarget::Foreign(_)) => return Ok(Err(NotEnded::Foreign(holder))),
                (Some(request), ScriptTarget::Lease(fence) | ScriptTarget::UpTo(fence)) => {
                    let all = matches!(meant, ScriptTarget::UpTo(_));
                    self.ask(fence, all, request).await?
                }
            };
            if is_ended {
                return Ok(Ok(holder));
            }
        }
        Err(passes_too_fast())
    }

    /// What holds the lock.
    async fn look(&self, target: Option<BreakTarget>) -> Result<Option<Holder>, StoreError> {
        // Of those who share it all are looked at if all are meant: what is broken is shown.
        let (most, fence) = match target {
            Some(BreakTarget::All) => (usize::from(Limit::MAX), None),
            Some(BreakTarget::Lease(fence)) => (SHOWN_HOLDERS, Some(fence)),
            Some(BreakTarget::Foreign(_)) | None => (SHOWN_HOLDERS, None),
        };
        let holder = self.list(most, fence).await?;
        if let Some(Holder::Foreign { mark: None, .. }) = &holder {
            let (keys, dispatch) = (&self.keys, &self.context.dispatch);
            let refused = dispatch.refused(Failure::WrongType, keys, keys.lock(), self.limit);
            return Err(refused.await);
        }
        let floors = &self.context.gateway.floors;
        floors.raise_to_holder(self.keys.slot(), holder.as_ref());
        Ok(holder)
    }

    /// Whether this command, or an earlier copy of it, has broken what is meant; else it does not hold the lock any more.
    async fn break_meant(&self, target: ScriptTarget) -> Result<bool, StoreError> {
        let nonce = Token::random().hash().to_string();
        let (fence, mark) = match target {
            ScriptTarget::Lease(fence) | ScriptTarget::UpTo(fence) => {
                (format!("{:016}", fence.get()), String::new())
            }
            ScriptTarget::Foreign(mark) => (String::new(), mark.to_string()),
        };
        let all = matches!(target, ScriptTarget::UpTo(_)).then_some(1);
        let fill = |command: &mut Command, sending| {
            let late = u8::from(sending == Sending::Again);
            command.arg(&nonce).arg(self.floor());
            command.arg(&fence).arg(&mark).arg(late).arg(all);
        };
        let run = self.run_with_news(&self.context.scripts.break_lock, &nonce, fill);
        let reply = run.await?.reply;
        match reply.kind() {
            "broken" => Ok(true),
            "changed" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }

    /// Whether the holder of the lease with a fence was asked; with `all`, those with fences up to that one.
    async fn ask(
        &self,
        fence: FencingToken,
        all: bool,
        request: &ReleaseRequest,
    ) -> Result<bool, StoreError> {
        let within = u64::try_from(request.within.as_millis()).unwrap_or(u64::MAX);
        let text = request_text(request);
        let fill = |command: &mut Command, _| {
            command.arg(format!("{:016}", fence.get()));
            command.arg(self.context.gateway.id.as_str()).arg(within);
            command.arg(&text).arg(all.then_some(1));
        };
        let run = self.run_with_news(&self.context.scripts.ask, self.keys.lock(), fill);
        let reply = run.await?.reply;
        match reply.kind() {
            "asked" => Ok(true),
            "changed" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }
}

/// What is meant of what holds the lock, or why nothing is.
fn choose(holder: Holder, target: Option<BreakTarget>) -> Result<(ScriptTarget, Holder), NotEnded> {
    match (holder, target) {
        (Holder::Lease(lease), target)
            if target.is_none_or(|target| {
                [BreakTarget::All, BreakTarget::Lease(lease.fence)].contains(&target)
            }) =>
        {
            Ok((ScriptTarget::Lease(lease.fence), Holder::Lease(lease)))
        }
        // What is meant by all are leases; a foreign client is named by its mark, or not at all.
        (
            holder @ Holder::Foreign {
                mark: Some(mark), ..
            },
            target,
        ) if target.is_none_or(|target| target == BreakTarget::Foreign(mark)) => {
            Ok((ScriptTarget::Foreign(mark), holder))
        }
        (Holder::Shared(holders), None) => Err(NotEnded::Ambiguous(holders)),
        (Holder::Shared(holders), Some(BreakTarget::All)) => {
            match holders.leases.iter().map(|lease| lease.fence).max() {
                Some(highest) => Ok((ScriptTarget::UpTo(highest), Holder::Shared(holders))),
                None => Err(NotEnded::HolderChanged(Holder::Shared(holders))),
            }
        }
        (Holder::Shared(mut holders), Some(BreakTarget::Lease(fence)))
            if holders.leases.iter().any(|lease| lease.fence == fence) =>
        {
            holders.leases.retain(|lease| lease.fence == fence);
            holders.count = 1;
            Ok((ScriptTarget::Lease(fence), Holder::Shared(holders)))
        }
        (holder, _) => Err(NotEnded::HolderChanged(holder)),
    }
}

// === Looks ===

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
            "held" => Some(
                reply
                    .read_told()
                    .map_or(foreign(None), |it| Holder::Lease(it.0)),
            ),
            "shared" => reply.shared().map(Holder::Shared),
            "foreign" => reply.mark().map(|mark| foreign(Some(mark))),
            "odd" => Some(foreign(None)),
            _ => None,
        };
        holder.map(Some).ok_or_else(|| reply.unexpected())
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
