//! A replica does not know the current holder of a lock, and must not answer as if it did.

use futures_util::{FutureExt, future::BoxFuture};

use crate::redis::prelude::*;

/// The error of a command, if it failed.
fn error<'a, T: 'a>(
    answer: impl Future<Output = Result<T, StoreError>> + Send + 'a,
) -> BoxFuture<'a, Option<StoreError>> {
    answer.map(Result::err).boxed()
}

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
    let is_so = async || replica.server.text(&["GET", "last"]).await == "1";
    until("it has what the master has", is_so).await;
    let store = &replica.store;
    let used = with(living.clone(), |it| it.token = token());
    let waits = waiting(attempt("held"));
    let mismatched = keyed("living", "b");
    let keep = Some(TIMEOUT);
    let (name, free) = (&held.name, &past.name);
    let check = fence_query(name.as_str(), FencingToken::MAX);
    let asks: Vec<BoxFuture<'_, Option<StoreError>>> = vec![
        error(store.acquire(&held)),
        error(store.acquire(&other)),
        error(store.acquire(&past)),
        error(store.acquire(&waits)),
        error(store.acquire(&used)),
        error(store.acquire(&mismatched)),
        error(store.renew(name, &held.token, None)),
        error(store.renew(name, &other.token, None)),
        error(store.renew(free, &other.token, None)),
        error(store.release(name, &held.token)),
        error(store.release(name, &other.token)),
        error(store.release(free, &past.token)),
        error(store.confirm(free, &past.token)),
        error(store.give_back(free, &past.token, None)),
        error(store.leave(free, &past.token, None)),
        error(store.leave(free, &past.token, keep)),
        error(store.inspect(name)),
        error(store.inspect(free)),
        error(store.check_fence(&check)),
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
    for script in words("advance release renew confirm give_back leave inspect check_fence") {
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
