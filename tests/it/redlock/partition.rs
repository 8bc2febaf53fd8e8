//! Networks that are parted so that no two gateways reach the same nodes.

use std::sync::{Arc, atomic::Ordering};

use latchgate::store::{
    Store, StoreError,
    contract::{Acquisition, Renewal},
    redis::RedlockStore,
};
use tokio::task::JoinSet;

use super::{
    faults::{Seen, client},
    nodes::{open, quick, url},
    rig::{Rig, attempt, eventually, granted},
};
use crate::support::Cable;

/// A gateway with a cable to each of the nodes.
struct ProxiedGateway {
    cables: Vec<Cable>,
    store: Arc<RedlockStore>,
}

// === impl ProxiedGateway ===

impl ProxiedGateway {
    async fn start(rig: &Rig) -> Self {
        let mut cables = Vec::new();
        for server in &rig.nodes.servers {
            cables.push(Cable::to(server.port(), &rig.lifecycle).await);
        }
        let ports: Vec<_> = cables.iter().map(Cable::port).collect();
        Self {
            cables,
            store: Arc::new(open(&url(&ports), &quick(), &rig.lifecycle)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_ring_where_each_gateway_reaches_another_majority_nobody_is_inside_together() {
    let rig = Rig::start(3).await;
    let (seen, mut clients) = (Arc::new(Seen::default()), JoinSet::new());
    let mut gateways: Vec<ProxiedGateway> = Vec::new();
    for _ in 0..3 {
        let gateway = ProxiedGateway::start(&rig).await;
        granted(
            gateway
                .store
                .acquire(&attempt(&format!("warm-{}", gateways.len())))
                .await,
        );
        gateways.push(gateway);
    }
    // Any two of them have one node in common.
    for (place, gateway) in gateways.iter().enumerate() {
        gateway.cables[place].cut();
    }
    for gateway in &gateways {
        clients.spawn(client(Arc::clone(&gateway.store), Arc::clone(&seen)));
    }
    let have_been = async |more: u64| {
        let before = seen.visits.load(Ordering::SeqCst);
        eventually("so many were inside", async || {
            (seen.visits.load(Ordering::SeqCst) >= before + more).then_some(())
        })
        .await;
    };
    have_been(30).await;
    for (place, gateway) in gateways.iter().enumerate() {
        gateway.cables[place].mend();
    }
    have_been(30).await;
    seen.over.store(true, Ordering::SeqCst);
    while let Some(client) = clients.join_next().await {
        client.expect("nobody was inside together");
    }
    rig.nothing_left(&attempt("lock").name).await;
}

#[tokio::test]
async fn whoever_is_cut_off_from_a_majority_is_granted_nothing_and_loses_nothing_of_others() {
    let rig = Rig::start(3).await;
    let apart = ProxiedGateway::start(&rig).await;
    let held = attempt("held");
    let lease = granted(apart.store.acquire(&held).await);
    for cable in &apart.cables[1..] {
        cable.cut();
    }
    let cut_off = apart.store.acquire(&attempt("lock")).await;
    assert!(
        matches!(
            cut_off,
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_))
        ),
        "{cut_off:?}"
    );
    // The others go on, and what it holds is held.
    let other = attempt("lock");
    eventually("what was tried there is withdrawn", async || {
        let answer = rig.store.acquire(&other).await.ok()?;
        matches!(answer, Acquisition::Granted(_)).then_some(())
    })
    .await;
    let refused = rig.store.acquire(&attempt("held")).await;
    assert!(matches!(refused, Ok(Acquisition::Held(_))), "{refused:?}");

    for cable in &apart.cables {
        cable.mend();
    }
    eventually("it is told that the lock is held", async || {
        match apart.store.acquire(&attempt("lock")).await {
            Ok(Acquisition::Held(_)) => Some(()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    })
    .await;
    let renewed = eventually("it renews what it holds", async || {
        match apart.store.renew(&held.name, &held.token, None).await {
            Ok(Renewal::Renewed(renewed, _)) => Some(renewed.fence),
            Ok(lost) => panic!("{lost:?}"),
            Err(_) => None,
        }
    })
    .await;
    assert_eq!(renewed, lease.fence);
    rig.release(&other).await;
    rig.nothing_left(&other.name).await;
}
