//! Servers that are there and refuse.

use bb8_redis::redis::Value;
use latchgate::store::{
    Store, StoreError, Unavailability,
    contract::{GiveBack, Health, Release, Renewal},
};

use super::{
    leases::keyed,
    rig::{Rig, attempt, eventually, open, quick},
};
use crate::support::{RedisServer, cmd};

/// The code with which an acquire is refused.
async fn refusal(rig: &Rig) -> String {
    match rig.store.acquire(&attempt("refused")).await {
        Err(StoreError::Unavailable(Unavailability::Refused(what))) => {
            what.split(':').next().unwrap().to_owned()
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_replica_refuses_until_it_is_a_master_again() {
    let rig = Rig::start().await;
    let held = attempt("held");
    rig.grant(&held).await;
    rig.server.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(refusal(&rig).await, "READONLY");
    let refused = rig
        .store
        .release(&held.name, &held.token)
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    rig.server
        .run(&["CONFIG", "SET", "replica-serve-stale-data", "no"])
        .await;
    assert_eq!(refusal(&rig).await, "MASTERDOWN");
    rig.server.run(&["REPLICAOF", "NO", "ONE"]).await;
    rig.grant(&attempt("refused")).await;
    let released = rig.store.release(&held.name, &held.token).await.unwrap();
    assert_eq!(released, Release::Released);
}

#[tokio::test]
async fn a_server_that_loads_its_data_refuses_until_it_has() {
    let options = [
        "--key-load-delay",
        "700",
        "--loading-process-events-interval-bytes",
        "1024",
    ];
    let mut rig = Rig::on(RedisServer::start_with(&options).await);
    rig.grant(&attempt("before")).await;
    rig.server.run(&["DEBUG", "POPULATE", "4000"]).await;
    rig.server.run(&["SAVE"]).await;
    rig.server.kill();
    rig.server.start_again().await;
    assert_eq!(refusal(&rig).await, "LOADING");
    eventually("the data is loaded", async || {
        rig.store.acquire(&attempt("refused")).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_server_without_memory_grants_nothing_and_keeps_what_is_held() {
    let rig = Rig::start().await;
    let [plain, renewed] = ["plain", "renewed"].map(attempt);
    let [kept, returned] = ["kept", "returned"].map(|lock| keyed(lock, "a"));
    for asked in [&plain, &renewed, &kept, &returned] {
        rig.grant(asked).await;
    }
    rig.server.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let (keys, dump) = (
        rig.server.keys().await,
        rig.server.text(&["DEBUG", "DIGEST"]).await,
    );
    let refused = rig.store.acquire(&attempt("new")).await.unwrap_err();
    assert_eq!(
        refused,
        StoreError::Unavailable(Unavailability::OutOfMemory)
    );
    assert_eq!(rig.server.keys().await, keys);
    assert_eq!(
        rig.server.text(&["DEBUG", "DIGEST"]).await,
        dump,
        "nothing was written"
    );

    let new = super::rig::ttl(45_000);
    for asked in [&renewed, &kept] {
        let renewal = rig
            .store
            .renew(&asked.name, &asked.token, Some(new))
            .await
            .unwrap();
        assert!(matches!(renewal, Renewal::Renewed(..)), "{renewal:?}");
    }
    // The living lease is answered again under its key.
    rig.store.acquire(&keyed("kept", "a")).await.unwrap();
    for asked in [&plain, &renewed, &kept] {
        let released = rig.store.release(&asked.name, &asked.token).await.unwrap();
        assert_eq!(released, Release::Released);
    }
    let outcome = rig
        .store
        .give_back(&returned.name, &returned.token)
        .await
        .unwrap();
    assert_eq!(outcome, GiveBack::GivenBack);
    let late = attempt("late");
    let outcome = rig.store.give_back(&late.name, &late.token).await.unwrap();
    assert_eq!(outcome, GiveBack::NothingHeld);
    rig.server.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
    let refused = rig.store.acquire(&late).await.unwrap_err();
    assert_eq!(refused, StoreError::Unavailable(Unavailability::Withdrawn));
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_refuses_until_it_is_killed() {
    let rig = Rig::on(RedisServer::start_with(&["--busy-reply-threshold", "10"]).await);
    rig.grant(&attempt("before")).await;
    let mut busy = rig.server.connection().await;
    rig.lifecycle.spawn(async move {
        // It never answers: the script is killed.
        drop(
            busy.send_packed_command(&cmd(&["EVAL", "while true do end", "0"]))
                .await,
        );
    });
    let answer = eventually("the script runs", async || {
        let ping = rig.server.run(&["PING"]).await;
        matches!(ping, Value::ServerError(_)).then_some(ping)
    });
    answer.await;
    assert_eq!(refusal(&rig).await, "BUSY");
    rig.server.run(&["SCRIPT", "KILL"]).await;
    rig.grant(&attempt("refused")).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_or_has_too_few_replicas_refuses() {
    let server = RedisServer::start_with(&["--dbfilename", "taken"]).await;
    std::fs::create_dir(server.directory().join("taken")).unwrap();
    let rig = Rig::on(server);
    rig.grant(&attempt("before")).await;
    rig.server
        .run(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    assert_eq!(refusal(&rig).await, "NOREPLICAS");
    eventually("the check finds it", async || {
        match rig.health("connection").await {
            Some(Health::Outage(why)) => why.contains("NOREPLICAS").then_some(()),
            _ => None,
        }
    })
    .await;
    rig.server
        .run(&["CONFIG", "SET", "min-replicas-to-write", "0"])
        .await;

    rig.server.run(&["CONFIG", "SET", "save", "3600 1"]).await;
    rig.server.run(&["BGSAVE"]).await;
    eventually("saving fails", async || {
        let info = rig.server.text(&["INFO", "persistence"]).await;
        info.contains("rdb_last_bgsave_status:err").then_some(())
    })
    .await;
    assert_eq!(refusal(&rig).await, "MISCONF");
    rig.server
        .run(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"])
        .await;
    rig.grant(&attempt("refused")).await;
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_unavailable_until_there_is_room() {
    let rig = Rig::start().await;
    rig.grant(&attempt("room")).await;
    let mut guest = rig.server.connection().await;
    for command in [
        &["CONFIG", "SET", "maxclients", "1"][..],
        &["CLIENT", "KILL", "TYPE", "normal"],
    ] {
        guest.send_packed_command(&cmd(command)).await.unwrap();
    }
    // The first one may still have gone out on a connection that was about to be closed.
    drop(rig.store.acquire(&attempt("first")).await);
    for _ in 0..2 {
        let refused = rig.store.acquire(&attempt("full")).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    }
    guest
        .send_packed_command(&cmd(&["CONFIG", "SET", "maxclients", "100"]))
        .await
        .unwrap();
    rig.grant(&attempt("full")).await;
}

#[tokio::test]
async fn a_password_that_is_asked_for_and_not_given_is_a_matter_of_configuration() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let rig = Rig::on(server);
    match rig.store.acquire(&attempt("refused")).await {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(what))) => {
            assert!(what.contains("password"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    let lifecycle = latchgate::lifecycle::Lifecycle::new();
    let store = open(
        &rig.server.url_as("default", "s3cret"),
        &quick(),
        &lifecycle,
    );
    super::rig::granted(store.acquire(&attempt("refused")).await);
    assert!(store.describe().contains("***"), "{}", store.describe());
}
