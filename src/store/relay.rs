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

    /// Tells all gateways which declarations of locks this gateway has, by their hash.
    async fn tell_declarations(&self, hash: &str) -> Result<(), StoreError>;

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
    difference: Option<Difference>,
}

/// Another gateway has other declarations than this gateway.
#[derive(Debug, Clone, Copy)]
struct Difference {
    since: Instant,
    /// When another hash was heard last.
    heard: Instant,
    is_logged: bool,
}

/// How often a gateway with declarations tells their hash.
pub const TELL_EVERY: Duration = Duration::from_secs(15);
/// For how long a hash counts that was not heard again: two of its messages may be lost.
const COUNTS: Duration = Duration::from_secs(45);
/// How long a difference may last before it is a warning: a changed file reaches all gateways within this time.
const TOLERATED: Duration = Duration::from_mins(1);

// === impl DeclarationHashes ===

impl DeclarationHashes {
    /// Records the hash of the declarations of this gateway.
    pub(crate) fn set_own(&self, hash: &str) {
        let mut hashes = self.0.lock();
        if hashes.own != hash {
            hash.clone_into(&mut hashes.own);
            hashes.difference = None;
        }
    }

    /// Records a hash that a gateway has told; this gateway hears its own hash, too.
    pub(crate) fn hear(&self, hash: &str) {
        let mut hashes = self.0.lock();
        if hashes.own == hash {
            return;
        }
        let now = Instant::now();
        let mut difference = hashes.current().unwrap_or(Difference {
            since: now,
            heard: now,
            is_logged: false,
        });
        difference.heard = now;
        if now - difference.since >= TOLERATED && !difference.is_logged {
            difference.is_logged = true;
            warn!(
                "another gateway on the store has other declarations of locks, or this gateway has none: give all \
                   gateways the same locks file"
            );
        }
        hashes.difference = Some(difference);
    }

    /// Whether other gateways have had other declarations for longer than is tolerated.
    pub fn differ(&self) -> bool {
        let current = self.0.lock().current();
        current.is_some_and(|it| it.since.elapsed() >= TOLERATED)
    }
}

// === impl Hashes ===

impl Hashes {
    fn current(&self) -> Option<Difference> {
        self.difference.filter(|it| it.heard.elapsed() < COUNTS)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_difference_counts_after_a_minute_and_until_it_is_no_longer_heard() {
        let hashes = DeclarationHashes::default();
        hashes.set_own("a");
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
        hashes.set_own("b");
        assert!(!hashes.differ());
    }
}
