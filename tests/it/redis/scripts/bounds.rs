//! The cost of each operation at the server, which does not depend on the amount of stored data.

use std::collections::VecDeque;

use crate::redis::prelude::*;

/// How often each command was called since the last call of this function.
pub(crate) async fn calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.text(&["INFO", "commandstats"]).await;
    server.run(&["CONFIG", "RESETSTAT"]).await;
    let call = |line: &str| {
        let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), stats.split(',').next()?.parse().ok()?))
    };
    let ours = |(command, _): &(String, u64)| {
        !["info", "config|resetstat", "client|setinfo", "type", "ping"].contains(&command.as_str())
    };
    stats.lines().filter_map(call).filter(ours).collect()
}

/// Parses a list of commands with the number of their calls.
fn expected(calls: &str) -> BTreeMap<String, u64> {
    let call = |call: &str| {
        let (command, count) = call.split_once(' ').unwrap();
        (command.to_owned(), count.parse().unwrap())
    };
    calls.split(", ").map(call).collect()
}

#[tokio::test]
async fn each_operation_is_one_round_trip_of_a_few_commands() {
    let rig = Rig::start().await;
    rig.warm_up().await;
    let asked = attempt("cost");
    // The examination after a new connection must have ended, because it sends commands as well.
    until("nobody else asks", async || {
        calls(&rig.server).await;
        rig.inspect(&asked.name).await.unwrap();
        let inspect = "evalsha 1, get 1, llen 1, lrange 1, mget 1, time 1";
        calls(&rig.server).await == expected(inspect)
    })
    .await;

    let fence = rig.grant(&asked).await.fence;
    let acquire = "evalsha 1, exists 1, time 1, set 2";
    assert_eq!(calls(&rig.server).await, expected(acquire));
    rig.must_pass("cost", fence).await;
    let check = "evalsha 1, get 1, pttl 1, time 1";
    assert_eq!(calls(&rig.server).await, expected(check));
    rig.must_renew(&asked, None).await;
    let renew = "evalsha 1, get 1, time 1, set 1";
    assert_eq!(calls(&rig.server).await, expected(renew));
    rig.must_release(&asked).await;
    let release = "evalsha 1, getrange 1, lindex 1, del 1";
    assert_eq!(calls(&rig.server).await, expected(release));

    let asked = rig.must_hold(keyed("cost", "a")).await;
    rig.must_release(&asked).await;
    let found = calls(&rig.server).await.values().sum::<u64>();
    assert_eq!(found, 12, "under a key");
}

#[tokio::test]
async fn a_renewal_is_one_script_whatever_its_ttl() {
    let rig = Rig::start().await;
    let asked = rig.must_hold(attempt("renewed")).await;
    for ttl in [None, Some(ttl(90_000)), Some(ttl(10_000)), None] {
        calls(&rig.server).await;
        rig.must_renew(&asked, ttl).await;
        assert_eq!(calls(&rig.server).await["evalsha"], 1, "{ttl:?}");
    }
}

#[tokio::test]
async fn a_hand_off_at_one_gateway_takes_fourteen_commands_with_both_scripts() {
    let rig = Rig::start().await;
    let mut holder = attempt("handed");
    rig.grant(&holder).await;
    let mut queue = VecDeque::new();
    let stand = async || {
        let asked = waiting(attempt("handed"));
        let place = rig.stand(&asked).await;
        (asked, place)
    };
    queue.push_back(stand().await);
    queue.push_back(stand().await);
    // A round or an examination in between adds calls, so the smallest number counts.
    let mut least = u64::MAX;
    for _ in 0..200 {
        calls(&rig.server).await;
        queue.push_back(stand().await);
        rig.must_release(&holder).await;
        least = least.min(calls(&rig.server).await.values().sum());
        (holder, _) = queue.pop_front().expect("somebody waits");
    }
    assert_eq!(least, 14);
}

/// A lock with a shared lease that outlives the test, after the examination of a new connection has ended.
async fn shared_and_quiet() -> (Rig, Attempt) {
    let rig = Rig::start().await;
    let stays = rig.must_hold(one_of(9, "cost")).await;
    let asked = rig.must_hold(one_of(9, "cost")).await;
    rig.must_renew(&asked, None).await;
    rig.must_release(&asked).await;
    until("nobody else asks", async || {
        calls(&rig.server).await;
        rig.inspect(&asked.name).await.unwrap();
        let seen = calls(&rig.server).await;
        seen.get("evalsha") == Some(&1) && seen.values().sum::<u64>() == 11
    })
    .await;
    (rig, stays)
}

#[tokio::test]
async fn each_operation_of_those_who_share_is_one_round_trip_of_a_few_commands() {
    let (rig, _stays) = shared_and_quiet().await;
    let asked = rig.must_hold(one_of(9, "cost")).await;
    let acquire = "bitpos 1, evalsha 1, getrange 1, hget 1, hlen 1, hset 1, lindex 1, llen 1, \
        mget 2, pexpire 4, set 1, setbit 1, time 1, zadd 1, zcard 2, zrange 2";
    assert_eq!(calls(&rig.server).await, expected(acquire));
    rig.must_renew(&asked, None).await;
    let renew = "evalsha 1, get 1, hget 1, hset 1, pexpire 4, time 1, zadd 1, zrange 1";
    assert_eq!(calls(&rig.server).await, expected(renew));
    rig.must_release(&asked).await;
    let release = "evalsha 1, getrange 2, hdel 1, hget 1, hlen 1, lindex 1, pexpire 1, setbit 1, \
        time 1, zcard 1, zrange 2, zrem 1";
    assert_eq!(calls(&rig.server).await, expected(release));
}

#[tokio::test]
async fn the_first_who_shares_a_lock_and_the_last_take_a_few_commands() {
    let (rig, stays) = shared_and_quiet().await;
    rig.must_release(&stays).await;
    let last = "del 1, evalsha 1, getrange 2, hget 1, hlen 1, lindex 1, time 1, zcard 1, zrange 1";
    assert_eq!(calls(&rig.server).await, expected(last));
    rig.grant(&reader("cost")).await;
    let first = "del 1, evalsha 1, get 1, hset 1, lindex 1, llen 1, mget 1, pexpire 3, set 2, \
        setbit 1, time 1, zadd 1";
    assert_eq!(calls(&rig.server).await, expected(first));
}

#[tokio::test]
async fn what_an_operation_costs_does_not_depend_on_how_many_share_the_lock() {
    let rig = Rig::start().await;
    let mut costs = Vec::new();
    for others in [1_usize, 200] {
        let lock = format!("cost:{others}");
        for _ in 0..others {
            rig.grant(&reader(&lock)).await;
        }
        // A round or an examination in between adds calls, so the smallest numbers count.
        let mut least = [u64::MAX; 3];
        for _ in 0..20 {
            let asked = one_of(900, &lock);
            let mut measured = Vec::new();
            calls(&rig.server).await;
            rig.grant(&asked).await;
            measured.push(calls(&rig.server).await.values().sum::<u64>());
            rig.must_renew(&asked, None).await;
            measured.push(calls(&rig.server).await.values().sum());
            rig.must_release(&asked).await;
            measured.push(calls(&rig.server).await.values().sum());
            for (least, measured) in least.iter_mut().zip(measured) {
                *least = (*least).min(measured);
            }
        }
        costs.push(least);
    }
    assert_eq!(costs[0], costs[1]);
}
