//! News of a grant that arrive when its attempt has heard of it by another way, and has gone on.

use latchgate::{
    lock::TokenHash,
    store::{
        Store,
        contract::{Acquisition, Attempt, Confirmation, Leaving},
    },
};

use super::{
    super::rig::{attempt, eventually},
    gate::{TestGateway, waiting},
};
use crate::support::RedisServer;

/// How many scripts the server was asked for.
async fn scripts(server: &RedisServer) -> u64 {
    let stats = server.text(&["INFO", "commandstats"]).await;
    let calls = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .expect("scripts were called");
    calls.split(',').next().unwrap().parse().unwrap()
}

/// Tells every gateway again that this attempt was granted the lock, and waits until one has looked
/// after that.
async fn tell_again(server: &RedisServer, attempt: &Attempt) {
    let before = scripts(server).await;
    let reply = server
        .run(&["PUBSUB", "CHANNELS", "lg:gw:????????????????"])
        .await;
    let channels: Vec<String> = bb8_redis::redis::from_redis_value(reply).unwrap();
    let key = format!("lg:{{{}}}:lock", attempt.name);
    let fence = server.text(&["GETRANGE", &key, "70", "85"]).await;
    let message = format!("granted {} {} {fence}", attempt.token, attempt.name);
    for channel in channels {
        server.run(&["PUBLISH", &channel, &message]).await;
    }
    eventually("the news are looked after", async || {
        (scripts(server).await > before).then_some(())
    })
    .await;
}

/// Who holds the lock by its key.
async fn holder(server: &RedisServer, attempt: &Attempt) -> String {
    let key = format!("lg:{{{}}}:lock", attempt.name);
    server.text(&["GETRANGE", &key, "1", "64"]).await
}

#[tokio::test]
async fn late_news_of_a_grant_take_it_from_nobody() {
    let server = RedisServer::start().await;
    let [here, there] = [
        TestGateway::on(&server).await,
        TestGateway::on(&server).await,
    ];
    // Makes the script known: from then on one call is one run.
    let nobody: TokenHash = attempt("warm").token;
    let warm = attempt("warm").name;
    here.store.give_back(&warm, &nobody).await.unwrap();
    for (releasing, lock) in [(&here, "here"), (&there, "there")] {
        for heard_by in ["leaving", "confirming", "asking again"] {
            let lock = format!("{lock}:{}", heard_by.replace(' ', "-"));
            let lease = releasing.take(&lock).await;
            let asked = waiting(attempt(&lock));
            let parked = here.store.parking().park(asked.name.clone(), asked.token);
            let queued = here.store.acquire(&asked).await.unwrap();
            assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
            releasing.release(&lease).await;
            let (name, token) = (&asked.name, &asked.token);
            let heard = match heard_by {
                "leaving" => {
                    let left = here.store.leave(name, token, None).await.unwrap();
                    matches!(left, Leaving::Granted(_))
                }
                "confirming" => {
                    let confirmed = here.store.confirm(name, token).await.unwrap();
                    matches!(confirmed, Confirmation::Confirmed(_))
                }
                _ => {
                    let again = here.store.acquire(&asked).await.unwrap();
                    matches!(again, Acquisition::Granted(_))
                }
            };
            assert!(heard, "{lock}");
            // It is answered, and leaves its place. Then come the news that it needs no more.
            drop(parked);
            tell_again(&server, &asked).await;
            assert_eq!(holder(&server, &asked).await, token.to_string(), "{lock}");
        }
    }
}
