//! The keys that the store writes, and that all of them expire.

use futures_util::{StreamExt, stream};

use crate::redis::prelude::*;
use crate::redis::waiting::gate::is_memory;

#[tokio::test]
async fn what_is_remembered_of_a_key_outlives_the_lease_by_a_minute() {
    let rig = Rig::start().await;
    let asked = rig.must_hold(keyed("instant", "a")).await;
    let keys = rig.keys().await;
    let of_key = keys.iter().find(|key| key.starts_with("lg:{instant}:key:"));
    let of_key = of_key.expect("it is remembered whose the key is");
    for new in [ttl(45_000), ttl(10_000)] {
        let expiry = async |key: &str| rig.integer(&["PEXPIRETIME", key]).await;
        let found = expiry(of_key).await;
        assert_eq!(found, expiry("lg:{instant}:lock").await + 60_000);
        rig.must_renew(&asked, Some(new)).await;
    }
}

#[tokio::test]
async fn a_store_holds_no_secret() {
    let rig = Rig::start().await;
    let asked = rig.must_hold(keyed("secret", "a")).await;
    let value = rig.text(&["GET", "lg:{secret}:lock"]).await;
    assert!(value.starts_with(&format!("2{}", asked.token)), "{value}");
}

#[tokio::test]
async fn every_key_but_the_fences_expires_and_only_fences_stay() {
    let rig = Rig::start().await;
    let mut fences = Vec::new();
    for n in 0..30 {
        // Some leases expire, some are released, some are undelivered; some have an idempotency key.
        let lock = format!("key-{n}");
        let plain = [attempt(&lock), keyed(&lock, "a")][n % 2].clone();
        let asked = with(plain, |it| it.terms.set_ttl(ttl(400)));
        fences.push(fence_key(&asked.name));
        rig.grant(&asked).await;
        match n % 3 {
            0 => rig.must_release(&asked).await,
            1 => rig.must_give_back(&asked, GiveBack::GivenBack).await,
            _ => {}
        }
    }
    for key in rig.keys().await {
        let left = rig.integer(&["PTTL", &key]).await;
        if fences.contains(&key) {
            assert_eq!(left, -1, "{key} stays");
        } else {
            assert!((-2..=60_400).contains(&left) && left != -1, "{key}: {left}");
        }
    }
    fences.sort();
    fences.dedup();
    until("all leases have ended", async || {
        let keys = rig.keys().await;
        let of_leases = |key: &&String| key.ends_with(":lock");
        keys.iter().find(of_leases).is_none()
    })
    .await;
    // The test does not wait for the minute after which tombstones expire.
    for key in rig.keys().await {
        if is_memory(&key) {
            rig.run(&["PEXPIRE", &key, "1"]).await;
        }
    }
    until("only fences are left", async || rig.keys().await == fences).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_names_leave_nothing_but_the_counters_of_their_slots() {
    let rig = Rig::start().await;
    let names = if full() { 1_000_000 } else { 20_000 };
    let turn = async |name: usize| {
        let asked = rig.must_hold(attempt(&format!("job:{name}"))).await;
        rig.must_release(&asked).await;
    };
    stream::iter(0..names).for_each_concurrent(100, turn).await;
    let keys = rig.keys().await;
    let others: Vec<_> = keys.iter().filter(|key| !key.ends_with(":fence")).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(keys.len() <= Slot::COUNT, "{} counters", keys.len());
}
