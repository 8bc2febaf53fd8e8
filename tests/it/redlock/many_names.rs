//! Very many names, each of which is locked once.

use std::{cell::Cell, time::Duration};

use futures_util::{StreamExt, stream};
use latchgate::store::{contract::Attempt, redis::Slot};
use tokio::time::timeout;

use super::{
    clocks,
    learning::NODE,
    rig::{Rig, attempt, eventually, ttl},
};
use crate::support::full;

/// Ten times what a node may be behind the others, and less than a lease of these lasts.
const SOON: Duration = Duration::from_secs(20);
/// For more seconds than an end is remembered.
const FORGOTTEN: i64 = 120;

/// The keys at all nodes that are neither counters nor what a node has learnt.
async fn others(rig: &Rig) -> Vec<String> {
    let mut others = Vec::new();
    for server in &rig.nodes.servers {
        let keys = server.keys().await;
        let counters = keys.iter().filter(|key| key.ends_with(":fence")).count();
        assert!(counters <= Slot::COUNT, "{counters} counters");
        let is_other = |key: &String| !key.ends_with(":fence") && key != NODE;
        others.extend(keys.into_iter().filter(is_other));
    }
    others
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_nothing_at_any_node_but_the_counters_of_their_slots_and_what_it_has_learnt() {
    let (rig, clocks) = clocks::rig(&[0, 0, 0]).await;
    let names = if full() { 100_000 } else { 5_000 };
    let turn = async |name: usize| {
        let asked = Attempt {
            ttl: ttl(60_000),
            ..attempt(&format!("job:{name}"))
        };
        rig.grant(&asked).await;
        rig.release(&asked).await;
    };
    stream::iter(0..names).for_each_concurrent(20, turn).await;
    let released = eventually("no lease is left", async || {
        let others = others(&rig).await;
        let ends = others.iter().all(|key| key.ends_with(":ended"));
        ends.then_some(())
    });
    timeout(SOON, released).await.expect("no lease is left");
    let ahead = Cell::new(0);
    eventually(
        "what is remembered of their ends is forgotten",
        async || {
            ahead.set(ahead.get() + FORGOTTEN);
            for clock in &clocks {
                clock.set(ahead.get());
            }
            others(&rig).await.is_empty().then_some(())
        },
    )
    .await;
}
