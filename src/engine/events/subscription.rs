//! The subscription to the events of other gateways, on a connection that is opened again by itself.

use std::{pin::Pin, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::time::{Sleep, sleep};

use crate::store::{AnyStore, Store, StoreError};

/// The subscription to the events of other gateways.
pub(super) struct RelaySubscription {
    store: AnyStore,
    state: SubscriptionState,
    /// Whether it has been open before, so that events may have been missed.
    was_open: bool,
}

type Batches = BoxStream<'static, String>;

enum SubscriptionState {
    Closed,
    Opening(BoxFuture<'static, Result<Batches, StoreError>>),
    Open(Batches),
    Pausing(Pin<Box<Sleep>>),
}

/// What happens to the subscription.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SubscriptionEvent {
    /// A batch of events has come.
    Batch(String),
    /// It is open.
    Opened,
    /// It is open again, and may have missed events in between.
    Reopened,
}

/// How long it waits before it tries to open again.
const PAUSE: Duration = Duration::from_secs(1);

// === impl RelaySubscription ===

impl RelaySubscription {
    pub(super) fn new(store: AnyStore) -> Self {
        Self {
            store,
            state: SubscriptionState::Closed,
            was_open: false,
        }
    }

    /// Opens it, if it is closed and the store has a relay.
    pub(super) fn open(&mut self) {
        if let SubscriptionState::Closed = self.state
            && self.store.relay().is_some()
        {
            self.state = SubscriptionState::opening(&self.store);
        }
    }

    /// Whether it is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, SubscriptionState::Open(_))
    }

    /// Closes it.
    pub(super) fn close(&mut self) {
        self.state = SubscriptionState::Closed;
        self.was_open = false;
    }

    /// The next event. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> SubscriptionEvent {
        loop {
            match &mut self.state {
                SubscriptionState::Closed => return std::future::pending().await,
                SubscriptionState::Opening(opening) => match opening.await {
                    Ok(batches) => {
                        self.state = SubscriptionState::Open(batches);
                        return if std::mem::replace(&mut self.was_open, true) {
                            SubscriptionEvent::Reopened
                        } else {
                            SubscriptionEvent::Opened
                        };
                    }
                    Err(_reported_by_the_store) => {
                        self.state = SubscriptionState::Pausing(Box::pin(sleep(PAUSE)));
                    }
                },
                SubscriptionState::Open(batches) => match batches.next().await {
                    Some(batch) => return SubscriptionEvent::Batch(batch),
                    None => self.state = SubscriptionState::opening(&self.store),
                },
                SubscriptionState::Pausing(pause) => {
                    pause.await;
                    self.state = SubscriptionState::opening(&self.store);
                }
            }
        }
    }
}

// === impl SubscriptionState ===

impl SubscriptionState {
    fn opening(store: &AnyStore) -> Self {
        let store = store.clone();
        Self::Opening(Box::pin(async move {
            match store.relay() {
                Some(relay) => relay.listen().await,
                None => Ok(futures_util::stream::pending().boxed()),
            }
        }))
    }
}
