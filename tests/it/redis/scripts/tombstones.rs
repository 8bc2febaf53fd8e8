//! Tombstones: what the store remembers of attempts that have ended, and for how long.

use crate::redis::prelude::*;

const LEASES: usize = 100;

#[tokio::test]
async fn each_lasts_a_minute_and_there_are_two_of_a_lease_with_a_key() {
    let rig = Rig::start().await;
    for lease in 0..LEASES {
        let attempt = rig.must_hold(keyed("busy", &lease.to_string())).await;
        rig.must_release(&attempt).await;
    }
    let mut memories = rig.keys().await;
    memories.retain(|key| !key.ends_with(":fence"));
    assert_eq!(memories.len(), 2 * LEASES);
    for key in memories {
        let left = rig.integer(&["PTTL", &key]).await;
        assert!((0..=60_000).contains(&left), "{key}: {left}");
    }
}

/// The key that remembers the outcome of an attempt.
fn memory_of(attempt: &Attempt) -> String {
    format!("lg:{{{}}}:of:2{}", attempt.name, attempt.token)
}

/// Writes an outcome for an attempt, as a script would.
async fn remember(server: &RedisServer, attempt: &Attempt, letter: &str) {
    let key = memory_of(attempt);
    let set = ["SET", &key, letter, "PX", "60000"];
    assert_eq!(server.text(&set).await, "OK");
}

#[tokio::test]
async fn every_end_of_an_attempt_refuses_its_acquire() {
    let rig = Rig::start().await;
    rig.grant(&attempt("warm")).await;
    let asked = ["g", "a", "s", "r", "b"].map(|letter| {
        [false, true].map(|has_key| {
            let lock = format!("{letter}-{has_key}");
            let asked = if has_key {
                keyed(&lock, "k")
            } else {
                attempt(&lock)
            };
            (letter, has_key, asked)
        })
    });
    let asked = asked.as_flattened();
    for (letter, _, attempt) in asked {
        remember(&rig.server, attempt, letter).await;
    }
    // A replica may not know that the key has expired.
    rig.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let refused = asked.iter().map(|(_, _, attempt)| rig.acquire(attempt));
    for refused in join_all(refused).await {
        match refused {
            Err(StoreError::Unavailable(Unavailability::Refused(why))) => {
                assert!(why.starts_with("READONLY"), "{why}");
            }
            other => panic!("a replica answers {other:?}"),
        }
    }
    rig.run(&["REPLICAOF", "NO", "ONE"]).await;
    for (letter, has_key, attempt) in asked {
        let expected = match (*letter, has_key) {
            ("a" | "s", _) => Ok(Acquisition::Replaced),
            ("r", true) => Ok(Acquisition::IdempotencyExpired),
            _ => Err(Unavailability::Withdrawn.into()),
        };
        assert_eq!(rig.acquire(attempt).await, expected, "{letter}");
        let lock = format!("lg:{{{}}}:lock", attempt.name);
        assert_eq!(rig.integer(&["EXISTS", &lock]).await, 0, "{letter}");
    }
    // A ticket without a position in the queue is no outcome.
    let lost = attempt("lost");
    remember(&rig.server, &lost, "q").await;
    granted(rig.acquire(&lost).await);
}

#[tokio::test]
async fn no_end_of_an_attempt_is_replaced_by_an_earlier_one() {
    let rig = Rig::start().await;
    let (store, server) = (&rig.store, &rig.server);
    for before in ["g", "a", "s", "r", "b"] {
        let remembered = async |attempt: &Attempt| server.text(&["GET", &memory_of(attempt)]).await;
        let given_back = attempt(&format!("given-back-{before}"));
        remember(server, &given_back, before).await;
        let (name, token) = (&given_back.name, &given_back.token);
        store.give_back(name, token, None).await.unwrap();
        assert_eq!(remembered(&given_back).await, before);

        let adopted = rig.must_hold(attempt(&format!("adopted-{before}"))).await;
        remember(server, &adopted, before).await;
        let newer = Renewer::Adopter(RecipientId::random());
        let renewal = store.renew_as(newer, &adopted.name, &adopted.token, RenewalTtl::default());
        assert!(matches!(renewal.await, Ok(Renewal::Renewed(..))));
        let later = if before == "g" { "a" } else { before };
        assert_eq!(remembered(&adopted).await, later);

        let broken = rig.must_hold(attempt(&format!("broken-{before}"))).await;
        remember(server, &broken, before).await;
        store.must_break(&broken.name, None).await;
        assert_eq!(remembered(&broken).await, "b");
    }
}
