//! Very many names, each of which is locked once.

use futures_util::{StreamExt, stream};
use latchgate::store::{Store, redis::Slot};

use super::rig::{Rig, attempt, granted};
use crate::support::full;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_nothing_but_the_counters_of_their_slots() {
    let rig = Rig::start().await;
    let names = if full() { 1_000_000 } else { 20_000 };
    let turn = async |name: usize| {
        let asked = attempt(&format!("job:{name}"));
        granted(rig.store.acquire(&asked).await);
        rig.store.release(&asked.name, &asked.token).await.unwrap();
    };
    stream::iter(0..names).for_each_concurrent(100, turn).await;
    let keys = rig.server.keys().await;
    let others: Vec<_> = keys.iter().filter(|key| !key.ends_with(":fence")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(keys.len() <= Slot::COUNT, "{} counters", keys.len());
}
