//! Scripts on a lease: `renew.lua` and `release.lua`; `break.lua` and `ask.lua`, which end exactly the lease or value
//! that was seen to hold the lock; `inspect.lua` and `list.lua`, which show a lock; `set_order.lua`, which sets the order that it remembers; `check_fence.lua`, which says
//! whether a lease holds it; and `advance.lua`, which passes on a free lock.

use std::time::Duration;

use crate::{
    lock::{
        BreakTarget, FencingToken, ForeignMark, Limit, RecipientId, ReleaseRequest, Token,
        TokenHash,
    },
    store::{
        StoreError,
        contract::{
            Breaking, Contention, FenceCheck, FenceQuery, Holder, INSPECTED_WAITERS, Inspection,
            Loss, OrderChange, OrderSetting, Release, Releaser, Renewal, RenewalTtl, Renewer,
            Requesting, SHOWN_HOLDERS, SharedHolders,
        },
        history::EndedLease,
    },
};

use super::{
    super::{
        client::{
            Command,
            dispatch::{DispatchReply, Sending},
            failure::{Failure, passes_too_fast},
            request_text, token_hash,
        },
        records::{id, order_digits},
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
                Renewer::Recipient(recipient) => command.arg(recipient.to_string()),
                Renewer::Adopter(recipient) => command.arg(recipient.to_string()).arg(1),
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
        releaser: Releaser,
        token: &TokenHash,
        granted_here: bool,
    ) -> Result<Release, StoreError> {
        let id = id(token);
        // Most leases have the recipient that their id names.
        let recipient = releaser.recipient();
        let other = recipient.filter(|recipient| recipient.attempt() != *token);
        let other = other.map(|recipient| recipient.to_string());
        let recipient = recipient.map(|_| other.as_deref().unwrap_or(&id[1..]));
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg(self.floor());
            match (granted_here, releaser.may_rest()) {
                (true, true) => command.arg(recipient),
                (true, false) => command.arg(recipient.unwrap_or_default()).arg(1),
                (false, rests) => {
                    let unused = if rests { "" } else { "1" };
                    command
                        .arg(recipient.unwrap_or_default())
                        .arg(unused)
                        .arg(1)
                }
            };
        };
        let run = self.run_with_news(&self.context.scripts.release, &id, fill);
        let DispatchReply { mut reply, earlier } = run.await?;
        let loss = match reply.kind() {
            "released" => return Ok(Release::Released(reply.str().and_then(ended))),
            "adopted" => {
                let recipient = reply.str().and_then(token_hash);
                let recipient = recipient.ok_or_else(|| reply.unexpected())?;
                return Ok(Release::Adopted(RecipientId::of_attempt(&recipient)));
            }
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            // An earlier copy of this release cannot have caused `broken`: it would have released the lease.
            "broken" => return Ok(Release::Lost(reply.broken()?)),
            "overdue" => reply.broken()?,
            _ => return Err(reply.unexpected()),
        };
        match earlier {
            None => Ok(Release::Lost(loss)),
            // The lease may have been lost before, or released by the earlier copy whose reply was lost: the store
            // cannot tell.
            Some(unknown) => Err(unknown.into()),
        }
    }
}

/// Reads which lease a release has ended.
fn ended(text: &str) -> Option<EndedLease> {
    let fence = FencingToken::new(text.get(..16)?.parse().ok()?).ok()?;
    let time = |at: std::ops::Range<usize>| text.get(at)?.parse::<u64>().ok();
    let held_for = time(32..48).zip(time(16..32));
    let held_for = held_for.map(|(now, since)| Duration::from_micros(now.saturating_sub(since)));
    Some(EndedLease {
        fence,
        held_for,
        may_rest: text.ends_with('1') && held_for.is_some(),
    })
}

// Looks at the holder of the lock, and ends exactly that lease or value. So a copy of the command breaks nothing else,
// and the answer is known from the look even if the reply was lost.

/// How often a break reads the holder again after the lock passed on between the read and the break, which must happen
/// within one round trip each time.
const LOOKS: usize = 32;

/// The leases or the foreign value that a break or a release request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptTarget {
    /// The lease with this fencing token, exclusive or shared.
    Lease(FencingToken),
    /// All shared leases with fencing tokens up to this token: a late copy must not break a newer lease.
    UpTo(FencingToken),
    /// The value of a foreign client with this mark.
    Foreign(ForeignMark),
}

/// Why a break or a release request did nothing.
enum NotEnded {
    NotHeld,
    HolderChanged(Holder),
    Ambiguous(SharedHolders),
    /// The holder is a foreign client, which cannot be asked to release the lock.
    Foreign(Holder),
}

// === impl LockScripts ===

impl LockScripts<'_> {
    /// Breaks the holder of the lock; with `target`, only if the holder is this target.
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

    /// Asks the holder of the lock to release it; with `target`, only if the holder is this target.
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

    /// Breaks the target, or the holder of the lock if there is no target; with `request`, asks the holder to release
    /// the lock instead.
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

    /// Reads the holder of the lock before a break or a release request.
    async fn look(&self, target: Option<BreakTarget>) -> Result<Option<Holder>, StoreError> {
        // If all leases of a shared lock are broken, all are read, because the answer shows each broken lease.
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

    /// Breaks the target. Answers whether this command, or an earlier copy of it, has broken the target; if not, the
    /// target no longer holds the lock.
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

    /// Asks the holder of the lease with this fence to release it; with `all`, the holders of all shared leases with
    /// fences up to this one. Answers whether such a lease held the lock.
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

/// Chooses the target among the leases of the holder, or answers why there is none.
fn choose(holder: Holder, target: Option<BreakTarget>) -> Result<(ScriptTarget, Holder), NotEnded> {
    match (holder, target) {
        (Holder::Lease(lease), target)
            if target.is_none_or(|target| {
                [BreakTarget::All, BreakTarget::Lease(lease.fence)].contains(&target)
            }) =>
        {
            Ok((ScriptTarget::Lease(lease.fence), Holder::Lease(lease)))
        }
        // `BreakTarget::All` covers only leases; a foreign value must be named by its mark, or by no target.
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
            holders.resting = holders
                .leases
                .iter()
                .map(|it| u64::from(it.is_resting))
                .sum();
            Ok((ScriptTarget::Lease(fence), Holder::Shared(holders)))
        }
        (holder, _) => Err(NotEnded::HolderChanged(holder)),
    }
}

// === Looks ===

/// The state of a lock after its lease should have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Advance {
    /// The lock stays held for this long; `None`: the hold has no expiry.
    Held(Option<Duration>),
    /// The lock was free and has passed to a waiter, or dead tickets are left in its queue.
    Passed,
    /// The lock is free, and no living waiter is queued.
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
        let granted_order = reply.order().ok_or_else(|| reply.unexpected())?;
        let Contention { holder, waiters } = reply.contention(&self.keys)?;
        let floors = &self.context.gateway.floors;
        floors.raise_to_holder(self.keys.slot(), holder.as_ref());
        Ok(Inspection {
            holder,
            queue,
            waiters,
            granted_order,
        })
    }

    /// Sets the order that the lock remembers.
    pub(in crate::store::redis) async fn set_order(
        &self,
        OrderChange { seen, new }: OrderChange,
    ) -> Result<OrderSetting, StoreError> {
        let nonce = Token::random().hash().to_string();
        let fill = |command: &mut Command, sending| {
            let late = u8::from(sending == Sending::Again);
            command.arg(order_digits(seen)).arg(order_digits(new));
            command.arg(&nonce).arg(late);
        };
        let run = self.run(&self.context.scripts.set_order, self.keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "set" => Ok(OrderSetting::Set),
            "changed" => {
                let order = reply.order().ok_or_else(|| reply.unexpected())?;
                Ok(OrderSetting::Changed(order))
            }
            _ => Err(reply.unexpected()),
        }
    }

    /// Shows the holder of the lock: at most `most` leases of a shared lock, or only the lease with `fence` if it
    /// exists. A key of another type, or a record of an unknown layout, is shown as foreign without a mark.
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
            // A record that cannot be read as a lease was not written by a gateway.
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

    pub(in crate::store::redis) async fn check_fence(
        &self,
        FenceQuery { fence, token, .. }: &FenceQuery,
    ) -> Result<FenceCheck, StoreError> {
        let fill = |command: &mut Command, _| {
            command.arg(format!("{:016}", fence.get()));
            command.arg(token.as_ref().map(id));
        };
        let run = self.run(&self.context.scripts.check_fence, self.keys.lock(), fill);
        let mut reply = run.await?.reply;
        let number = reply.count().ok_or_else(|| reply.unexpected())?;
        match reply.kind() {
            "held" => Ok(FenceCheck::Held {
                left: Duration::from_micros(number),
                as_of: reply.sent(),
            }),
            "stale" => Ok(FenceCheck::Stale {
                is_outrun: number > 0,
            }),
            "broken" => Ok(FenceCheck::Broken),
            "released" => Ok(FenceCheck::Released(
                (number > 0).then(|| Duration::from_micros(number)),
            )),
            _ => Err(reply.unexpected()),
        }
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
