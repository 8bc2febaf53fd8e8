//! The examination of a server by the store, and its consequences.

use std::time::SystemTime;

use latchgate::clock::Clock as _;

use crate::redis::prelude::*;

/// The commands of the documented ACL line.
pub(crate) const COMMANDS: &str = "+evalsha +eval +info +type +time +exists +get +getrange +set +del +pttl +pexpire +scan +mget \
    +rpush +lpop +rpop +lpos +lset +lrem +lindex +llen +lrange \
    +setbit +bitpos +hset +hget +hmget +hvals +hlen +hdel +zadd +zcard +zcount +zrange +zrem \
    +publish +subscribe +ping";

/// A store whose user has the documented permissions.
pub(super) async fn store_as_documented(server: &RedisServer) -> RedisStore {
    store_without(server, "").await
}

/// A store whose user has the documented permissions and further rules.
pub(super) async fn store_without(server: &RedisServer, rules: &str) -> RedisStore {
    store_as(server, &format!("~lg:* &lg:* -@all {COMMANDS} {rules}")).await
}

/// A store whose user has these rules.
pub(super) async fn store_as(server: &RedisServer, rules: &str) -> RedisStore {
    server
        .set_user(&format!("gate reset on >s3cret {rules}"))
        .await;
    open(&server.url_as("gate", "s3cret"))
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
    let checks = rig.check().await;
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["connection", "permissions", "eviction", "clock"]);
    for check in checks {
        assert_eq!(check.health, Health::Passing, "{}", check.name);
    }
    assert_eq!(rig.keys().await, [""; 0], "the probe leaves nothing behind");
}

#[tokio::test]
async fn checks_that_are_asked_for_together_are_one_examination() {
    let rig = Rig::start().await;
    rig.check().await;
    rig.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..50 {
        rig.check().await;
    }
    let probes = rig.server.calls("publish").await;
    assert!(probes < 10, "{probes} probes for 50 checks");
}

#[tokio::test]
async fn the_documented_user_may_do_everything_that_is_needed() {
    let server = RedisServer::start().await;
    let store = store_as_documented(&server).await;
    for check in store.check().await {
        assert_eq!(check.health, Health::Passing, "{}", check.name);
    }
    let asked = store.must_hold(keyed("as-user", "a")).await;
    store.acquire(&keyed("as-user", "a")).await.unwrap();
    store.must_be_held(&asked.name).await;
    store.must_renew(&asked, None).await;
    let pages = store.pages(10, None).await;
    assert_eq!(pages.iter().flat_map(|page| &page.locks).count(), 1);
    store.must_release(&asked).await;
    let free = store.break_lock(&asked.name, None).await.unwrap();
    assert_eq!(free, Breaking::NotHeld);
    store
        .give_back(&asked.name, &asked.token, None)
        .await
        .unwrap();
    server.run(&["RPUSH", "lg:{wrong}:lock", "x"]).await;
    let foreign = store.acquire(&attempt("wrong")).await;
    assert_foreign(foreign, "lg:{wrong}:lock");
}

#[tokio::test]
async fn a_user_that_lacks_a_command_is_told_which_and_granted_nothing() {
    let server = RedisServer::start().await;
    for command in COMMANDS.split_whitespace() {
        let told_otherwise = "+info +scan +type +eval +publish +subscribe +ping";
        if words(told_otherwise).any(|it| it == command) {
            continue;
        }
        let lacking = command.replace('+', "-");
        let store = store_without(&server, &lacking).await;
        let what = misconfigured(store.acquire(&attempt("lacking")).await);
        let named = lacking.trim_start_matches('-').to_uppercase();
        let helps = what.split_once("; give the user");
        let (why, line) = helps.expect("it says what helps");
        // The error of a script that is refused before it runs names the command as the server writes it.
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
async fn a_script_that_lacks_a_permission_which_was_taken_away_has_an_unknown_outcome_and_the_probe_finds_it()
 {
    let server = RedisServer::start().await;
    let store = store_as_documented(&server).await;
    store.must_grant(&attempt("before")).await;
    server.set_user("gate -lindex").await;
    let queued = store.must_hold(attempt("taken")).await;
    let released = store.release(&queued.name, &queued.token).await;
    let is_unknown = |error: &StoreError| matches!(error, StoreError::Indeterminate(_));
    assert!(released.as_ref().is_err_and(is_unknown), "{released:?}");
    until("the missing permission is found", async || {
        let found = health(&store, "permissions").await;
        matches!(found, Some(Health::Misconfigured(what)) if what.contains("LINDEX"))
    })
    .await;
    misconfigured(store.acquire(&attempt("later")).await);
}

#[tokio::test]
async fn a_missing_channel_is_reported_and_a_missing_key_pattern_refused() {
    let server = RedisServer::start().await;
    let rules = format!("~lg:* resetchannels -@all {COMMANDS}");
    let store = store_as(&server, &rules).await;
    granted(store.acquire(&attempt("channel")).await);
    assert_health(&store, "permissions", Health::Misconfigured, "&lg:*").await;
    let store = store_as(&server, &format!("~app:* &lg:* -@all {COMMANDS}")).await;
    let what = misconfigured(store.acquire(&attempt("pattern")).await);
    assert!(what.contains("~lg:*"), "{what}");
}

#[tokio::test]
async fn permissions_that_are_given_later_are_found_by_itself() {
    let server = RedisServer::start().await;
    let store = store_without(&server, "-lset").await;
    misconfigured(store.acquire(&attempt("later")).await);
    server.set_user("gate +lset").await;
    until_answered(&store, "later").await;
}

#[tokio::test]
async fn a_database_that_the_server_lacks_is_told_with_what_helps() {
    let server = RedisServer::start().await;
    let database = |login: &str| url(&format!("redis://{login}127.0.0.1:{}/99", server.port()));
    let store = open(&database(""));
    let what = misconfigured(store.acquire(&attempt("nowhere")).await);
    assert!(what.contains("no database 99"), "{what}");
    assert!(what.contains("`databases`"), "{what}");
    assert!(!what.contains("ACL"), "{what}");

    drop(store_as_documented(&server).await);
    let store = open(&database("gate:s3cret@"));
    let what = misconfigured(store.acquire(&attempt("nowhere")).await);
    assert!(what.contains("+select"), "{what}");
}

#[tokio::test]
async fn clocks_that_differ_and_fences_ahead_of_the_time_are_worth_a_look() {
    let server = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let wall: SystemTime = SystemClock.wall();
    let slow = Arc::new(ManualClock::at(wall - Duration::from_hours(1)));
    let store = RedisStore::open(
        &server.url(),
        &quick(),
        slow,
        &lifecycle,
        latchgate::config::OrderLimits::default(),
    );
    assert_health(&store, "clock", Health::Warning, "").await;
    granted(store.acquire(&attempt("slow")).await);

    let rig = Rig::on(server);
    let ahead = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap() + Duration::from_hours(1);
    let key = fence_key(&name("ahead"));
    rig.run(&["SET", &key, &ahead.as_micros().to_string()])
        .await;
    rig.grant(&attempt("ahead")).await;
    until_health(&rig.store, "clock", Health::Warning, "fencing").await;
}

#[tokio::test]
async fn nothing_is_granted_and_nothing_lost_and_with_a_new_one_all_goes_on() {
    let server = RedisServer::start().await;
    let store = store_as_documented(&server).await;
    let held = attempt("held");
    let lease = granted(store.acquire(&held).await);
    server.set_user("gate resetpass >an0ther").await;
    server.run(&["CLIENT", "KILL", "USER", "gate"]).await;
    eventually("it is told as what it is", async || {
        match store.acquire(&attempt("new")).await {
            Err(StoreError::Unavailable(Unavailability::Misconfigured(_))) => Some(()),
            // Commands that were on their way on the closed connection.
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(server.text(&["GET", "lg:{new}:lock"]).await, "");
    until_health(&store, "permissions", Health::Misconfigured, "").await;
    // A store with the new password finds the lease.
    let other = open(&server.url_as("gate", "an0ther"));
    other.must_refuse(&attempt("held")).await;
    server.set_user("gate resetpass >s3cret").await;
    let renewed = eventually("the first goes on", async || {
        store.renew(&held.name, &held.token, None).await.ok()
    })
    .await;
    assert!(matches!(&renewed, Renewal::Renewed(now, _) if now.fence == lease.fence));
}
