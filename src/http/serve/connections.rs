//! Which connections are open, and which of them makes room for one more.
//!
//! Whoever opens many connections and says nothing on them must not keep out those who have
//! something to say: a connection that has been silent for longest is closed for a new one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pace::{Burden, Pace};

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The number of the next one. Older ones have smaller numbers.
    next: u64,
    by_age: BTreeMap<u64, Opened>,
    /// When somebody was searched for who makes room, and hardly anybody was found.
    searched: Option<Instant>,
    crowd: Crowd,
}

#[derive(Debug)]
struct Opened {
    pace: Arc<Pace>,
    make_room: CancellationToken,
}

/// What had to be done because there were too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    /// How many were closed to make room.
    pub(super) closed: u64,
    /// How many were not let in.
    pub(super) refused: u64,
}

/// The place of one connection. Dropped, there is room for another one.
#[derive(Debug)]
pub(super) struct Place {
    connections: Arc<Connections>,
    number: u64,
    pub(super) pace: Arc<Pace>,
    make_room: CancellationToken,
}

/// Which part of all connections makes room at once, so that the search for them is paid once for
/// many.
const SHARE: usize = 64;
/// For how long nobody is searched for after a search that found too few: a search looks at every
/// connection, and those who come in vain must not be able to keep the gateway busy with it.
const REST: Duration = Duration::from_millis(10);

// === impl Connections ===

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
        })
    }

    /// A place for one more; `None` if all that are open have something to do.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Place> {
        let mut open = self.lock();
        if open.by_age.len() >= self.most {
            open.make_room(self.most.div_ceil(SHARE), Instant::now());
        }
        if open.by_age.len() >= self.most {
            open.crowd.refused += 1;
            return None;
        }
        let number = open.next;
        open.next += 1;
        let (pace, make_room) = (Arc::new(Pace::new()), CancellationToken::new());
        let opened = Opened {
            pace: Arc::clone(&pace),
            make_room: make_room.clone(),
        };
        open.by_age.insert(number, opened);
        Some(Place {
            connections: Arc::clone(self),
            number,
            pace,
            make_room,
        })
    }

    /// What had to be done since the start.
    pub(super) fn crowd(&self) -> Crowd {
        self.lock().crowd
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Open ===

impl Open {
    /// Closes some that are missed least: first those that have never asked for anything, then
    /// those that ask for nothing now, then those that do not take their answers; the oldest of each
    /// first.
    fn make_room(&mut self, some: usize, now: Instant) {
        if let Some(searched) = self.searched
            && now.saturating_duration_since(searched) < REST
        {
            return;
        }
        self.searched = Some(now);
        for burden in [Burden::Never, Burden::Silent, Burden::Unread] {
            let found: Vec<_> = self
                .by_age
                .iter()
                .filter(|(_, opened)| opened.pace.burden() == burden)
                .map(|(number, _)| *number)
                .take(some)
                .collect();
            for number in &found {
                if let Some(opened) = self.by_age.remove(number) {
                    opened.make_room.cancel();
                    self.crowd.closed += 1;
                }
            }
            if found.len() == some {
                self.searched = None;
            }
            if !found.is_empty() {
                return;
            }
        }
    }
}

// === impl Place ===

impl Place {
    /// Ends when the connection is to make room.
    pub(super) async fn needed(&self) {
        self.make_room.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_needed(place: &Place) -> bool {
        place.make_room.is_cancelled()
    }

    #[test]
    fn the_oldest_that_never_asked_makes_room() {
        let connections = Connections::new(4);
        let places: Vec<_> = (0..4).map(|_| connections.admit().unwrap()).collect();
        // It has asked before, and is idle.
        places[0].pace.busy();
        places[0].pace.leaving();
        places[0].pace.left();
        // It is at its headers for the first time.
        places[1].pace.came();
        let fifth = connections.admit().unwrap();
        let needed: Vec<_> = places.iter().map(is_needed).collect();
        assert_eq!(needed, [false, true, false, false]);
        // Only one at a time of so few, and nothing is left of it.
        let sixth = connections.admit().unwrap();
        let needed: Vec<_> = places.iter().map(is_needed).collect();
        assert_eq!(needed, [false, true, true, false]);
        assert!(!is_needed(&fifth) && !is_needed(&sixth));
        assert_eq!(
            connections.crowd(),
            Crowd {
                closed: 2,
                refused: 0
            }
        );
    }

    #[test]
    fn one_that_is_being_answered_stays_and_nobody_else_comes_in() {
        let connections = Connections::new(2);
        let first = connections.admit().unwrap();
        let second = connections.admit().unwrap();
        for place in [&first, &second] {
            place.pace.busy();
            place.pace.arrived();
        }
        assert!(connections.admit().is_none());
        assert!(!is_needed(&first) && !is_needed(&second));
        drop(first);
        assert!(connections.admit().is_some());
        assert_eq!(
            connections.crowd(),
            Crowd {
                closed: 0,
                refused: 1
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_come_in_vain_are_not_all_searched_a_place_for() {
        let connections = Connections::new(2);
        let places = [(); 2].map(|()| connections.admit().unwrap());
        for place in &places {
            place.pace.busy();
            place.pace.arrived();
        }
        assert!(connections.admit().is_none());
        // It makes room as soon as somebody looks at it again.
        places[0].pace.leaving();
        places[0].pace.left();
        assert!(connections.admit().is_none() && !is_needed(&places[0]));
        tokio::time::advance(REST).await;
        assert!(connections.admit().is_some() && is_needed(&places[0]));
    }

    #[test]
    fn one_whose_body_does_not_come_makes_room() {
        let connections = Connections::new(1);
        let slow = connections.admit().unwrap();
        slow.pace.busy();
        let next = connections.admit();
        assert!(next.is_some() && is_needed(&slow));
        // Its end takes nobody's place.
        drop(slow);
        assert_eq!(connections.lock().by_age.len(), 1);
    }

    #[test]
    fn one_that_takes_nothing_of_its_answer_makes_room_last() {
        let connections = Connections::new(2);
        let unread = connections.admit().unwrap();
        unread.pace.busy();
        unread.pace.arrived();
        unread.pace.leaving();
        let silent = connections.admit().unwrap();
        let third = connections.admit().unwrap();
        assert!(is_needed(&silent) && !is_needed(&unread));
        third.pace.busy();
        third.pace.arrived();
        assert!(connections.admit().is_some());
        assert!(is_needed(&unread));
    }
}
