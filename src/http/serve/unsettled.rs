//! Grants that were answered on a connection, until it is known whether their answers have left.
//!
//! A grant that was handed to hyper may never leave: the caller hangs up before the answer is written, or
//! resets the connection while the answer stands in the kernel behind answers that were not read. An answer
//! counts as undelivered only if no byte of it was sent. Acknowledgements say nothing: a caller that reads
//! its answer and then resets has not acknowledged it, and a caller that is killed before it reads has.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tracing::debug;

use crate::engine::Delivery;

/// The delivery of a grant. Dropping it releases the lease.
pub(super) trait Deliverable {
    /// Marks the grant as delivered: its answer has left, or may yet leave.
    fn delivered(self);
}

/// The grants of one connection whose answers were handed to hyper. If a grant is dropped with its
/// connection, its answer was never sent.
#[derive(Debug)]
pub(super) struct UnsettledGrants<G = Delivery> {
    grants: Mutex<Vec<UnsettledGrant<G>>>,
    /// Number of grants in `grants`, so that a connection without grants need not take the lock.
    count: AtomicUsize,
    /// How many bytes the kernel has taken for sending on this connection.
    written: AtomicU64,
    /// Whether bytes have arrived from the client since the kernel last took bytes for sending.
    has_read_since_write: AtomicBool,
    /// Whether the request that is being answered arrived after the answers before it had been written.
    is_answered_alone: AtomicBool,
    /// Whether the first bytes of an answer with a grant have yet to be written.
    is_write_due: AtomicBool,
    /// Whether the connection has ended. This flag is written under the lock of `grants`.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct UnsettledGrant<G> {
    grant: G,
    /// How many bytes had been written when the grant was handed to hyper: the answer begins there, or behind
    /// other bytes that hyper or TLS had not written yet.
    begins_at: u64,
    /// Whether the next request on the connection shows that its caller has read the answer with this grant.
    next_request_settles: bool,
}

/// From this number of grants on, the kernel is asked which of them have left: callers that send requests
/// without waiting for answers, and callers over HTTP/2, do not show it.
const ASKED_FROM: usize = 16;
/// The largest number of grants that are kept. Beyond it the oldest grant counts as delivered, so its lease
/// is left to its TTL.
const MAX_UNSETTLED_GRANTS: usize = 64;

// === impl Deliverable ===

impl Deliverable for Delivery {
    fn delivered(self) {
        Self::delivered(self);
    }
}

// === impl UnsettledGrants ===

impl<G: Deliverable> UnsettledGrants<G> {
    /// Keeps a grant whose answer is handed to hyper now.
    pub(super) fn add(&self, grant: G) {
        let mut grants = self.grants.lock();
        if self.is_over.load(Ordering::Relaxed) {
            // No caller can receive the grant any more. The grant is dropped, which releases its lease, only
            // after the lock is free.
            drop(grants);
            return;
        }
        if grants.is_empty() {
            // Room for one grant is reserved, because most connections never have a second one.
            grants.reserve_exact(1);
        }
        grants.push(UnsettledGrant {
            grant,
            begins_at: self.written.load(Ordering::Acquire),
            next_request_settles: self.is_answered_alone.load(Ordering::Relaxed),
        });
        let excess = (grants.len() > MAX_UNSETTLED_GRANTS).then(|| grants.remove(0));
        self.count.store(grants.len(), Ordering::Release);
        drop(grants);
        self.is_write_due.store(true, Ordering::Release);
        if let Some(oldest) = excess {
            oldest.grant.delivered();
        }
    }

    /// Records that bytes have arrived from the client.
    pub(super) fn on_bytes_received(&self) {
        self.has_read_since_write.store(true, Ordering::Relaxed);
    }

    /// Records how many bytes the kernel has taken for sending, and whether these are all that it was
    /// offered.
    pub(super) fn on_bytes_written(&self, bytes: usize, are_all: bool) {
        // Only the task of the connection writes this counter, so load and store need not be one step.
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let written = self.written.load(Ordering::Relaxed).saturating_add(bytes);
        self.written.store(written, Ordering::Release);
        self.has_read_since_write.store(false, Ordering::Relaxed);
        if are_all {
            self.is_write_due.store(false, Ordering::Relaxed);
        }
    }

    /// Records the head of a request, on a connection that carries one request after the other.
    ///
    /// A caller that sends its next request after an answer was written has read that answer, unless the
    /// caller does not wait for answers. Such a caller shows in the request of the grant: that request
    /// arrived before the answers ahead of it were written. If such a caller does not show, because it reads
    /// nothing and yet sends its requests one by one, the TTL ends the lease.
    pub(super) fn on_next_request(&self) {
        let is_new = self.has_read_since_write.load(Ordering::Relaxed);
        self.is_answered_alone.store(is_new, Ordering::Relaxed);
        if is_new && self.count() > 0 {
            self.deliver(|grant| grant.next_request_settles);
        }
    }

    /// Whether the next bytes to be written are the first bytes of an answer with a grant.
    pub(super) fn is_write_due(&self) -> bool {
        self.is_write_due.load(Ordering::Acquire)
    }

    /// Whether there are so many grants that the kernel should be asked which of them have left.
    pub(super) fn are_many(&self) -> bool {
        self.count() >= ASKED_FROM
    }

    /// Marks the grants as delivered of which a byte is among the first `sent` bytes of the connection.
    pub(super) fn on_bytes_sent(&self, sent: u64) {
        self.deliver(|grant| sent > grant.begins_at);
    }

    /// Settles all grants when the connection is over. `sent` returns how many bytes have left, if no more
    /// can leave.
    pub(super) fn on_end(&self, sent: impl FnOnce() -> Option<u64>) {
        let grants = self.grants.lock();
        self.is_over.store(true, Ordering::Relaxed);
        let is_settled = grants.is_empty();
        drop(grants);
        if is_settled {
            return;
        }
        // Bytes that the kernel has not taken never left. Bytes that it has taken may still leave, unless the
        // connection broke.
        let written = self.written.load(Ordering::Acquire);
        let gone = sent().unwrap_or(u64::MAX).min(written);
        self.deliver(|grant| gone > grant.begins_at);
        let undelivered = std::mem::take(&mut *self.grants.lock());
        self.count.store(0, Ordering::Release);
        if !undelivered.is_empty() {
            let count = undelivered.len();
            debug!(count, "a caller hung up before its lease was sent");
        }
    }

    /// Removes the grants whose answers have left, and marks them as delivered.
    fn deliver(&self, mut has_left: impl FnMut(&UnsettledGrant<G>) -> bool) {
        loop {
            let mut grants = self.grants.lock();
            let Some(at) = grants.iter().position(&mut has_left) else {
                return;
            };
            let grant = grants.remove(at).grant;
            self.count.store(grants.len(), Ordering::Release);
            // The lock is released before the engine is told of the deliveries, so that no other task waits
            // for the lock.
            drop(grants);
            grant.delivered();
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }
}

impl<G> Default for UnsettledGrants<G> {
    fn default() -> Self {
        Self {
            grants: Mutex::default(),
            count: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            has_read_since_write: AtomicBool::new(false),
            is_answered_alone: AtomicBool::new(false),
            is_write_due: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A grant of a test, which records whether it was delivered or released.
    struct Witness(u32, Arc<Mutex<Outcomes>>);

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Outcomes {
        delivered: Vec<u32>,
        given_back: Vec<u32>,
    }

    impl Deliverable for Witness {
        fn delivered(mut self) {
            self.1.lock().delivered.push(self.0);
            self.0 = 0;
        }
    }

    impl Drop for Witness {
        fn drop(&mut self) {
            if self.0 > 0 {
                self.1.lock().given_back.push(self.0);
            }
        }
    }

    #[derive(Default)]
    struct Rig {
        grants: UnsettledGrants<Witness>,
        outcomes: Arc<Mutex<Outcomes>>,
    }

    impl Rig {
        /// A request arrives: alone, or in the same read as the requests before it.
        fn request(&self, is_alone: bool) {
            if is_alone {
                self.grants.on_bytes_received();
            }
            self.grants.on_next_request();
        }

        fn grant(&self, number: u32) {
            self.grants.add(Witness(number, Arc::clone(&self.outcomes)));
        }

        #[track_caller]
        fn check(&self, delivered: &[u32], given_back: &[u32]) {
            let outcomes = self.outcomes.lock();
            assert_eq!(outcomes.delivered, delivered, "delivered");
            assert_eq!(outcomes.given_back, given_back, "given back");
        }
    }

    #[test]
    fn the_next_request_settles_an_answer_that_was_waited_for() {
        let rig = Rig::default();
        rig.request(true);
        rig.grant(1);
        // The kernel had room for other bytes only, which were written before the answer with the grant.
        rig.grants.on_bytes_written(200, false);
        assert!(rig.grants.is_write_due());
        rig.grants.on_bytes_written(300, true);
        assert!(!rig.grants.is_write_due());
        rig.check(&[], &[]);
        rig.request(true);
        rig.check(&[1], &[]);
        assert_eq!(rig.grants.count(), 0);
        rig.grants.on_end(|| panic!("nothing is left to settle"));
    }

    #[test]
    fn requests_that_were_sent_before_the_answer_settle_nothing() {
        let rig = Rig::default();
        rig.request(true);
        rig.grants.on_bytes_written(100_000, true);
        // This request arrived together with the first request, so it does not show that an answer was read.
        rig.request(false);
        rig.grant(1);
        rig.grants.on_bytes_written(300, true);
        rig.request(false);
        rig.grants.on_bytes_written(100, true);
        // The next request arrived later, but its sender has shown that it does not wait for answers.
        rig.request(true);
        rig.check(&[], &[]);
        rig.grants.on_end(|| Some(64_000));
        rig.check(&[], &[1]);
    }

    #[test]
    fn a_connection_that_breaks_gives_back_what_never_left() {
        let rig = Rig::default();
        rig.request(true);
        rig.grants.on_bytes_written(1_000, true);
        for number in 1..=3 {
            rig.request(false);
            rig.grant(number);
            rig.grants.on_bytes_written(300, true);
        }
        // One byte of the first answer left, and none of the second.
        rig.grants.on_bytes_sent(1_001);
        rig.grants.on_bytes_sent(1_300);
        rig.check(&[1], &[]);
        // The first byte of the second answer is the last byte that left.
        rig.grants.on_end(|| Some(1_301));
        rig.check(&[1, 2], &[3]);
    }

    #[test]
    fn a_grant_of_which_not_a_byte_left_is_given_back() {
        let rig = Rig::default();
        rig.request(true);
        rig.grant(1);
        rig.grants.on_bytes_written(300, true);
        rig.grants.on_end(|| Some(0));
        rig.check(&[], &[1]);
    }

    #[test]
    fn what_may_yet_leave_counts_as_delivered() {
        let rig = Rig::default();
        rig.request(true);
        rig.grant(1);
        rig.grants.on_bytes_written(300, true);
        rig.request(false);
        rig.grant(2);
        rig.grants.on_end(|| None);
        // The second answer was never written, so its grant is released. The first was written, and may yet
        // leave.
        rig.check(&[1], &[2]);
    }

    #[test]
    fn a_grant_that_comes_when_the_connection_is_over_is_given_back_at_once() {
        let rig = Rig::default();
        rig.grants.on_end(|| None);
        rig.grant(1);
        rig.check(&[], &[1]);
    }

    #[test]
    fn keeps_no_more_than_so_many() {
        let rig = Rig::default();
        let most = u32::try_from(MAX_UNSETTLED_GRANTS).unwrap();
        for number in 1..=most + 2 {
            rig.grant(number);
            rig.grants.on_bytes_written(300, true);
        }
        rig.check(&[1, 2], &[]);
        assert!(rig.grants.are_many());
        rig.grants.on_bytes_sent(300 * u64::from(most));
        assert!(!rig.grants.are_many());
        assert_eq!(rig.grants.count(), 2);
        rig.grants.on_end(|| Some(300 * u64::from(most + 1)));
        let outcomes = rig.outcomes.lock();
        assert_eq!(outcomes.given_back, [most + 2]);
    }
}
