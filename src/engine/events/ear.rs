//! Hears the news of other gateways, on a connection that comes back by itself.

use std::{pin::Pin, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::time::{Sleep, sleep};

use crate::store::{AnyStore, Store, StoreError};

/// Hears the news of other gateways.
pub(super) struct Ear {
    store: AnyStore,
    state: State,
    /// Whether it has heard before, so that news may have been missed.
    heard: bool,
}

type Batches = BoxStream<'static, String>;

enum State {
    Closed,
    Opening(BoxFuture<'static, Result<Batches, StoreError>>),
    Open(Batches),
    Pausing(Pin<Box<Sleep>>),
}

/// What an ear hears.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sound {
    /// A batch of news.
    Batch(String),
    /// It hears.
    Opened,
    /// It hears again, and may have missed something meanwhile.
    Regained,
}

/// How soon it is tried again to listen.
const PAUSE: Duration = Duration::from_secs(1);

// === impl Ear ===

impl Ear {
    pub(super) fn new(store: AnyStore) -> Self {
        Self {
            store,
            state: State::Closed,
            heard: false,
        }
    }

    /// Begins to listen, if it does not already and there is anybody to listen to.
    pub(super) fn open(&mut self) {
        if let State::Closed = self.state
            && self.store.relay().is_some()
        {
            self.state = State::opening(&self.store);
        }
    }

    /// Whether it hears.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Stops listening.
    pub(super) fn close(&mut self) {
        self.state = State::Closed;
        self.heard = false;
    }

    /// The next sound. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Sound {
        loop {
            match &mut self.state {
                State::Closed => return std::future::pending().await,
                State::Opening(opening) => match opening.await {
                    Ok(batches) => {
                        self.state = State::Open(batches);
                        return if std::mem::replace(&mut self.heard, true) {
                            Sound::Regained
                        } else {
                            Sound::Opened
                        };
                    }
                    Err(_known_by_others) => self.state = State::Pausing(Box::pin(sleep(PAUSE))),
                },
                State::Open(batches) => match batches.next().await {
                    Some(batch) => return Sound::Batch(batch),
                    None => self.state = State::opening(&self.store),
                },
                State::Pausing(pause) => {
                    pause.await;
                    self.state = State::opening(&self.store);
                }
            }
        }
    }
}

// === impl State ===

impl State {
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
