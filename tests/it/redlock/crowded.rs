//! More callers at once than the nodes answer in their time.

use futures_util::future::join_all;
use latchgate::{
    config::RedlockConfig,
    store::{Store, contract::Acquisition},
};
use tokio::time::Instant;

use super::{
    nodes::{self, quick},
    rig::{Rig, attempt},
};

/// As many as a busy machine serves within the time for which they wait for room.
const CALLERS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_granted_their_locks_one_after_the_other() {
    let rig = Rig::start(3).await;
    // As it is where nothing else is said.
    let config = RedlockConfig {
        node_timeout_ms: RedlockConfig::default().node_timeout_ms,
        ..quick()
    };
    let store = nodes::open(&rig.nodes.url(), &config, &rig.lifecycle);
    let begun = Instant::now();
    let callers = (0..CALLERS).map(async |caller| {
        let asked = attempt(&format!("lock:{caller}"));
        let outcome = store.acquire(&asked).await;
        (asked, outcome)
    });
    let mut refused = Vec::new();
    for (asked, outcome) in join_all(callers).await {
        match outcome {
            Ok(Acquisition::Granted(_)) => {
                store.release(&asked.name, &asked.token).await.unwrap();
            }
            other => refused.push(other),
        }
    }
    println!("{CALLERS} callers at once: {:?}", begun.elapsed());
    assert!(
        refused.is_empty(),
        "{} of {CALLERS}: {:?}",
        refused.len(),
        refused[0]
    );
}
