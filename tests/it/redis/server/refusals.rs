//! Servers that run but refuse commands, or whose answers are not those of a Redis with our scripts.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{redis::prelude::*, support::serve};

/// The error code with which the server refuses an acquire.
async fn refusal(rig: &Rig) -> String {
    match rig.acquire(&attempt("refused")).await {
        Err(StoreError::Unavailable(Unavailability::Refused(what))) => {
            what.split(':').next().unwrap().to_owned()
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_replica_refuses_until_it_is_a_master_again() {
    let rig = Rig::start().await;
    let held = rig.must_hold(attempt("held")).await;
    rig.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(refusal(&rig).await, "READONLY");
    assert_unavailable(rig.release(&held.name, &held.token).await);
    rig.server.set("replica-serve-stale-data", "no").await;
    assert_eq!(refusal(&rig).await, "MASTERDOWN");
    rig.run(&["REPLICAOF", "NO", "ONE"]).await;
    rig.grant(&attempt("refused")).await;
    rig.must_release(&held).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_refuses_until_it_has() {
    let slow = "--key-load-delay 700 --loading-process-events-interval-bytes 1024";
    let mut rig = Rig::on(RedisServer::start_as(slow).await);
    rig.grant(&attempt("before")).await;
    rig.run(&["DEBUG", "POPULATE", "4000"]).await;
    rig.run(&["SAVE"]).await;
    rig.server.kill();
    rig.server.start_again().await;
    assert_eq!(refusal(&rig).await, "LOADING");
    until_answered(&rig.store, "refused").await;
}

#[tokio::test]
async fn a_server_without_memory_grants_nothing_and_keeps_what_is_held() {
    let rig = Rig::start().await;
    let [plain, renewed] = ["plain", "renewed"].map(attempt);
    let [kept, returned] = ["kept", "returned"].map(|lock| keyed(lock, "a"));
    rig.must_grant_each([&plain, &renewed, &kept, &returned])
        .await;
    rig.server.set("maxmemory", "1").await;
    let (keys, dump) = (rig.keys().await, rig.digest().await);
    let refused = rig.acquire(&attempt("new")).await.unwrap_err();
    let no_memory = StoreError::Unavailable(Unavailability::OutOfMemory);
    assert_eq!(refused, no_memory);
    assert_eq!(rig.keys().await, keys);
    assert_eq!(rig.digest().await, dump, "nothing was written");

    let new = ttl(45_000);
    for asked in [&renewed, &kept] {
        rig.must_renew(asked, Some(new)).await;
    }
    // The living lease is answered again to its idempotency key.
    rig.acquire(&keyed("kept", "a")).await.unwrap();
    rig.must_release_each([&plain, &renewed, &kept]).await;
    rig.must_give_back(&returned, GiveBack::GivenBack).await;
    let late = attempt("late");
    rig.must_give_back(&late, GiveBack::NothingHeld).await;
    rig.server.set("maxmemory", "0").await;
    rig.must_withdraw(&late).await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_refuses_until_it_is_killed() {
    let rig = Rig::on(RedisServer::start_with(&["--busy-reply-threshold", "10"]).await);
    rig.grant(&attempt("before")).await;
    let mut busy = rig.server.connection().await;
    rig.lifecycle.spawn(async move {
        // This script never ends until it is killed.
        let endless = cmd(&["EVAL", "while true do end", "0"]);
        drop(busy.send_packed_command(&endless).await);
    });
    let is_so = async || matches!(rig.run(&["PING"]).await, Value::ServerError(_));
    until("the script runs", is_so).await;
    assert_eq!(refusal(&rig).await, "BUSY");
    rig.run(&["SCRIPT", "KILL"]).await;
    rig.grant(&attempt("refused")).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_or_has_too_few_replicas_refuses() {
    let server = RedisServer::start_with(&["--dbfilename", "taken"]).await;
    std::fs::create_dir(server.directory().join("taken")).unwrap();
    let rig = Rig::on(server);
    rig.grant(&attempt("before")).await;
    rig.server.set("min-replicas-to-write", "1").await;
    assert_eq!(refusal(&rig).await, "NOREPLICAS");
    until_health(&rig.store, "connection", Health::Outage, "NOREPLICAS").await;
    rig.server.set("min-replicas-to-write", "0").await;

    rig.server.set("save", "3600 1").await;
    rig.run(&["BGSAVE"]).await;
    until("saving fails", async || {
        let info = rig.text(&["INFO", "persistence"]).await;
        info.contains("rdb_last_bgsave_status:err")
    })
    .await;
    assert_eq!(refusal(&rig).await, "MISCONF");
    rig.server.set("stop-writes-on-bgsave-error", "no").await;
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
    // The first acquire may still have used a connection that was about to be closed.
    drop(rig.acquire(&attempt("first")).await);
    for _ in 0..2 {
        assert_unavailable(rig.acquire(&attempt("full")).await);
    }
    let room = cmd(&["CONFIG", "SET", "maxclients", "100"]);
    guest.send_packed_command(&room).await.unwrap();
    rig.grant(&attempt("full")).await;
}

#[tokio::test]
async fn a_password_that_is_asked_for_and_not_given_is_a_matter_of_configuration() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let rig = Rig::on(server);
    assert_misconfigured(rig.acquire(&attempt("refused")).await, "password");
    let store = open(&rig.server.url_as("default", "s3cret"));
    granted(store.acquire(&attempt("refused")).await);
    assert!(store.describe().contains("***"), "{}", store.describe());
}

/// A server that replies to each command with these bytes.
async fn answering(answer: &'static [u8], lifecycle: &Lifecycle) -> u16 {
    let each = move |mut client: TcpStream| async move {
        let mut request = [0; 4096];
        while let Ok(length @ 1..) = client.read(&mut request).await {
            let commands = request[..length].iter().filter(|&&byte| byte == b'*');
            let answers = answer.repeat(commands.count());
            if client.write_all(&answers).await.is_err() {
                return;
            }
        }
    };
    serve(lifecycle, each).await
}

#[tokio::test]
async fn an_answer_to_somebody_else_is_not_believed() {
    for answer in [
        &b"*2\r\n$8\r\nreleased\r\n$5\r\nother\r\n"[..],
        b"*2\r\n$7\r\ngranted\r\n$5\r\nother\r\n",
        b"+OK\r\n",
        b"*0\r\n",
        b"-ERR what is this\r\n",
    ] {
        let lifecycle = Lifecycle::new();
        let port = answering(answer, &lifecycle).await;
        let store = open(&url(&format!("redis://127.0.0.1:{port}")));
        let unknown = store.release(&name("any"), &token()).await.unwrap_err();
        let StoreError::Indeterminate(Uncertainty::UnexpectedReply(_)) = unknown else {
            panic!("{unknown:?}");
        };
        // A server that fails its examination grants nothing.
        let refused = store.acquire(&attempt("any")).await.unwrap_err();
        let StoreError::Unavailable(Unavailability::Connect(_)) = refused else {
            panic!("{refused:?}");
        };
    }
}

#[tokio::test]
async fn what_is_no_redis_at_all_is_never_taken_for_an_answer() {
    let lifecycle = Lifecycle::new();
    let port = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n", &lifecycle).await;
    let store = open(&url(&format!("redis://127.0.0.1:{port}")));
    // No command was sent.
    assert_unavailable(store.release(&name("any"), &token()).await);
}
