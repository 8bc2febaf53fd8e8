//! What a store finds out about its server, and what follows.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bb8_redis::redis::from_redis_value;
use latchgate::{
    clock::{Clock as _, ManualClock, SystemClock},
    lifecycle::Lifecycle,
    lock::FencingToken,
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Attempt, Breaking, Health, Inspection, Release, Renewal},
        parking::Parked,
        redis::RedisStore,
    },
};

use super::{
    foreign::fence_key,
    rig::{Rig, attempt, eventually, granted, health, name, open, quick},
    sharing::{one_of, shared_keys},
    waiting::gate::{TestGateway, waiting},
};
use crate::support::{RedisServer, url};

/// The commands of the documented ACL line.
pub(crate) const COMMANDS: &str = "+evalsha +eval +info +type +time +exists +get +getrange +set +del +pttl +pexpire +scan +mget \
    +getdel +rpush +lpush +lpop +rpop +lpos +lset +lrem +lindex +llen +lrange \
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
async fn a_permission_that_is_taken_away_leaves_no_lock_half_shared() {
    let server = RedisServer::start().await;
    for command in ["del", "setbit", "zadd", "hset", "pexpire"] {
        let lifecycle = Lifecycle::new();
        let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
        let store = store_as(&server, &lifecycle, &rules).await;
        let asked = || Attempt {
            sharing: one_of(2, "any").sharing,
            ..super::leases::keyed(&format!("half-{command}"), "a")
        };
        granted(store.acquire(&one_of(2, &format!("safe-{command}"))).await);
        let rule = |sign: &str| format!("{sign}{command}");
        server.run(&["ACL", "SETUSER", "gate", &rule("-")]).await;
        store.acquire(&asked()).await.unwrap_err();
        let key = format!("lg:{{half-{command}}}:lock");
        assert_eq!(server.text(&["GET", &key]).await, "", "{command}");
        server.run(&["ACL", "SETUSER", "gate", &rule("+")]).await;
        let lease = eventually("acquires are let through", async || {
            store.acquire(&asked()).await.ok()
        })
        .await;
        // What was granted nothing has not used its key.
        assert!(matches!(lease, Acquisition::Granted(_)), "{lease:?}");
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

/// The commands without which nobody is to lose anything. Without LPUSH and SET nothing can be put back: the id is asked
/// for again, and stands at the end.
fn taken_away() -> impl Iterator<Item = &'static str> {
    let commands = COMMANDS.split_whitespace().map(|it| &it[1..]);
    let spared = ["evalsha", "eval", "subscribe", "ping", "lpush", "set"];
    commands.filter(move |it| !spared.contains(it))
}

/// Ends a lease as its holder, its gateway or an operator does.
async fn end(
    store: &RedisStore,
    held: &Attempt,
    fence: FencingToken,
    by: &str,
) -> Result<(), StoreError> {
    match by {
        "release" => store.release(&held.name, &held.token).await.map(drop),
        "give-back" => store.give_back(&held.name, &held.token).await.map(drop),
        _ => {
            let target = Some(fence.into());
            store.break_lock(&held.name, target).await.map(drop)
        }
    }
}

/// The same while the user may not do this.
async fn end_without(
    command: &str,
    server: &RedisServer,
    ended: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), StoreError> {
    let rule = |sign: &str| format!("{sign}{command}");
    server.run(&["ACL", "SETUSER", "gate", &rule("-")]).await;
    let ended = ended.await;
    server.run(&["ACL", "SETUSER", "gate", &rule("+")]).await;
    ended
}

/// Lets an attempt stand in the queue, and answers its id.
async fn stand(store: &RedisStore, asked: Attempt) -> (Parked, String) {
    let asked = waiting(asked);
    let place = store.parking().park(asked.name.clone(), asked.token);
    let queued = store.acquire(&asked).await;
    assert!(matches!(queued, Ok(Acquisition::Queued(_))), "{queued:?}");
    (place, format!("2{}", asked.token))
}

/// Asserts that these stand in the queue, in this order, with their tickets.
async fn assert_stand(server: &RedisServer, lock: &str, ids: &[&String], why: &str) {
    let queue = format!("lg:{{{lock}}}:wait");
    let queued = list(server, &["LRANGE", &queue, "0", "-1"]).await;
    assert!(queued.iter().eq(ids.iter().copied()), "{why}: {queued:?}");
    for id in ids {
        let ticket = format!("lg:{{{lock}}}:of:{id}");
        let state = server.text(&["GETRANGE", &ticket, "0", "0"]).await;
        assert_eq!(state, "q", "{why}");
    }
}

/// The ids of those who share a lock, in the order of their slots, which are the first ones.
async fn in_slots(server: &RedisServer, lock: &str, why: &str) -> Vec<String> {
    let leases = list(server, &["HVALS", &format!("lg:{{{lock}}}:leases")]).await;
    let slot_of = |lease: &String| -> usize {
        let (_, slot) = lease.rsplit_once('\n').expect("it has a slot");
        slot.parse().expect("a slot is a number")
    };
    let mut by_slots: Vec<_> = leases.iter().map(|it| (slot_of(it), &it[..65])).collect();
    by_slots.sort_unstable();
    let slots = by_slots.iter().map(|(slot, _)| *slot);
    assert!(slots.eq(0..leases.len()), "{why}: {by_slots:?}");
    by_slots.iter().map(|(_, id)| (*id).to_owned()).collect()
}

async fn list(server: &RedisServer, command: &[&str]) -> Vec<String> {
    from_redis_value(server.run(command).await).expect("it is a list of texts")
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_in_the_queue() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
    let here = store_as(&server, &lifecycle, &rules).await;
    let there = TestGateway::on(&server).await;
    for (n, command) in taken_away().enumerate() {
        for (waits_here, by) in [
            (true, "release"),
            (false, "release"),
            (n % 2 == 0, "give-back"),
            (n % 2 == 1, "break"),
        ] {
            let lock = format!("{command}-{by}-{waits_here}");
            let held = attempt(&lock);
            let fence = granted(here.acquire(&held).await).fence;
            let store = if waits_here { &here } else { &*there.store };
            let (_place, id) = stand(store, attempt(&lock)).await;
            let ended = end_without(command, &server, end(&here, &held, fence, by)).await;
            let key = format!("lg:{{{lock}}}:lock");
            if let Err(error) = ended {
                // "Nothing happened" must be true, and the command can be repeated.
                let why = format!("{lock} -{command}: {error}");
                let holder = server.text(&["GETRANGE", &key, "1", "64"]).await;
                assert_eq!(holder, held.token.to_string(), "{why}");
                assert_stand(&server, &lock, &[&id], &why).await;
                end(&here, &held, fence, by).await.unwrap();
            }
            let holder = server.text(&["GETRANGE", &key, "0", "64"]).await;
            assert_eq!(holder, id, "{lock} -{command}");
        }
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_who_is_to_share_the_lock() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
    let here = store_as(&server, &lifecycle, &rules).await;
    let there = TestGateway::on(&server).await;
    for (n, command) in taken_away().enumerate() {
        for (waits_here, by) in [
            (true, "release"),
            (false, "release"),
            (n % 2 == 0, "give-back"),
            (n % 2 == 1, "break"),
        ] {
            let lock = format!("{command}-{by}-{waits_here}");
            let why = format!("{lock} -{command}");
            let held = attempt(&lock);
            let fence = granted(here.acquire(&held).await).fence;
            let stores = [&here, &*there.store];
            let [one, other] = if waits_here { [0, 1] } else { [1, 0] };
            let (_first, first) = stand(stores[one], one_of(3, &lock)).await;
            let (_second, second) = stand(stores[other], one_of(3, &lock)).await;
            // It is not to share the lock, and its gateway is looked after all the same.
            let (_last, last) = stand(&there.store, attempt(&lock)).await;
            let ended = end_without(command, &server, end(&here, &held, fence, by)).await;
            if let Err(error) = ended {
                let why = format!("{why}: {error}");
                let [key, shared, leases, slots] = &shared_keys(&lock);
                let holder = server.text(&["GETRANGE", key, "1", "64"]).await;
                assert_eq!(holder, held.token.to_string(), "{why}");
                let left = server.integer(&["PTTL", key]).await;
                assert!((1..=30_000).contains(&left), "{why}: {left}");
                assert_stand(&server, &lock, &[&first, &second, &last], &why).await;
                let remains = server.integer(&["EXISTS", shared, leases, slots]).await;
                assert_eq!(remains, 0, "{why}");
                end(&here, &held, fence, by).await.unwrap();
            }
            // Who comes looks first whether those before it can be granted the lock.
            let comes = there.store.acquire(&one_of(3, &lock)).await;
            assert!(matches!(comes, Ok(Acquisition::Held(_))), "{comes:?}");
            assert_eq!(
                in_slots(&server, &lock, &why).await,
                [first, second],
                "{why}"
            );
            assert_stand(&server, &lock, &[&last], &why).await;
        }
    }
}

#[tokio::test]
async fn a_permission_that_is_taken_away_costs_nobody_a_place_beside_those_who_share_the_lock() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
    let here = store_as(&server, &lifecycle, &rules).await;
    let there = TestGateway::on(&server).await;
    for (n, command) in taken_away().enumerate() {
        for (waits_here, by) in [
            (true, "release"),
            (false, "release"),
            (n % 2 == 0, "give-back"),
            (n % 2 == 1, "break"),
        ] {
            let lock = format!("{command}-{by}-{waits_here}");
            let why = format!("{lock} -{command}");
            let [held, stays] = [one_of(2, &lock), one_of(2, &lock)];
            let fence = granted(here.acquire(&held).await).fence;
            granted(here.acquire(&stays).await);
            let stays = format!("2{}", stays.token);
            let store = if waits_here { &here } else { &*there.store };
            let (_place, waits) = stand(store, one_of(2, &lock)).await;
            let (_last, last) = stand(&there.store, attempt(&lock)).await;
            let ended = end_without(command, &server, end(&here, &held, fence, by)).await;
            if let Err(error) = ended {
                let why = format!("{why}: {error}");
                let id = format!("2{}", held.token);
                let holders = [id, stays.clone()];
                assert_eq!(in_slots(&server, &lock, &why).await, holders, "{why}");
                assert_stand(&server, &lock, &[&waits, &last], &why).await;
                end(&here, &held, fence, by).await.unwrap();
            }
            let comes = there.store.acquire(&one_of(2, &lock)).await;
            assert!(matches!(comes, Ok(Acquisition::Held(_))), "{comes:?}");
            assert_eq!(
                in_slots(&server, &lock, &why).await,
                [waits, stays],
                "{why}"
            );
            assert_stand(&server, &lock, &[&last], &why).await;
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
