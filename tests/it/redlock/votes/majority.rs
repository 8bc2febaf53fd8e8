//! Without a majority of the nodes nothing is granted and nothing is lost; with a majority the quorum works as before.

use crate::redlock::prelude::*;

#[tokio::test]
async fn without_a_majority_the_answer_is_soon_that_nothing_happened_and_then_all_is_well_again() {
    let mut rig = Rig::start(3).await;
    let (held, _) = rig.grant_everywhere("held").await;
    let fence = rig.turn("lock").await;
    rig.server_mut(0).kill();
    rig.server(2).freeze();
    let start = Instant::now();
    assert_unavailable(rig.store.acquire(&attempt("lock")).await);
    // Ten times the deadline.
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    assert_health(&rig.store, "connection", Health::Outage, "").await;
    rig.server(2).thaw();
    eventually("a majority is enough", async || {
        let asked = attempt("lock");
        let lease = rig.store.acquire(&asked).await.ok()?;
        rig.release(&asked).await;
        Some(lease)
    })
    .await;
    assert!(rig.turn("lock").await > fence);
    rig.store.must_renew(&held, None).await;
    assert_health(&rig.store, "connection", Health::Warning, "").await;
    rig.server_mut(0).start_again().await;
    until_passing(&rig.store, "connection").await;
}

#[tokio::test]
async fn a_lease_is_renewed_and_released_with_a_minority_down() {
    let mut rig = Rig::start(5).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    rig.server_mut(1).kill();
    rig.server(4).freeze();
    for _ in 0..5 {
        rig.keeps(&asked, &lease).await;
    }
    rig.release(&asked).await;
    let fence = rig.turn("lock").await;
    assert!(fence > lease.fence.get());
    rig.server(4).thaw();
}

#[tokio::test]
async fn a_renewal_takes_no_node_again_and_without_a_majority_the_lease_is_lost() {
    let rig = Rig::start(3).await;
    let (asked, _) = rig.grant_everywhere("lock").await;
    rig.server(0).run(&["DEL", "lg:{lock}:lock"]).await;
    rig.store.must_renew(&asked, None).await;
    assert_eq!(rig.holds(&asked.name).await, 2);
    rig.server(1).run(&["DEL", "lg:{lock}:lock"]).await;
    let renewal = rig.store.renew(&asked.name, &asked.token, None).await;
    assert!(matches!(renewal, Ok(Renewal::Lost(_))), "{renewal:?}");
    // Leftovers of the acquire prevent no later grant.
    rig.nothing_left(&asked.name).await;
}

#[tokio::test]
async fn a_break_ends_the_lease_that_is_meant_at_every_node() {
    let rig = Rig::start(3).await;
    let (asked, lease) = rig.grant_everywhere("lock").await;
    rig.server(1).freeze();
    let target = Some(lease.fence.into());
    rig.store.must_break(&asked.name, target).await;
    let next = rig.grant(&attempt("lock")).await;
    assert!(next.fence > lease.fence);
    rig.server(1).thaw();
    let again = rig.store.break_lock(&asked.name, target).await;
    assert!(matches!(again, Ok(Breaking::HolderChanged(_))), "{again:?}");
    let renewal = rig.store.renew(&asked.name, &asked.token, None).await;
    assert!(matches!(renewal, Ok(Renewal::Lost(_))), "{renewal:?}");
}

#[tokio::test]
async fn a_foreign_client_that_has_a_majority_excludes_and_can_be_broken() {
    let rig = Rig::start(3).await;
    for node in [0, 2] {
        let taken = ["SET", "lg:{lock}:lock", "theirs", "NX", "PX", "30000"];
        rig.server(node).run(&taken).await;
    }
    let refused = rig.store.acquire(&attempt("lock")).await.unwrap();
    let text = format!("{refused:?}");
    assert!(text.contains("Foreign"), "{text}");
    let asked = attempt("lock");
    // `All` names shared leases, and this lease is exclusive.
    let kept = rig.store.break_lock(&asked.name, Some(BreakTarget::All));
    let kept = kept.await;
    assert!(matches!(kept, Ok(Breaking::HolderChanged(_))), "{kept:?}");
    rig.store.must_break(&asked.name, None).await;
    rig.nothing_left(&asked.name).await;
    rig.grant(&asked).await;
    // A foreign client that wants a majority of the nodes finds the lock held.
    for node in 0..3 {
        let held = rig.server(node).text(&["GET", "lg:{lock}:lock"]).await;
        assert_eq!(held, asked.token.to_string());
    }
}
