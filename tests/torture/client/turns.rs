//! Chooses a turn for a worker, with a fixed frequency for each kind of turn.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    process::{
        LEAVING, LOCKS, PATIENT, PATIENT_POOL, PLACES, QUICK, RECORDED, REQUESTED, RESTING,
        RESTING_POOL, SHARED,
    },
    worker::{Request, Room, Worker},
};
use crate::history::{Ask, Mode};

/// The longest pause of a worker after a turn with a contended lock, in ms.
pub(super) const REST: usize = 8;
/// How many locks a quick worker uses alone.
const OWN: u64 = 4;

// === impl Worker ===

impl Worker {
    pub(super) async fn take_a_turn(&mut self) {
        let locks = match self.room {
            Room::Rough => vec![LOCKS[self.random.below(4)].to_owned()],
            Room::Fair => vec![LOCKS[4 + self.random.below(2)].to_owned()],
            Room::Patient => return self.visit_patiently(PATIENT).await,
            Room::Resting => return self.visit_and_let_rest(RESTING).await,
            Room::Recorded => {
                let lock = format!("{RECORDED}:{}:{}", self.name, self.number);
                return self.visit_for_long(&lock).await;
            }
            Room::Ordering => return self.take_a_turn_with_orders().await,
            Room::Reserving => return self.take_a_turn_with_reservations().await,
            Room::Quick => {
                let own = self.turn % OWN;
                let lock = format!("{QUICK}:{}:{}:{own}", self.name, self.number);
                return self.visit_quickly(&lock).await;
            }
            Room::RoughSharing => vec![self.choose_shared(0)],
            Room::FairSharing => vec![self.choose_shared(2)],
            Room::Groups => return self.take_a_turn_with_several(false).await,
            Room::SharingGroups => return self.take_a_turn_with_several(true).await,
            Room::PatientSharing => {
                let (lock, places) = PATIENT_POOL;
                self.mode = self.pool_mode(places);
                return self.visit_patiently(lock).await;
            }
            Room::RestingSharing => {
                let (lock, places) = RESTING_POOL;
                self.mode = self.pool_mode(places);
                return self.visit_and_let_rest(lock).await;
            }
            Room::Leaving => {
                // Two workers share each lock, and the third waits for an exclusive lease and leaves the queue.
                self.mode = match self.number % 3 {
                    0 => Mode::Exclusive,
                    _ => Mode::Shared { limit: None },
                };
                let lock = format!("{LEAVING}:{}:{}", self.name, self.number / 3);
                return self.visit_or_leave(&lock).await;
            }
            Room::Requesting => {
                let lock = format!("{REQUESTED}:{}:{}", self.name, self.number / 2);
                return match self.number % 2 {
                    0 => self.keep(&lock).await,
                    _ => self.demand(&lock).await,
                };
            }
        };
        let lock = &locks[0];
        match (self.room, self.random.below(100)) {
            (Room::Fair | Room::FairSharing, 0..15) | (_, 0..10) => self.look(lock).await,
            (Room::Fair | Room::FairSharing, 15..18) | (_, 10..12) => self.break_it(lock).await,
            (Room::Fair | Room::FairSharing, _) | (_, 12..40) => self.visit(&locks).await,
            (_, 40..48) => self.hang_up_waiting(&locks).await,
            (_, 48..58) => self.hang_up_at_once(&locks).await,
            (_, 58..72) => self.visit_under_a_key(&locks).await,
            (_, 72..77) => self.let_it_lapse(lock).await,
            (_, 77..85) => self.forge(lock).await,
            (_, 85..93) => self.hold(lock).await,
            (_, _) => self.visit_impatiently(lock).await,
        }
        self.rest(REST).await;
    }

    /// Chooses one of two shared locks, and the mode.
    fn choose_shared(&mut self, first: usize) -> String {
        let is_pool = self.random.below(2) == 1;
        self.mode = if is_pool {
            self.pool_mode(PLACES)
        } else {
            self.reader_mode()
        };
        SHARED[first + usize::from(is_pool)].to_owned()
    }

    /// The mode for a pool: mostly shared with its limit, seldom exclusive.
    fn pool_mode(&mut self, places: u64) -> Mode {
        match self.random.below(12) {
            0 => Mode::Exclusive,
            _ => Mode::Shared {
                limit: Some(places),
            },
        }
    }

    /// The mode for readers and writers: exclusive, shared without a limit, or shared with a small limit.
    fn reader_mode(&mut self) -> Mode {
        let limit = match self.random.below(8) {
            0 | 1 => return Mode::Exclusive,
            2 => Some(2),
            3 => Some(6),
            _ => None,
        };
        Mode::Shared { limit }
    }

    /// Sleeps for a random time below this number of milliseconds.
    pub(super) async fn rest(&mut self, below: usize) {
        let ms = u64::try_from(self.random.below(below)).expect("a short while");
        sleep(Duration::from_millis(ms)).await;
    }

    /// Inspects a lock, or looks at its history now and then.
    pub(super) async fn look(&mut self, lock: &str) {
        if self.random.below(8) == 0 {
            return self.recall(lock).await;
        }
        let to = self.any_gateway();
        self.ask(&self.request(lock, to, Ask::Inspect)).await;
    }

    /// A request of a new errand, without a token.
    pub(super) fn request(&self, lock: &str, to: usize, ask: Ask) -> Request {
        Request {
            errand: self.errand(),
            lock: lock.to_owned(),
            to,
            ask,
            token: String::new(),
        }
    }

    /// The parts of a group request of a new errand.
    pub(super) fn requests(&self, locks: &[String], to: usize, ask: &Ask) -> Vec<Request> {
        let requests = locks.iter().enumerate();
        requests
            .map(|(at, lock)| self.request(lock, to, self.ask_for(at, ask)))
            .collect()
    }

    /// The request for the lock at this place of a group: in a mixed group, every second lock has the other mode.
    fn ask_for(&self, at: usize, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        if let Ask::Acquire { mode, .. } = &mut ask
            && self.mixes
            && at % 2 == 1
        {
            *mode = match mode {
                Mode::Exclusive => Mode::Shared { limit: None },
                Mode::Shared { .. } => Mode::Exclusive,
            };
        }
        ask
    }
}
