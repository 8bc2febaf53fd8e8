//! Sends events to the other gateways on the store, and receives theirs.

use std::time::{Duration, SystemTime};

use futures_util::{
    StreamExt,
    stream::{BoxStream, unfold},
};
use tokio::time::{Instant, sleep};

use crate::store::AnyStore;

use super::event::{Event, EventMessage};

/// News of the subscription to the events of other gateways.
#[derive(Debug)]
pub(super) enum SubscriptionEvent {
    /// The subscription is open: events arrive from now on.
    Opened,
    /// A batch of events has come from another gateway.
    Batch(String),
    /// The connection of the subscription was lost. The subscription is opened again, but events were
    /// missed.
    Lost,
}

/// How long to wait before a subscription that has failed is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// Subscribes to the events of other gateways. The subscription is opened again when its connection is lost.
pub(super) fn subscribe(store: AnyStore) -> BoxStream<'static, SubscriptionEvent> {
    let next = |(store, open): (AnyStore, Option<BoxStream<'static, String>>)| async move {
        if let Some(mut batches) = open {
            return Some(match batches.next().await {
                Some(batch) => (SubscriptionEvent::Batch(batch), (store, Some(batches))),
                None => (SubscriptionEvent::Lost, (store, None)),
            });
        }
        loop {
            // The store logs why the subscription cannot be opened.
            if let Ok(batches) = store.relay()?.listen().await {
                return Some((SubscriptionEvent::Opened, (store, Some(batches))));
            }
            sleep(PAUSE).await;
        }
    };
    unfold((store, None), next).boxed()
}

// === Outbox ===
//
// The events to be sent to the other gateways.

/// Collects events for the other gateways until they are sent as one batch.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lines: String,
    /// When the batch must be sent at the latest; `None` if no event is collected.
    due: Option<Instant>,
    /// Whether events were left out of the batch, which then ends with a gap.
    gap: bool,
}

/// How long events are collected before they are sent as one batch.
const COLLECTED: Duration = Duration::from_millis(50);
/// How many bytes of events are collected for one batch. Events beyond this size are left out, and the batch
/// ends with a gap.
const MAX_BATCH_BYTES: usize = 256 * 1024;

// === impl Outbox ===

impl Outbox {
    pub(super) fn put(&mut self, news: &EventMessage) {
        self.due.get_or_insert_with(|| Instant::now() + COLLECTED);
        if self.gap {
            return;
        }
        let line = news.to_line();
        if self.lines.len() + line.len() > MAX_BATCH_BYTES {
            self.gap = true;
            return;
        }
        self.lines.push_str(&line);
        self.lines.push('\n');
    }

    /// Records that events are missing: the next batch ends with a gap.
    pub(super) fn mark_gap(&mut self) {
        self.gap = true;
        self.due.get_or_insert_with(|| Instant::now() + COLLECTED);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes all collected events as one batch.
    pub(super) fn take(&mut self, now: SystemTime) -> String {
        self.due = None;
        let mut batch = std::mem::take(&mut self.lines);
        if std::mem::take(&mut self.gap) {
            let gap = EventMessage::from(Event::gap("too-many", now));
            batch.push_str(&gap.to_line());
            batch.push('\n');
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(reason: &'static str) -> EventMessage {
        Event::gap(reason, SystemTime::UNIX_EPOCH).into()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_becomes_a_gap() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.due(), None);
        let one = news("one").to_line();
        for _ in 0..2 * MAX_BATCH_BYTES / one.len() {
            outbox.put(&news("one"));
        }
        assert_eq!(outbox.due(), Some(Instant::now() + COLLECTED));
        let batch = outbox.take(SystemTime::UNIX_EPOCH);
        assert!(batch.len() < MAX_BATCH_BYTES + 200, "{}", batch.len());
        assert!(batch.ends_with(&format!("{}\n", news("too-many").to_line())));
        assert_eq!(outbox.due(), None);
        outbox.put(&news("one"));
        assert_eq!(outbox.take(SystemTime::UNIX_EPOCH), one + "\n");
    }
}
