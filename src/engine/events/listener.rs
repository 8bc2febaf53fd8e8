//! Listeners to events, and how they read the journal.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::watch;

use crate::{engine::Engine, lock::NamePrefix};

use super::{bus::Bus, event::Event, subscribers::BusShared};

/// A listener to events. Dropping it ends the listening.
///
/// A listener has no queue, only a position in the journal: a listener that needs events which the journal no longer
/// has is disconnected: its last item is [`ListenerItem::Unread`].
pub struct Listener {
    shared: Arc<BusShared>,
    prefix: NamePrefix,
    /// The number of the next event to read.
    next: u64,
    /// The gap to report before any event is read, if there is one.
    first: Option<Event>,
    written: watch::Receiver<u64>,
    /// Whether the gateway was draining when the listener last read events.
    drained: bool,
}

/// What a listener receives. Any item except `Events` is the last.
#[derive(Debug)]
pub enum ListenerItem {
    /// Events with their numbers, the oldest first, of the names that the listener wants.
    Events(Vec<(u64, Arc<Event>)>),
    /// The listener left too many events unread.
    Unread,
    /// The gateway is about to stop.
    Draining,
}

/// Why a caller may not listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The gateway has as many listeners as are allowed.
    #[error("too many callers listen already")]
    TooMany,
    /// The gateway is about to stop.
    #[error("the gateway is draining")]
    Draining,
}

/// How many events a listener reads from the journal at once, at most.
const AT_ONCE: usize = 64;

// === impl Engine ===

impl Engine {
    /// Listens to the events of locks from now on, or from after the event with the id `behind`.
    ///
    /// The listener receives the events of this gateway after the call. Events of other gateways begin a moment
    /// later, when those gateways have been asked to send them. If the event with the id is not kept any more, or is
    /// of another gateway, the first event is a gap.
    pub fn listen(
        &self,
        prefix: NamePrefix,
        behind: Option<&str>,
    ) -> Result<Listener, ListenError> {
        if self.is_draining() {
            return Err(ListenError::Draining);
        }
        self.0.facts.events.listen(prefix, behind)
    }
}

// === impl Bus ===

impl Bus {
    fn listen(&self, prefix: NamePrefix, behind: Option<&str>) -> Result<Listener, ListenError> {
        let shared = &self.0;
        let mut subscribers = shared.subscribers.lock();
        if subscribers.listeners >= shared.most_listeners {
            return Err(ListenError::TooMany);
        }
        subscribers.join();
        shared.wanted.store(true, Ordering::Relaxed);
        let now = subscribers.next();
        let kept = subscribers.first..=now;
        // The number after the last event that the client read; none if the id is not of this run of the gateway.
        let after = behind.map(|id| shared.number_of(id).map(|number| number + 1));
        let (next, reason) = match after {
            None => (now, None),
            Some(Some(after)) if kept.contains(&after) => (after, None),
            Some(Some(after)) if after < *kept.start() => (*kept.start(), Some("too-old")),
            Some(_) => (now, Some("unknown-id")),
        };
        drop(subscribers);
        shared.changed.notify_one();
        Ok(Listener {
            shared: Arc::clone(shared),
            prefix,
            next,
            first: reason.map(|reason| Event::gap(reason, shared.clock.wall())),
            written: shared.written.subscribe(),
            drained: false,
        })
    }
}

// === impl BusShared ===

impl BusShared {
    /// The number in an event id, if the id is of this run of the gateway.
    fn number_of(&self, id: &str) -> Option<u64> {
        let (instance, number) = id.rsplit_once('-')?;
        let number = number.parse().ok().filter(|&number| number < u64::MAX)?;
        (instance == &*self.instance).then_some(number)
    }
}

// === impl Listener ===

impl Listener {
    /// The name of this run of the gateway, with which the ids of its events begin: `INSTANCE-NUMBER`.
    pub fn instance(&self) -> &str {
        &self.shared.instance
    }

    /// The number of the last event that was read or skipped.
    pub fn position(&self) -> u64 {
        self.next - 1
    }

    /// Waits for events. The future may be dropped and the method called again; after an item that ends the
    /// listening, no more events come.
    pub async fn next(&mut self) -> ListenerItem {
        if let Some(gap) = self.first.take() {
            return ListenerItem::Events(vec![(self.position(), Arc::new(gap))]);
        }
        let draining = self.shared.lifecycle.drained();
        let mut draining = std::pin::pin!(draining);
        loop {
            // Marked before reading: an event that is written meanwhile then wakes this listener.
            self.written.mark_unchanged();
            let drains = self.shared.lifecycle.is_draining();
            let read = self.shared.subscribers.lock().read(self.next, AT_ONCE);
            let Some(events) = read else {
                return ListenerItem::Unread;
            };
            if self.drained {
                return ListenerItem::Draining;
            }
            self.drained = drains;
            let all = events.len();
            let numbered = (self.next..).zip(events);
            self.next += all as u64;
            let wanted: Vec<_> = numbered.filter(|(_, event)| self.wants(event)).collect();
            if !wanted.is_empty() {
                return ListenerItem::Events(wanted);
            }
            if all == 0 && !drains {
                tokio::select! {
                    // An error is ignored: it would mean that the publisher has ended.
                    _ = self.written.changed() => {}
                    () = &mut draining => {}
                }
            }
        }
    }

    /// Whether the listener wants an event: of a lock with its prefix, or a gap, which concerns all listeners.
    fn wants(&self, event: &Event) -> bool {
        let name = event.name.as_ref();
        name.is_none_or(|name| self.prefix.covers(name))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.subscribers.lock().leave();
        self.shared.changed.notify_one();
    }
}
