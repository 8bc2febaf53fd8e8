//! What all commands of the store share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::lock::LockName;

use super::{
    SlotTags, client::dispatch::Dispatch, keys::Keys, queue::gateway::RedisGateway,
    scripts::Scripts,
};

/// What all commands of the store share.
pub(super) struct RedisContext {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) scripts: Scripts,
    pub(super) gateway: RedisGateway,
    pub(super) tags: Arc<SlotTags>,
    /// Ends what goes on by itself.
    pub(super) closing: CancellationToken,
}

// === impl RedisContext ===

impl RedisContext {
    pub(super) fn keys(&self, name: &LockName) -> Keys {
        Keys::of(name, &self.tags, &self.gateway.id)
    }
}
