//! Breaks a lock, or asks for it: looks at what holds it, and ends exactly that.

use crate::{
    lock::{BreakTarget, Limit, ReleaseRequest},
    store::{
        StoreError,
        contract::{Breaking, Holder, Requesting, SHOWN_HOLDERS, SharedHolders},
    },
};

use super::{
    client::{
        dispatch::Dispatch,
        failure::{Failure, passes_too_fast},
    },
    keys::Keys,
    queue::gateway::RedisGateway,
    scripts::{BreakResult, ScriptTarget, Scripts},
};

/// How often it is looked again if the lock has passed on between the look and the break. Each time
/// takes a round trip in which that happens.
const LOOKS: usize = 32;

/// Breaks what holds the lock; with `target`, only if it is that.
///
/// What is broken was looked at before, so that a copy of the command breaks nothing else, and its
/// answer can be told from the look although the reply was lost.
pub(super) async fn break_lock(
    dispatch: &Dispatch,
    scripts: &Scripts,
    gateway: &RedisGateway,
    keys: &Keys,
    target: Option<BreakTarget>,
) -> Result<Breaking, StoreError> {
    for _ in 0..LOOKS {
        let Some(holder) = look(dispatch, scripts, gateway, keys, target).await? else {
            return Ok(Breaking::NotHeld);
        };
        let (meant, broken) = match choose(holder, target) {
            Ok(chosen) => chosen,
            Err(NotChosen::HolderChanged(holder)) => return Ok(Breaking::HolderChanged(holder)),
            Err(NotChosen::Ambiguous(holders)) => return Ok(Breaking::Ambiguous(holders)),
        };
        let struck = scripts.break_lock(dispatch, gateway, keys, meant);
        match struck.await? {
            BreakResult::Broken => return Ok(Breaking::Broken(broken)),
            BreakResult::Changed => {}
        }
    }
    Err(passes_too_fast())
}

/// Asks what holds the lock to release it; with `target`, only if it is that.
pub(super) async fn request_release(
    dispatch: &Dispatch,
    scripts: &Scripts,
    gateway: &RedisGateway,
    keys: &Keys,
    target: Option<BreakTarget>,
    request: &ReleaseRequest,
) -> Result<Requesting, StoreError> {
    for _ in 0..LOOKS {
        let Some(holder) = look(dispatch, scripts, gateway, keys, target).await? else {
            return Ok(Requesting::NotHeld);
        };
        let (meant, mut asked) = match choose(holder, target) {
            Ok((ScriptTarget::Foreign(_), holder)) => return Ok(Requesting::Foreign(holder)),
            Ok(chosen) => chosen,
            Err(NotChosen::HolderChanged(holder)) => {
                return Ok(Requesting::HolderChanged(holder));
            }
            Err(NotChosen::Ambiguous(holders)) => return Ok(Requesting::Ambiguous(holders)),
        };
        match scripts.ask(dispatch, gateway, keys, meant, request).await? {
            BreakResult::Broken => {
                for lease in asked.leases_mut() {
                    lease.request_release(request);
                }
                return Ok(Requesting::Requested(asked));
            }
            BreakResult::Changed => {}
        }
    }
    Err(passes_too_fast())
}

/// What holds the lock.
async fn look(
    dispatch: &Dispatch,
    scripts: &Scripts,
    gateway: &RedisGateway,
    keys: &Keys,
    target: Option<BreakTarget>,
) -> Result<Option<Holder>, StoreError> {
    // Of those who share it all are looked at if all are meant: what is broken is shown.
    let (most, fence) = match target {
        Some(BreakTarget::All) => (usize::from(Limit::MAX), None),
        Some(BreakTarget::Lease(fence)) => (SHOWN_HOLDERS, Some(fence)),
        Some(BreakTarget::Foreign(_)) | None => (SHOWN_HOLDERS, None),
    };
    let holder = scripts.list(dispatch, keys, most, fence).await?;
    if let Some(Holder::Foreign { mark: None, .. }) = &holder {
        let limit = dispatch.limit();
        let refused = dispatch.refused(Failure::WrongType, keys, keys.lock(), limit);
        return Err(refused.await);
    }
    gateway.floors.raise_to_holder(keys.slot(), holder.as_ref());
    Ok(holder)
}

/// Why nothing is chosen of what holds the lock.
enum NotChosen {
    HolderChanged(Holder),
    Ambiguous(SharedHolders),
}

/// What is meant of what holds the lock, or why nothing is.
fn choose(
    holder: Holder,
    target: Option<BreakTarget>,
) -> Result<(ScriptTarget, Holder), NotChosen> {
    match (holder, target) {
        (Holder::Lease(lease), None | Some(BreakTarget::All)) => {
            Ok((ScriptTarget::Lease(lease.fence), Holder::Lease(lease)))
        }
        (Holder::Lease(lease), Some(BreakTarget::Lease(fence))) if lease.fence == fence => {
            Ok((ScriptTarget::Lease(fence), Holder::Lease(lease)))
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
        (Holder::Shared(holders), None) => Err(NotChosen::Ambiguous(holders)),
        (Holder::Shared(holders), Some(BreakTarget::All)) => {
            match holders.leases.iter().map(|lease| lease.fence).max() {
                Some(highest) => Ok((ScriptTarget::UpTo(highest), Holder::Shared(holders))),
                None => Err(NotChosen::HolderChanged(Holder::Shared(holders))),
            }
        }
        (Holder::Shared(SharedHolders { mut leases, count }), Some(target)) => {
            let meant = leases
                .iter()
                .position(|lease| target == BreakTarget::Lease(lease.fence));
            if let Some(meant) = meant {
                let lease = leases.swap_remove(meant);
                let target = ScriptTarget::Lease(lease.fence);
                let broken = SharedHolders {
                    leases: vec![lease],
                    count: 1,
                };
                return Ok((target, Holder::Shared(broken)));
            }
            let holders = SharedHolders { leases, count };
            Err(NotChosen::HolderChanged(Holder::Shared(holders)))
        }
        (holder @ (Holder::Lease(_) | Holder::Foreign { .. }), _) => {
            Err(NotChosen::HolderChanged(holder))
        }
    }
}
