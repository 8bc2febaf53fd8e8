//! The lock is handed on when a lease expires, and not at the next sweep.

use tempfile::TempDir;

use super::place::{attempt, open};
use crate::support::prelude::*;

/// The writer sweeps a second after the last command. Every lease of this test ends long before.
const LATE: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_leases_that_expire_are_handed_off_at_once() {
    const TURNS: usize = 9;
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    let mut late = 0;
    for turn in 0..TURNS {
        // The TTL is not a divisor of a second.
        let ttl = Duration::from_millis(137 + 31 * turn as u64);
        let lock = format!("lock:{turn}");
        let holder = with(attempt(&lock), |it| {
            it.terms
                .set_ttl(Ttl::from_millis(u64::try_from(ttl.as_millis()).unwrap()).unwrap());
        });
        let held = Instant::now();
        let granted = store.acquire(&holder).await.unwrap();
        assert!(matches!(granted, Acquisition::Granted(_)), "{granted:?}");
        let next = Attempt {
            wait: Some(Waiting {
                max_wait: Duration::from_secs(50),
                longest_queue: 10,
                supersedes: None,
            }),
            ..attempt(&lock)
        };
        let mut place = store.stand(&next).await;
        let news = place.news().await;
        assert!(matches!(news, News::Granted(_)), "{news:?}");
        assert!(held.elapsed() >= ttl);
        late += usize::from(held.elapsed() > ttl + LATE);
    }
    // A busy machine delays some hand-offs; with the sweep, all would be late.
    assert!(late <= TURNS / 2, "{late} of {TURNS} came late");
    store.close().await;
}
