//! What an operation costs the server does not depend on what is stored.

use std::{collections::BTreeMap, time::Duration};

use latchgate::{
    lifecycle::Lifecycle,
    store::{
        Store,
        contract::{Acquisition, Renewal},
    },
};

use super::{
    leases::keyed,
    rig::{Rig, attempt, open, quick, ttl},
};

/// How often each command was called since the last time.
async fn calls(rig: &Rig) -> BTreeMap<String, u64> {
    let stats = rig.server.text(&["INFO", "commandstats"]).await;
    rig.server.run(&["CONFIG", "RESETSTAT"]).await;
    let call = |line: &str| {
        let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), stats.split(',').next()?.parse().ok()?))
    };
    let ours = |(command, _): &(String, u64)| {
        !["info", "config|resetstat", "client|setinfo", "type", "ping"].contains(&command.as_str())
    };
    stats.lines().filter_map(call).filter(ours).collect()
}

fn expected<const N: usize>(calls: [(&str, u64); N]) -> BTreeMap<String, u64> {
    calls
        .map(|(command, count)| (command.to_owned(), count))
        .into()
}

#[tokio::test]
async fn each_operation_is_one_round_trip_of_a_few_commands() {
    let rig = Rig::start().await;
    rig.grant(&attempt("warm")).await;
    let asked = attempt("cost");
    rig.store.inspect(&asked.name).await.unwrap();
    rig.store
        .renew(&asked.name, &asked.token, None)
        .await
        .unwrap();
    rig.store.release(&asked.name, &asked.token).await.unwrap();
    // The examination after a new connection has come and gone.
    super::rig::eventually("nobody else asks", async || {
        calls(&rig).await;
        rig.store.inspect(&asked.name).await.unwrap();
        let inspect = [
            ("evalsha", 1),
            ("get", 1),
            ("hlen", 1),
            ("hmget", 1),
            ("time", 1),
            ("zcard", 1),
            ("zrange", 1),
        ];
        let alone = expected(inspect);
        (calls(&rig).await == alone).then_some(())
    })
    .await;

    rig.grant(&asked).await;
    let acquire = [
        ("evalsha", 1),
        ("time", 1),
        ("exists", 1),
        ("get", 1),
        ("set", 2),
        ("hset", 1),
        ("pexpireat", 1),
    ];
    assert_eq!(calls(&rig).await, expected(acquire));
    rig.store
        .renew(&asked.name, &asked.token, None)
        .await
        .unwrap();
    let renew = [
        ("evalsha", 1),
        ("get", 1),
        ("hmget", 1),
        ("time", 1),
        ("pexpireat", 2),
    ];
    assert_eq!(calls(&rig).await, expected(renew));
    rig.store.release(&asked.name, &asked.token).await.unwrap();
    let release = [
        ("evalsha", 1),
        ("get", 1),
        ("hmget", 1),
        ("zrange", 1),
        ("del", 1),
    ];
    assert_eq!(calls(&rig).await, expected(release));
}

#[tokio::test]
async fn only_the_first_renewal_asks_twice_of_a_lease_that_was_made_shorter() {
    let rig = Rig::start().await;
    let asked = attempt("shortened");
    rig.grant(&asked).await;
    let renew = async |ttl| {
        calls(&rig).await;
        let renewed = rig.store.renew(&asked.name, &asked.token, ttl).await;
        let Ok(Renewal::Renewed(lease)) = renewed else {
            panic!("{renewed:?}");
        };
        (lease.expires_in, calls(&rig).await["evalsha"])
    };
    let (longer, shorter) = (Duration::from_secs(20), Duration::from_secs(10));
    assert_eq!(renew(Some(ttl(20_000))).await, (longer, 2));
    assert_eq!(renew(None).await, (longer, 1));
    assert_eq!(renew(Some(ttl(10_000))).await, (shorter, 1));
    assert_eq!(renew(Some(ttl(20_000))).await, (longer, 1));
    // Somebody renews it through another gateway, which has to ask, and so has this one then.
    let lifecycle = Lifecycle::new();
    let other = open(&rig.server.url(), &quick(), &lifecycle);
    other.renew(&asked.name, &asked.token, None).await.unwrap();
    assert_eq!(renew(None).await, (longer, 2));
    assert_eq!(renew(None).await, (longer, 1));
}

#[tokio::test]
async fn memories_are_cleared_away_a_few_at_a_time() {
    let rig = Rig::start().await;
    rig.grant(&attempt("warm")).await;
    let key = "lg:{many}:ended";
    let ended = 5_000;
    let fill = "for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], i, 'k:' .. i) end";
    rig.server
        .run(&["EVAL", fill, "1", key, &ended.to_string()])
        .await;
    let asked = keyed("many", "a");
    let granted = rig.store.acquire(&asked).await.unwrap();
    assert!(matches!(granted, Acquisition::Granted(_)), "{granted:?}");
    let left = rig.server.integer(&["ZCARD", key]).await;
    assert_eq!(left, ended - 16 + 1, "sixteen went, one came");
    rig.store.release(&asked.name, &asked.token).await.unwrap();
    assert_eq!(rig.server.integer(&["ZCARD", key]).await, left - 16 + 1);
}
