//! Clause 3: repeating an acquire after a lost reply does no harm.

use crate::conformance::prelude::*;

/// Long enough for a clock to show it, and short for a test.
const A_WHILE: Duration = Duration::from_millis(100);

/// Asserts that a lease of `LONG` that was granted `gone` ago was not renewed since. Two answers must not be compared:
/// each leaves out the time that it took, which is longer on a busy machine.
fn assert_not_renewed(lease: &HeldLease, gone: Duration) {
    let left = Duration::from_millis(LONG).saturating_sub(gone);
    // The server counts whole milliseconds on its own clock.
    let room = A_WHILE / 10;
    assert!(lease.expires_in <= left + room, "{lease:?} after {gone:?}");
}

pub(crate) async fn the_token_of_the_living_lease_answers_that_lease(fixture: &dyn Fixture) {
    let store = fixture.store();
    for first in [attempt("plain", LONG), keyed("keyed", LONG, key())] {
        let held = granted(&store, &first).await;
        let since = Instant::now();
        sleep(A_WHILE).await;
        let gone = since.elapsed();
        let again = granted(&store, &first).await;
        assert_eq!(again.fence, held.fence);
        assert_not_renewed(&again, gone);
        released(&store, &first).await;
    }
}

pub(crate) async fn the_same_key_answers_the_same_lease_and_salt(fixture: &dyn Fixture) {
    let key = key();
    let first = keyed("lock", LONG, key);
    let held = granted(&fixture.store(), &first).await;
    let since = Instant::now();
    for turn in 0..3 {
        sleep(A_WHILE).await;
        if turn == 2 {
            fixture.restart().await;
        }
        let gone = since.elapsed();
        let asked = keyed("lock", LONG, key);
        let (again, salt) = fixture.store().must_replay(&asked).await;
        assert_eq!(Some(salt), first.idempotency.as_ref().map(|it| it.salt));
        assert_eq!(again.fence, held.fence);
        assert_not_renewed(&again, gone);
    }
    released(&fixture.store(), &first).await;
}

pub(crate) async fn the_same_key_in_other_words_is_a_mismatch(fixture: &dyn Fixture) {
    let key = key();
    let (store, first) = holding(fixture, keyed("lock", LONG, key)).await;
    let mut other = keyed("lock", LONG, key);
    let short = keyed("lock", SHORT, key);
    other.idempotency = short.idempotency;
    store.must_mismatch(&other).await;
    released(&store, &first).await;
}

pub(crate) async fn another_key_is_somebody_else(fixture: &dyn Fixture) {
    let store = fixture.store();
    granted(&store, &keyed("lock", LONG, key())).await;
    refused(&store, &keyed("lock", LONG, key())).await;
    refused(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn a_key_is_refused_after_the_end_of_its_lease(fixture: &dyn Fixture) {
    for is_released in [true, false] {
        let key = key();
        let (store, first) = holding(
            fixture,
            keyed("lock", if is_released { LONG } else { SHORT }, key),
        )
        .await;
        if is_released {
            released(&store, &first).await;
        }
        store.until_free("lock").await;
        expired(fixture, key).await;
        assert!(is_free(&store, "lock").await);
        // The key also reports the end of its lease while another caller holds the lock, and after a restart.
        let next = store.must_hold(attempt("lock", LONG)).await;
        expired(fixture, key).await;
        released(&store, &next).await;
        fixture.restart().await;
        expired(fixture, key).await;
    }
}

pub(crate) async fn many_concurrent_attempts_under_one_key_are_one_grant(fixture: &dyn Fixture) {
    let key = key();
    let mut attempts = JoinSet::new();
    for _ in 0..32 {
        let store = fixture.store();
        attempts.spawn(async move {
            let attempt = keyed("lock", LONG, key);
            match store.acquire(&attempt).await.unwrap() {
                Acquisition::Granted(held) => {
                    (held.fence, attempt.idempotency.map(|it| it.salt), true)
                }
                Acquisition::Replayed(held, salt) => (held.fence, Some(salt), false),
                other => panic!("neither granted nor replayed: {other:?}"),
            }
        });
    }
    let answers = attempts.join_all().await;
    let (fence, salt, _) = answers[0];
    assert_eq!(answers.iter().filter(|(.., new)| *new).count(), 1);
    assert!(answers.iter().all(|it| (it.0, it.1) == (fence, salt)));
}

async fn expired(fixture: &dyn Fixture, key: IdempotencyHash) {
    let (store, again) = (fixture.store(), keyed("lock", LONG, key));
    store.must_expire(&again).await;
}
