//! A replica does not know who holds a lock now, and must not say it.

use futures_util::{FutureExt, future::BoxFuture};

use crate::redis::prelude::*;

#[tokio::test]
async fn a_replica_gives_no_answer_from_its_own_data_whatever_is_asked() {
    let server = RedisServer::start().await;
    let master = Rig::on(server);
    let [held, other, past] = ["held", "held", "past"].map(attempt);
    let living = keyed("living", "a");
    for asked in [&held, &living] {
        master.grant(asked).await;
    }
    master.server.run(&["SET", "last", "1"]).await;
    let of = master.server.port().to_string();
    let replica = Rig::on(RedisServer::start_with(&["--replicaof", "127.0.0.1", &of]).await);
    until("it has what the master has", async || {
        replica.server.text(&["GET", "last"]).await == "1"
    })
    .await;
    let store = &replica.store;
    let mut used = living.clone();
    used.token = token();
    let mut waits = attempt("held");
    waits.wait = Some(Waiting {
        max_wait: TIMEOUT,
        longest_queue: 10,
    });
    let mismatched = keyed("living", "b");
    let keep = Some(TIMEOUT);
    let (name, free) = (&held.name, &past.name);
    let asks: Vec<BoxFuture<'_, Option<StoreError>>> = vec![
        store.acquire(&held).map(Result::err).boxed(),
        store.acquire(&other).map(Result::err).boxed(),
        store.acquire(&past).map(Result::err).boxed(),
        store.acquire(&waits).map(Result::err).boxed(),
        store.acquire(&used).map(Result::err).boxed(),
        store.acquire(&mismatched).map(Result::err).boxed(),
        store
            .renew(name, &held.token, None)
            .map(Result::err)
            .boxed(),
        store
            .renew(name, &other.token, None)
            .map(Result::err)
            .boxed(),
        store
            .renew(free, &other.token, None)
            .map(Result::err)
            .boxed(),
        store.release(name, &held.token).map(Result::err).boxed(),
        store.release(name, &other.token).map(Result::err).boxed(),
        store.release(free, &past.token).map(Result::err).boxed(),
        store.confirm(free, &past.token).map(Result::err).boxed(),
        store.give_back(free, &past.token).map(Result::err).boxed(),
        store
            .leave(free, &past.token, None)
            .map(Result::err)
            .boxed(),
        store
            .leave(free, &past.token, keep)
            .map(Result::err)
            .boxed(),
        store.inspect(name).map(Result::err).boxed(),
        store.inspect(free).map(Result::err).boxed(),
    ];
    for (n, refused) in join_all(asks).await.into_iter().enumerate() {
        match refused {
            Some(StoreError::Unavailable(Unavailability::Refused(why))) => {
                assert!(why.starts_with("READONLY"), "{n}: {why}");
            }
            other => panic!("{n}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_advance_on_a_replica_moves_nothing_and_says_nothing() {
    let server = RedisServer::start().await;
    for script in [
        "advance",
        "release",
        "renew",
        "confirm",
        "give_back",
        "leave",
        "inspect",
    ] {
        let script = composed(script);
        let mut ask = vec!["EVAL", &script, "2", "lg:{l}:lock", "lg:{f}:fence"];
        ask.extend(["1", "2", "", "4", ""]);
        let is_refused = |reply: Value| match reply {
            Value::ServerError(error) => {
                assert_eq!(error.code(), "READONLY");
                true
            }
            _ => false,
        };
        server.run(&["REPLICAOF", "NO", "ONE"]).await;
        assert!(!is_refused(server.run(&ask).await), "{script}");
        server.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
        assert!(is_refused(server.run(&ask).await), "{script}");
    }
}
