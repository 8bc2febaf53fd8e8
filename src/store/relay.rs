//! How the gateways on one store tell each other about events, and compare their declarations of locks.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::lock::{LockName, TokenHash};

use super::StoreError;

/// Carries news between the gateways on one store, on a best-effort basis: news that are on their way when a
/// connection is lost are lost, and nothing is sent twice.
///
/// No decision depends on such news. A gateway sends news only while another gateway has asked for them.
#[async_trait]
pub trait Relay: Send + Sync {
    /// Asks all gateways, this one included, to send their news for this long.
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError>;

    /// Waits until a gateway asks for news, and returns for how long that gateway wants news. A request that
    /// arrives between two calls is kept; a later request replaces an earlier one.
    async fn asked(&self) -> Duration;

    /// Tells all gateways that a lease is lost, so that its gateway asks the store about it. A hint, which may be lost.
    async fn tell_lost(&self, name: &LockName, token: &TokenHash) -> Result<(), StoreError>;

    /// Sends a batch of news to all other gateways that listen.
    async fn send(&self, batch: &str) -> Result<(), StoreError>;

    /// Listens to the batches of all other gateways. The stream ends when the connection is lost.
    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError>;

    /// What is known of the declarations of all gateways.
    fn declarations(&self) -> &DeclarationHashes;
}

/// Compares the declarations of locks of this gateway with those of the other gateways on the store.
#[derive(Debug, Default)]
pub struct DeclarationHashes(Mutex<Hashes>);

#[derive(Debug, Default)]
struct Hashes {
    /// The hash of the declarations of this gateway; empty if it has none.
    own: String,
    /// Since when other gateways have told another hash, when one was heard last, and whether that was logged.
    other: Option<(Instant, Instant, bool)>,
}

/// How often a gateway with declarations tells their hash.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(15);
/// For how long a hash counts that was not heard again: two of its messages may be lost.
const COUNTS: Duration = Duration::from_secs(45);
/// How long a difference may last before it is a warning: a changed file reaches all gateways within this time.
const TOLERATED: Duration = Duration::from_mins(1);

// === impl DeclarationHashes ===

impl DeclarationHashes {
    /// Sets the hash of the declarations of this gateway.
    pub fn set(&self, own: String) {
        *self.0.lock() = Hashes { own, other: None };
    }

    /// The hash of the declarations of this gateway, if it has any.
    pub(crate) fn own(&self) -> Option<String> {
        Some(self.0.lock().own.clone()).filter(|own| !own.is_empty())
    }

    /// Records a hash that a gateway has told; this gateway hears its own hash, too.
    pub(crate) fn hear(&self, hash: &str) {
        let mut hashes = self.0.lock();
        if hashes.own == hash {
            return;
        }
        let now = Instant::now();
        let (since, mut is_logged) = hashes.counts().unwrap_or((now, false));
        if since + TOLERATED <= now && !is_logged {
            is_logged = true;
            warn!(
                "another gateway on the store has other declarations of locks: give all the same file"
            );
        }
        hashes.other = Some((since, now, is_logged));
    }

    /// Whether other gateways have had other declarations for longer than is tolerated.
    pub fn differ(&self) -> bool {
        let counts = self.0.lock().counts();
        counts.is_some_and(|(since, _)| since.elapsed() >= TOLERATED)
    }
}

// === impl Hashes ===

impl Hashes {
    /// Since when another hash has been heard, unless the last time was long ago; and whether that was logged.
    fn counts(&self) -> Option<(Instant, bool)> {
        let (since, heard, is_logged) = self.other?;
        (heard.elapsed() < COUNTS).then_some((since, is_logged))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_difference_counts_after_a_minute_and_until_it_is_no_longer_heard() {
        let hashes = DeclarationHashes::default();
        hashes.set("a".to_owned());
        for _quarter in 0..4 {
            hashes.hear("a");
            hashes.hear("b");
            assert!(!hashes.differ());
            advance(TELL_EVERY).await;
        }
        hashes.hear("b");
        assert!(hashes.differ());
        advance(COUNTS).await;
        assert!(!hashes.differ());
        hashes.hear("b");
        assert!(!hashes.differ(), "the minute begins again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_without_declarations_differs_from_one_that_has_some() {
        let hashes = DeclarationHashes::default();
        for _quarter in 0..=4 {
            hashes.hear("b");
            advance(TELL_EVERY).await;
        }
        assert!(hashes.differ());
        hashes.set("b".to_owned());
        assert!(!hashes.differ());
    }
}
