//! Nodes that are far away: every message is late, and comes in pieces.

use std::sync::{Arc, atomic::Ordering};

use tokio::task::JoinSet;

use super::{
    faults::{Seen, client},
    nodes::{open, quick, url},
    rig::{Rig, attempt, eventually},
};
use crate::support::{Random, SlowWay, full};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_late_fences_rise_and_nobody_is_inside_together() {
    let mut random = Random::seeded();
    let rig = Rig::start(5).await;
    let (seen, mut clients) = (Arc::new(Seen::default()), JoinSet::new());
    for _ in 0..2 {
        let mut ports = Vec::new();
        for server in &rig.nodes.servers {
            let way = SlowWay::start(server.port(), &mut random, &rig.lifecycle).await;
            ports.push(way.port());
        }
        let gateway = Arc::new(open(&url(&ports), &quick(), &rig.lifecycle));
        for _ in 0..3 {
            clients.spawn(client(Arc::clone(&gateway), Arc::clone(&seen)));
        }
    }
    let visits = if full() { 400 } else { 40 };
    eventually("so many were inside", async || {
        (seen.visits.load(Ordering::SeqCst) >= visits).then_some(())
    })
    .await;
    seen.over.store(true, Ordering::SeqCst);
    while let Some(client) = clients.join_next().await {
        client.unwrap_or_else(|error| panic!("{error}, {}", random.how_to_repeat()));
    }
    rig.nothing_left(&attempt("lock").name).await;
}
