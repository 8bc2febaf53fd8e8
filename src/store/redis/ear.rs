//! A connection that listens to channels.

use bb8_redis::redis::aio::PubSub;
use tokio_util::sync::CancellationToken;

/// A connection that listens to channels, and word of when it should not any more.
pub(super) struct Ear {
    pub(super) connection: PubSub,
    /// Told when the server is given up.
    pub(super) over: CancellationToken,
}
