//! Listens to each sentinel for hints that the master may have changed.
//!
//! A hint proves nothing: it causes the question to be asked at once.

use std::{pin::pin, sync::Arc};

use futures_util::{StreamExt, future::join_all};
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Lifecycle;

use super::{super::pubsub::PubSubConnection, followed_master::FollowedMaster, sentinel::Sentinel};

/// What a sentinel tells when a replica has been made the master, and when it believes so itself. The
/// first comes a moment before the sentinels agree that the failover is over, and while the old master
/// still takes writes.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];
/// How old what is known of a sentinel may be: those who want to know the master ask all of them twice
/// as often.
const LOOK: Duration = Duration::from_secs(2);
/// How soon a sentinel is listened to again that could not be, or not any more.
const PAUSE: Duration = Duration::from_secs(1);

// === impl FollowedMaster ===

impl FollowedMaster {
    /// Keeps an eye on who is the master, until the program stops or the store is closed.
    pub(crate) fn start(self: Arc<Self>, lifecycle: &Lifecycle, closing: &CancellationToken) {
        let (stopped, closed) = (lifecycle.stopped(), closing.clone());
        lifecycle.spawn_background(async move {
            let keep_listening = self
                .sentinels
                .iter()
                .map(|sentinel| self.keep_listening(sentinel));
            let asking = self
                .sentinels
                .iter()
                .map(|sentinel| self.keep_asking(sentinel));
            tokio::select! {
                () = self.watch() => {}
                _never = join_all(keep_listening) => {}
                _never = join_all(asking) => {}
                () = stopped => {}
                () = closed.cancelled() => {}
            }
        });
    }

    /// Finds out again and again whether a sentinel answers. Those who want to know the master do not wait
    /// for one that is slow, and so do not find out whether it does.
    async fn keep_asking(&self, sentinel: &Sentinel) {
        loop {
            sleep(LOOK).await;
            if !sentinel.was_asked_within(LOOK) {
                let limit = Instant::now() + self.timeout;
                // It takes note of it by itself.
                drop(sentinel.ask(&self.service, limit).await);
            }
        }
    }

    /// Listens to a sentinel for ever.
    async fn keep_listening(&self, sentinel: &Sentinel) {
        loop {
            if let Ok(pubsub) = sentinel.listen(&CHANNELS).await {
                // Something may have been missed before.
                self.hinted.notify_one();
                self.forward_hints(pubsub).await;
                sentinel.note_unsubscribed();
            }
            sleep(PAUSE).await;
        }
    }

    async fn forward_hints(&self, pubsub: PubSubConnection) {
        let mut messages = pin!(pubsub.messages());
        while let Some(message) = messages.next().await {
            if message.split(' ').any(|word| word == self.service) {
                self.hinted.notify_one();
            }
        }
    }
}
