//! What a store finds out about its server, and what follows.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use latchgate::{
    clock::{Clock as _, ManualClock, SystemClock},
    lifecycle::Lifecycle,
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Breaking, Health, Inspection, Release, Renewal},
        redis::RedisStore,
    },
};

use super::{
    foreign::fence_key,
    rig::{Rig, attempt, eventually, granted, health, name, open, quick},
    waiting::gate::{TestGateway, waiting},
};
use crate::support::{RedisServer, url};

/// The commands of the documented ACL line.
pub(crate) const COMMANDS: &str = "+evalsha +eval +info +type +time +exists +get +getrange +set +del +pttl +pexpire +scan +mget \
    +getdel +setrange +rpush +lpush +lpop +rpop +lpos +lset +lrem +lindex +llen +lrange \
    +setbit +bitpos +hset +hget +hmget +hvals +hlen +hdel +zadd +zcard +zcount +zrange +zrem \
    +publish +subscribe +ping";

/// A user with these rules, and a store that logs in as this user.
pub(super) async fn store_as(
    server: &RedisServer,
    lifecycle: &Lifecycle,
    rules: &str,
) -> RedisStore {
    let mut command = vec!["ACL", "SETUSER", "gate", "reset", "on", ">s3cret"];
    command.extend(rules.split_whitespace());
    assert_eq!(server.text(&command).await, "OK");
    open(&server.url_as("gate", "s3cret"), &quick(), lifecycle)
}

#[track_caller]
fn misconfigured<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(what))) => what,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_healthy_server_passes_every_check() {
    let rig = Rig::start().await;
    let checks = rig.store.check().await;
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["connection", "permissions", "eviction", "clock"]);
    for check in checks {
        assert_eq!(check.health, Health::Passing, "{}", check.name);
    }
    assert_eq!(
        rig.server.keys().await,
        [""; 0],
        "the probe leaves nothing behind"
    );
}

#[tokio::test]
async fn checks_that_are_asked_for_together_are_one_examination() {
    let rig = Rig::start().await;
    rig.store.check().await;
    rig.server.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..50 {
        rig.store.check().await;
    }
    let stats = rig.server.text(&["INFO", "commandstats"]).await;
    let publish = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    let probes: u64 = publish.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap());
    assert!(probes < 10, "{probes} probes for 50 checks");
}

#[tokio::test]
async fn the_documented_user_may_do_everything_that_is_needed() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let store = store_as(
        &server,
        &lifecycle,
        &format!("~lg:* &lg:* -@all {COMMANDS}"),
    )
    .await;
    for check in store.check().await {
        assert_eq!(check.health, Health::Passing, "{}", check.name);
    }
    let asked = super::leases::keyed("as-user", "a");
    granted(store.acquire(&asked).await);
    store
        .acquire(&super::leases::keyed("as-user", "a"))
        .await
        .unwrap();
    let inspection = store.inspect(&asked.name).await.unwrap();
    assert!(matches!(
        inspection,
        Inspection {
            holder: Some(_),
            ..
        }
    ));
    let renewal = store.renew(&asked.name, &asked.token, None).await.unwrap();
    assert!(matches!(renewal, Renewal::Renewed(..)));
    let page = store.list(&super::list::all(10, None)).await.unwrap();
    assert_eq!(page.locks.len(), 1);
    let released = store.release(&asked.name, &asked.token).await.unwrap();
    assert_eq!(released, Release::Released);
    let free = store.break_lock(&asked.name, None).await.unwrap();
    assert_eq!(free, Breaking::NotHeld);
    store.give_back(&asked.name, &asked.token).await.unwrap();
    server.run(&["RPUSH", "lg:{wrong}:lock", "x"]).await;
    let foreign = store.acquire(&attempt("wrong")).await.unwrap_err();
    assert!(
        matches!(foreign, StoreError::ForeignData { .. }),
        "{foreign:?}"
    );
}

#[tokio::test]
async fn a_user_that_lacks_a_command_is_told_which_and_granted_nothing() {
    let server = RedisServer::start().await;
    for command in COMMANDS.split_whitespace() {
        let told_otherwise = [
            "+info",
            "+scan",
            "+type",
            "+eval",
            "+publish",
            "+subscribe",
            "+ping",
        ];
        if told_otherwise.contains(&command) {
            continue;
        }
        let lifecycle = Lifecycle::new();
        let lacking = command.replace('+', "-");
        let rules = format!("~lg:* &lg:* -@all {COMMANDS} {lacking}");
        let store = store_as(&server, &lifecycle, &rules).await;
        let what = misconfigured(store.acquire(&attempt("lacking")).await);
        let named = lacking.trim_start_matches('-').to_uppercase();
        let (why, line) = what
            .split_once("; give the user")
            .expect("it says what helps");
        // A script that is refused before it begins names the command in the words of the server.
        let words = why.to_uppercase();
        let mut words = words.split(|c: char| !c.is_alphanumeric());
        assert!(words.any(|word| word == named), "{named}: {what}");
        assert!(line.contains("ACL SETUSER"), "{what}");
        match health(&store, "permissions").await {
            Some(Health::Misconfigured(found)) => assert_eq!(found, what),
            other => panic!("{command}: {other:?}"),
        }
        assert_eq!(server.keys().await, [""; 0], "{command}");
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_leaves_no_lock_half_granted() {
    let server = RedisServer::start().await;
    for command in ["+set", "+time", "+exists"] {
        let lifecycle = Lifecycle::new();
        let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
        let store = store_as(&server, &lifecycle, &rules).await;
        granted(
            store
                .acquire(&attempt(&format!("safe{command}").replace('+', "-")))
                .await,
        );
        server
            .run(&["ACL", "SETUSER", "gate", &command.replace('+', "-")])
            .await;
        let what = misconfigured(store.acquire(&super::leases::keyed("half", "a")).await);
        assert!(what.contains("permission"), "{what}");
        assert_eq!(
            server.text(&["GET", "lg:{half}:lock"]).await,
            "",
            "{command}"
        );
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_leaves_no_lock_half_released() {
    let server = RedisServer::start().await;
    for command in ["set", "lpop", "del"] {
        let lifecycle = Lifecycle::new();
        let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
        let store = store_as(&server, &lifecycle, &rules).await;
        for give_back in [false, true] {
            let held = super::leases::keyed(&format!("half-{command}-{give_back}"), "a");
            granted(store.acquire(&held).await);
            let end = async || {
                if give_back {
                    store.give_back(&held.name, &held.token).await.map(drop)
                } else {
                    store.release(&held.name, &held.token).await.map(drop)
                }
            };
            let forbidden = format!("-{command}");
            server.run(&["ACL", "SETUSER", "gate", &forbidden]).await;
            end().await.unwrap_err();
            let lock = format!("lg:{{{}}}:lock", held.name);
            // "Nothing happened" must be true, and the command can be repeated.
            assert_eq!(
                server.text(&["GETRANGE", &lock, "1", "64"]).await,
                held.token.to_string(),
                "{command}"
            );
            let allowed = format!("+{command}");
            server.run(&["ACL", "SETUSER", "gate", &allowed]).await;
            end().await.unwrap();
            assert_eq!(server.text(&["GET", &lock]).await, "", "{command}");
        }
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_in_the_queue() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
    let here = store_as(&server, &lifecycle, &rules).await;
    let there = TestGateway::on(&server).await;
    let commands = COMMANDS.split_whitespace().map(|it| &it[1..]);
    // Without LPUSH and SET nothing can be put back: the id is asked for again, and stands at the end.
    let spared = ["evalsha", "eval", "subscribe", "ping", "lpush", "set"];
    let commands = commands.filter(|it| !spared.contains(it));
    for (n, command) in commands.enumerate() {
        for (waits_here, ends_by) in [
            (true, "release"),
            (false, "release"),
            (n % 2 == 0, "give-back"),
            (n % 2 == 1, "break"),
        ] {
            let lock = format!("{command}-{ends_by}-{waits_here}");
            let held = attempt(&lock);
            let lease = granted(here.acquire(&held).await);
            let waits = waiting(attempt(&lock));
            let store = if waits_here { &here } else { &*there.store };
            let _place = store.parking().park(waits.name.clone(), waits.token);
            let queued = store.acquire(&waits).await;
            assert!(matches!(queued, Ok(Acquisition::Queued(_))), "{queued:?}");
            let end = async || match ends_by {
                "release" => here.release(&held.name, &held.token).await.map(drop),
                "give-back" => here.give_back(&held.name, &held.token).await.map(drop),
                _ => {
                    let target = Some(lease.fence.into());
                    here.break_lock(&held.name, target).await.map(drop)
                }
            };
            let [lock, queue] = ["lock", "wait"].map(|it| format!("lg:{{{lock}}}:{it}"));
            let id = format!("2{}", waits.token);
            let ticket = queue.replace(":wait", &format!(":of:{id}"));
            server
                .run(&["ACL", "SETUSER", "gate", &format!("-{command}")])
                .await;
            let ended = end().await;
            server
                .run(&["ACL", "SETUSER", "gate", &format!("+{command}")])
                .await;
            if let Err(error) = ended {
                // "Nothing happened" must be true, and the command can be repeated.
                let why = format!("{lock} -{command}: {error}");
                let holder = server.text(&["GETRANGE", &lock, "1", "64"]).await;
                assert_eq!(holder, held.token.to_string(), "{why}");
                assert_eq!(server.text(&["LINDEX", &queue, "0"]).await, id, "{why}");
                assert_eq!(
                    server.text(&["GETRANGE", &ticket, "0", "0"]).await,
                    "q",
                    "{why}"
                );
                end().await.unwrap();
            }
            let holder = server.text(&["GETRANGE", &lock, "0", "64"]).await;
            assert_eq!(holder, id, "{lock} -{command}");
        }
    }
}

#[tokio::test]
async fn a_missing_channel_is_reported_and_a_missing_key_pattern_refused() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let rules = format!("~lg:* resetchannels -@all {COMMANDS}");
    let store = store_as(&server, &lifecycle, &rules).await;
    granted(store.acquire(&attempt("channel")).await);
    match health(&store, "permissions").await {
        Some(Health::Misconfigured(what)) => assert!(what.contains("&lg:*"), "{what}"),
        other => panic!("{other:?}"),
    }
    let store = store_as(
        &server,
        &lifecycle,
        &format!("~app:* &lg:* -@all {COMMANDS}"),
    )
    .await;
    let what = misconfigured(store.acquire(&attempt("pattern")).await);
    assert!(what.contains("~lg:*"), "{what}");
}

#[tokio::test]
async fn permissions_that_are_given_later_are_found_by_itself() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let lacking = format!("~lg:* &lg:* -@all {COMMANDS} -lset");
    let store = store_as(&server, &lifecycle, &lacking).await;
    misconfigured(store.acquire(&attempt("later")).await);
    server.run(&["ACL", "SETUSER", "gate", "+lset"]).await;
    eventually("acquires are let through", async || {
        store.acquire(&attempt("later")).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_database_that_the_server_lacks_is_told_with_what_helps() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let database = |login: &str| url(&format!("redis://{login}127.0.0.1:{}/99", server.port()));
    let store = open(&database(""), &quick(), &lifecycle);
    let what = misconfigured(store.acquire(&attempt("nowhere")).await);
    assert!(what.contains("no database 99"), "{what}");
    assert!(what.contains("`databases`"), "{what}");
    assert!(!what.contains("ACL"), "{what}");

    let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
    drop(store_as(&server, &lifecycle, &rules).await);
    let store = open(&database("gate:s3cret@"), &quick(), &lifecycle);
    let what = misconfigured(store.acquire(&attempt("nowhere")).await);
    assert!(what.contains("+select"), "{what}");
}

#[tokio::test]
async fn clocks_that_differ_and_fences_ahead_of_the_time_are_worth_a_look() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let wall: SystemTime = SystemClock.wall();
    let slow = Arc::new(ManualClock::at(wall - Duration::from_hours(1)));
    let store = RedisStore::open(&server.url(), &quick(), slow, &lifecycle);
    assert!(matches!(
        health(&store, "clock").await,
        Some(Health::Warning(_))
    ));
    granted(store.acquire(&attempt("slow")).await);

    let rig = Rig::on(server);
    let ahead = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_hours(1);
    let key = fence_key(&name("ahead"));
    rig.server
        .run(&["SET", &key, &ahead.as_micros().to_string()])
        .await;
    rig.grant(&attempt("ahead")).await;
    eventually("the fence is found to be ahead", async || {
        match rig.health("clock").await {
            Some(Health::Warning(what)) => what.contains("fencing").then_some(()),
            _ => None,
        }
    })
    .await;
}
