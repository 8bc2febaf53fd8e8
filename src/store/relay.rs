//! How the gateways on one store tell each other what has happened.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::StoreError;

/// Carries news between the gateways on one store, as far as it can: what is on its way when a
/// connection is lost is lost with it, and nothing is sent twice.
///
/// Nothing is decided by such news. A gateway sends them only while somebody has asked for them.
#[async_trait]
pub trait Relay: Send + Sync {
    /// Asks all other gateways to send their news for as long as this.
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError>;

    /// Ends when another gateway has asked for news, with for how long. Calls before the first wait
    /// miss nothing but what is asked again.
    async fn asked(&self) -> Duration;

    /// Sends a batch of news to all other gateways that listen.
    async fn send(&self, batch: &str) -> Result<(), StoreError>;

    /// Listens to the batches of all other gateways, until the stream ends because the connection
    /// was lost.
    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError>;
}
