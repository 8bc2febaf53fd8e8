//! Calls `list.lua`.

use tokio::time::Duration;

use crate::{
    lock::{FencingToken, ForeignMark, HeldLease},
    store::{
        StoreError,
        contract::{Holder, SharedHolders},
    },
};

use super::{
    super::{
        client::{
            calls::{Reply, ScriptCall},
            dispatch::Dispatch,
        },
        keys::Keys,
    },
    Scripts,
};

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) enum ListedHolder {
    /// A lease of ours.
    Lease(HeldLease),
    /// Leases of ours that share it.
    Shared(SharedHolders),
    /// A foreign client, with what is left, and a mark of what it has written.
    Foreign(Option<Duration>, ForeignMark),
    /// Something that this version does not understand: a key of another type, or a record of
    /// another layout. What is left of it, if it ends.
    Odd(Option<Duration>),
    /// Nobody.
    Nobody,
}

// === impl Scripts ===

impl Scripts {
    /// Shows who holds the lock, of those who share it at most so many, or the one with the fence if it is there.
    pub(in crate::store::redis) async fn list(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        most: usize,
        fence: Option<FencingToken>,
    ) -> Result<ListedHolder, StoreError> {
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(most);
            if let Some(fence) = fence {
                command.arg(format!("{:016}", fence.get()));
            }
        };
        let run = dispatch.run(&self.list, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        if reply.kind() == "free" {
            return Ok(ListedHolder::Nobody);
        }
        let left = left(&mut reply)?;
        match reply.kind() {
            // What makes no lease was not written by us.
            "held" => Ok(reply
                .read_held()
                .map_or(ListedHolder::Odd(left), ListedHolder::Lease)),
            "shared" => match reply.shared() {
                Some(holders) => Ok(ListedHolder::Shared(holders)),
                None => Err(reply.unexpected()),
            },
            "foreign" => match reply.mark() {
                Some(mark) => Ok(ListedHolder::Foreign(left, mark)),
                None => Err(reply.unexpected()),
            },
            "odd" => Ok(ListedHolder::Odd(left)),
            _ => Err(reply.unexpected()),
        }
    }
}

fn left(reply: &mut Reply) -> Result<Option<Duration>, StoreError> {
    let ms = reply.integer().ok_or_else(|| reply.unexpected())?;
    Ok(u64::try_from(ms).ok().map(Duration::from_millis))
}

// === impl ListedHolder ===

impl ListedHolder {
    /// Who that is, for everybody.
    pub(in crate::store::redis) fn holder(self) -> Option<Holder> {
        match self {
            Self::Lease(lease) => Some(Holder::Lease(lease)),
            Self::Shared(holders) => Some(Holder::Shared(holders)),
            Self::Foreign(expires_in, mark) => Some(Holder::Foreign {
                expires_in,
                mark: Some(mark),
            }),
            Self::Odd(expires_in) => Some(Holder::Foreign {
                expires_in,
                mark: None,
            }),
            Self::Nobody => None,
        }
    }
}
