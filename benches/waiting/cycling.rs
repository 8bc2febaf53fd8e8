//! Clients that take one lock in turns.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::rig::{Caller, Gateway};

static NAMES: AtomicU64 = AtomicU64::new(0);

/// What came of it.
pub(super) struct Cycled {
    pub(super) hand_offs: u64,
    took: Duration,
    least: u64,
    most: u64,
}

/// Lets the clients cycle until the time is over and each of them has had its turn.
pub(super) async fn measure(gateway: &Gateway, clients: usize, each: Duration) -> Cycled {
    let name: Arc<str> = format!("one:{}", NAMES.fetch_add(1, Ordering::Relaxed)).into();
    let ready = Arc::new(Barrier::new(clients + 1));
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..clients {
        let (name, ready, over) = (Arc::clone(&name), Arc::clone(&ready), Arc::clone(&over));
        let address = gateway.address();
        callers.spawn(async move {
            let mut caller = Caller::connect(address).await;
            ready.wait().await;
            let mut turns = 0;
            while !over.load(Ordering::Relaxed) {
                let token = caller.acquire(&name, r#"{"wait_ms":55000}"#).await;
                turns += 1;
                caller.release(&name, &token).await;
            }
            turns
        });
    }
    ready.wait().await;
    let started = Instant::now();
    sleep(each).await;
    over.store(true, Ordering::Relaxed);
    let turns: Vec<u64> = callers.join_all().await;
    Cycled {
        hand_offs: turns.iter().sum(),
        took: started.elapsed(),
        least: turns.iter().copied().min().unwrap_or_default(),
        most: turns.iter().copied().max().unwrap_or_default(),
    }
}

// === impl Cycled ===

impl Cycled {
    pub(super) fn per_second(&self) -> f64 {
        self.hand_offs as f64 / self.took.as_secs_f64()
    }

    /// By how many turns the least and the most served client differ.
    pub(super) fn spread(&self) -> u64 {
        self.most - self.least
    }
}

impl fmt::Display for Cycled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, .. } = self;
        write!(
            f,
            "{:>6.0} hand-offs/s, turns {least} to {most}",
            self.per_second()
        )
    }
}
