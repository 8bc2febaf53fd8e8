//! Breaks a lock: looks at what holds it, and ends exactly that.

use crate::{
    lock::{BreakTarget, Limit},
    store::{
        StoreError, Unavailability,
        contract::{Breaking, Holder, SHOWN_HOLDERS, SharedHolders},
    },
};

use super::{
    client::{dispatch::Dispatch, failure::Failure},
    keys::Keys,
    queue::gateway::RedisGateway,
    scripts::{BreakResult, ListedHolder, ScriptTarget, Scripts},
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
        // Of those who share it all are looked at: what is broken is shown.
        let most = target.map_or(SHOWN_HOLDERS, |_| usize::from(Limit::MAX));
        let seen = scripts.list(dispatch, keys, most).await?;
        if let ListedHolder::Odd(_) = &seen {
            let limit = dispatch.limit();
            let refused = dispatch.refused(Failure::WrongType, keys, keys.lock(), limit);
            return Err(refused.await);
        }
        let Some(holder) = seen.holder() else {
            return Ok(Breaking::NotHeld);
        };
        gateway.floors.raise_to_holder(keys.slot(), Some(&holder));
        let (meant, broken) = match choose(holder, target) {
            Ok(chosen) => chosen,
            Err(breaking) => return Ok(breaking),
        };
        let struck = scripts.break_lock(dispatch, gateway, keys, meant);
        match struck.await? {
            BreakResult::Broken => return Ok(Breaking::Broken(broken)),
            BreakResult::Changed => {}
        }
    }
    let reason = "the lock passes on faster than it can be broken".to_owned();
    Err(Unavailability::Refused(reason).into())
}

/// What is to be broken of what holds the lock, or why nothing is.
fn choose(holder: Holder, target: Option<BreakTarget>) -> Result<(ScriptTarget, Holder), Breaking> {
    match (holder, target) {
        (Holder::Lease(lease), None | Some(BreakTarget::All)) => {
            Ok((ScriptTarget::Lease(lease.fence), Holder::Lease(lease)))
        }
        (Holder::Lease(lease), Some(BreakTarget::Lease(fence))) if lease.fence == fence => {
            Ok((ScriptTarget::Lease(fence), Holder::Lease(lease)))
        }
        // What is meant by all are leases; a foreign client is named by its mark, or not at all.
        (
            Holder::Foreign {
                expires_in,
                mark: Some(mark),
            },
            None | Some(BreakTarget::All),
        ) => {
            let holder = Holder::Foreign {
                expires_in,
                mark: Some(mark),
            };
            Ok((ScriptTarget::Foreign(mark), holder))
        }
        (
            Holder::Foreign {
                expires_in,
                mark: Some(mark),
            },
            Some(BreakTarget::Foreign(meant)),
        ) if mark == meant => {
            let holder = Holder::Foreign {
                expires_in,
                mark: Some(mark),
            };
            Ok((ScriptTarget::Foreign(mark), holder))
        }
        (Holder::Shared(mut holders), None) => {
            holders.leases.truncate(SHOWN_HOLDERS);
            Err(Breaking::Ambiguous(holders))
        }
        (Holder::Shared(holders), Some(BreakTarget::All)) => {
            match holders.leases.iter().map(|lease| lease.fence).max() {
                Some(highest) => Ok((ScriptTarget::UpTo(highest), Holder::Shared(holders))),
                None => Err(Breaking::HolderChanged(Holder::Shared(holders))),
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
            leases.truncate(SHOWN_HOLDERS);
            let holders = SharedHolders { leases, count };
            Err(Breaking::HolderChanged(Holder::Shared(holders)))
        }
        (holder @ (Holder::Lease(_) | Holder::Foreign { .. }), _) => {
            Err(Breaking::HolderChanged(holder))
        }
    }
}
