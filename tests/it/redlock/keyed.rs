//! Idempotency keys over a quorum.

use latchgate::{
    lock::{Fingerprint, IdempotencyHash, Salt},
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, Idempotency},
    },
};

use super::rig::{Rig, attempt, eventually};

fn keyed(key: IdempotencyHash) -> Attempt {
    let plain = attempt("lock");
    let fingerprint = Fingerprint::of(Some(plain.ttl), None, None, &plain.metadata);
    Attempt {
        idempotency: Some(Idempotency {
            hash: key,
            fingerprint,
            salt: Salt::random(),
        }),
        ..plain
    }
}

fn key() -> IdempotencyHash {
    IdempotencyHash::from_bytes(*attempt("key").token.as_bytes())
}

#[tokio::test]
async fn its_own_lease_is_never_shown_to_a_caller_as_somebody_elses() {
    let rig = Rig::start(3).await;
    let (key, first, lease) = eventually("all have accepted it", async || {
        let key = key();
        let first = keyed(key);
        let lease = rig.grant(&first).await;
        if rig.have_accepted(&first.name, &lease).await == 3 {
            return Some((key, first, lease));
        }
        rig.release(&first).await;
        None
    })
    .await;
    // One has lost it, one is silent: it may live, for all that anybody knows.
    rig.server(1).run(&["FLUSHALL"]).await;
    rig.server(2).freeze();
    let error = rig.store.acquire(&keyed(key)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    rig.server(2).thaw();
    let again = eventually("it is answered again", async || {
        rig.store.acquire(&keyed(key)).await.ok()
    })
    .await;
    let Acquisition::Replayed(again, _, _) = again else {
        panic!("another answer: {again:?}");
    };
    assert_eq!(again.fence, lease.fence);
    rig.release(&first).await;
    let after = eventually("a majority knows of its end", async || {
        rig.store.acquire(&keyed(key)).await.ok()
    })
    .await;
    assert_eq!(after, Acquisition::IdempotencyExpired);
}
