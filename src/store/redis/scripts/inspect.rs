//! Calls `inspect.lua`.

use tokio::time::Duration;

use crate::store::{
    StoreError,
    contract::{Contention, INSPECTED_WAITERS, Inspection, Waiter},
};

use super::{
    super::{
        client::{
            calls::{Reply, ScriptCall},
            dispatch::Dispatch,
        },
        keys::Keys,
        records::waiter,
    },
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn inspect(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<Inspection, StoreError> {
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.wait());
            command.arg(INSPECTED_WAITERS);
        };
        let run = dispatch.run(&self.inspect, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "shown" => {
                let queue = queue(&mut reply).ok_or_else(|| reply.unexpected())?;
                let Contention { holder, waiters } = reply.contention(keys)?;
                Ok(Inspection {
                    holder,
                    queue,
                    waiters,
                })
            }
            _ => Err(reply.unexpected()),
        }
    }
}

/// Those who wait, by their tickets and the time.
pub(super) fn queue(reply: &mut Reply) -> Option<Vec<Waiter>> {
    let (mut tickets, now) = (reply.nested()?, reply.micros()?);
    let mut queue = Vec::new();
    while !tickets.is_over() {
        let ticket = tickets.text()?;
        // One whose ticket was lost stands there until its turn comes.
        queue.push(waiter(&ticket, now).unwrap_or(Waiter {
            owner: None,
            sharing: None,
            waited: Duration::ZERO,
        }));
    }
    Some(queue)
}
