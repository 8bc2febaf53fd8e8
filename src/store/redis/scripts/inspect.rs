//! Calls `inspect.lua`.

use bb8_redis::redis::{Cmd, Value};
use tokio::time::Duration;

use crate::{
    lock::Owner,
    store::{
        StoreError,
        contract::{Contention, INSPECTED_WAITERS, Inspection, Waiter},
    },
};

use super::{
    super::{dispatch::Dispatch, keys::Keys},
    Reply, Scripts,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn inspect(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<Inspection, StoreError> {
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.queue(), keys.waiters()] {
                command.arg(key);
            }
            command.arg(INSPECTED_WAITERS);
        };
        let run = dispatch.run(&self.inspect, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "shown" => {
                let queue = reply.list().and_then(queue);
                let queue = queue.ok_or_else(|| reply.unexpected())?;
                let Contention { holder, waiters } = reply.contention(keys)?;
                Ok(Inspection {
                    holder,
                    queue,
                    waiters,
                })
            }
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}

/// The queue as a list of owners and of how long each has waited.
fn queue(fields: Vec<Value>) -> Option<Vec<Waiter>> {
    let mut fields = Reply::of_fields(fields);
    let mut queue = Vec::new();
    while let Some(owner) = fields.text() {
        let waited = u64::try_from(fields.integer()?).ok()?;
        queue.push(Waiter {
            // Shown, never trusted: what another hand has written is left out.
            owner: Owner::new(&owner).ok(),
            waited: Duration::from_millis(waited),
        });
    }
    Some(queue)
}
