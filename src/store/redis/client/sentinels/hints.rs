//! Listens to each sentinel for hints that the master may have changed.
//!
//! A hint proves nothing: it causes the question to be asked at once.

use std::sync::Arc;

use futures_util::{StreamExt, future::join_all};
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Lifecycle;

use super::{
    super::{endpoint::Ear, subscription::silence},
    followed::Followed,
    sentinel::Sentinel,
};

/// What a sentinel tells when a replica has been made the master, and when it believes so itself. The
/// first comes a moment before the sentinels agree that the failover is over, and while the old master
/// still takes writes.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];
/// How old it may be what is known of a sentinel: those who want to know the master ask all of them twice
/// as often.
const LOOK: Duration = Duration::from_secs(2);
/// How soon a sentinel is listened to again that could not be, or not any more.
const PAUSE: Duration = Duration::from_secs(1);

// === impl Followed ===

impl Followed {
    /// Keeps an eye on who is the master, until the program stops or the store is closed.
    pub(crate) fn start(self: Arc<Self>, lifecycle: &Lifecycle, closing: &CancellationToken) {
        let (stopped, closed) = (lifecycle.stopped(), closing.clone());
        lifecycle.spawn_background(async move {
            let hear = self.sentinels.iter().map(|sentinel| self.hear(sentinel));
            let look = self.sentinels.iter().map(|sentinel| self.look_at(sentinel));
            tokio::select! {
                () = self.watch() => {}
                _never = join_all(hear) => {}
                _never = join_all(look) => {}
                () = stopped => {}
                () = closed.cancelled() => {}
            }
        });
    }

    /// Finds out again and again whether a sentinel answers. Those who want to know the master do not wait
    /// for one that is slow, and so do not hear whether it does.
    async fn look_at(&self, sentinel: &Sentinel) {
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
    async fn hear(&self, sentinel: &Sentinel) {
        loop {
            if let Ok(ear) = sentinel.listen(&CHANNELS).await {
                // Something may have been missed before.
                self.hinted.notify_one();
                self.hear_hints(ear).await;
                sentinel.fell_silent();
            }
            sleep(PAUSE).await;
        }
    }

    async fn hear_hints(&self, Ear { connection, over }: Ear) {
        let (mut requests, mut messages) = connection.split();
        let messages = async {
            while let Some(message) = messages.next().await {
                let text = String::from_utf8_lossy(message.get_payload_bytes());
                if text.split(' ').any(|word| word == self.service) {
                    self.hinted.notify_one();
                }
            }
        };
        tokio::select! {
            () = messages => {}
            () = over.cancelled() => {}
            () = silence(&mut requests) => {}
        }
    }
}
