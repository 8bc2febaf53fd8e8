//! The state that all commands of the store share, and how they run the scripts of one lock.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    lock::{HeldLease, LockName},
    store::StoreError,
};

use super::{
    super::{
        SlotTags,
        client::{
            Command, Reply, Script, append_number,
            dispatch::{Dispatch, DispatchReply, Sending},
        },
        keys::Keys,
        queue::gateway::RedisGateway,
    },
    catalogue::Scripts,
};

/// The state that all commands of the store share.
pub(in crate::store::redis) struct RedisContext {
    pub(in crate::store::redis) dispatch: Arc<Dispatch>,
    pub(in crate::store::redis) scripts: Scripts,
    pub(in crate::store::redis) gateway: RedisGateway,
    pub(in crate::store::redis) tags: Arc<SlotTags>,
    /// Stops the background tasks of the store.
    pub(in crate::store::redis) closing: CancellationToken,
}

/// The scripts of one lock, with the deadline of the request that runs them.
pub(in crate::store::redis) struct LockScripts<'a> {
    pub(in crate::store::redis) context: &'a RedisContext,
    pub(in crate::store::redis) keys: Keys,
    /// Deadline for the outcome of everything that the request sends.
    pub(in crate::store::redis) limit: Instant,
}

// === impl RedisContext ===

impl RedisContext {
    pub(in crate::store::redis) fn keys(&self, name: &LockName) -> Keys {
        Keys::for_lock(name, &self.tags, &self.gateway.id)
    }

    /// The scripts of a lock, for a request that begins now.
    pub(in crate::store::redis) fn lock(&self, keys: Keys) -> LockScripts<'_> {
        LockScripts {
            context: self,
            keys,
            limit: self.dispatch.limit(),
        }
    }
}

// === impl LockScripts ===

impl LockScripts<'_> {
    /// Runs a script whose reply has no news.
    pub(super) async fn run(
        &self,
        script: &Script,
        echo: &str,
        fill: impl Fn(&mut Command, Sending) + Send + Sync,
    ) -> Result<DispatchReply, StoreError> {
        let dispatch = &self.context.dispatch;
        dispatch
            .run(script, &self.keys, echo, self.limit, fill)
            .await
    }

    /// Runs a script, and processes the news in its reply.
    pub(super) async fn run_with_news(
        &self,
        script: &Script,
        echo: &str,
        fill: impl Fn(&mut Command, Sending) + Send + Sync,
    ) -> Result<DispatchReply, StoreError> {
        let mut answer = self.run(script, echo, fill).await?;
        let news = answer.reply.news()?;
        self.context.gateway.ingest(&self.keys, news);
        Ok(answer)
    }

    /// The highest fence that this gateway has seen in the slot of the lock, in 16 digits, and the id of the gateway.
    pub(super) fn floor(&self) -> String {
        let gateway = &self.context.gateway;
        let mut text = String::with_capacity(32);
        append_number::<16>(&mut text, gateway.floors.for_slot(self.keys.slot()));
        text.push_str(gateway.id.as_str());
        text
    }

    /// Reads the lease in the next fields of a reply, and records its fence.
    pub(super) fn held(&self, reply: &mut Reply) -> Result<HeldLease, StoreError> {
        let lease = reply.held(&self.keys)?;
        self.note_fence(&lease);
        Ok(lease)
    }

    pub(super) fn note_fence(&self, lease: &HeldLease) {
        let floors = &self.context.gateway.floors;
        floors.raise(self.keys.slot(), lease.fence);
    }
}
