//! Callers of the gateway, each with locks that nobody else uses.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use crate::rig::Caller;

static CALLERS: AtomicU64 = AtomicU64::new(0);

/// Runs pairs on this many connections for this long.
pub(crate) async fn pairs_per_second(
    address: SocketAddr,
    connections: usize,
    each: Duration,
) -> f64 {
    let pairs = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    let started = Instant::now();
    for _ in 0..connections {
        let pairs = Arc::clone(&pairs);
        callers.spawn(async move {
            let number = CALLERS.fetch_add(1, Ordering::Relaxed);
            let mut caller = Caller::connect(address).await;
            for turn in 0_u64.. {
                let name = format!("bench:{number}:{turn}");
                let token = caller.acquire(&name, "").await;
                caller.release(&name, &token).await;
                pairs.fetch_add(1, Ordering::Relaxed);
                if started.elapsed() >= each {
                    break;
                }
            }
        });
    }
    callers.join_all().await;
    pairs.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}
