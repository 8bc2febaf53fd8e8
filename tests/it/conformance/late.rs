//! The time left of a lease, in an answer that the gateway reads late, or for a caller that ran again late.

use std::pin::pin;

use futures_util::FutureExt;

use crate::conformance::prelude::*;

/// For how long the answer is not read.
const STALL: Duration = Duration::from_millis(300);
/// How long a case may take to catch an answer that is not read yet.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) async fn a_grant_is_told_without_the_time_since_it_was_made(fixture: &dyn Fixture) {
    let store = fixture.store();
    // Any answer before the measurement: it opens the connections to the store.
    granted(&store, &attempt("before", LONG)).await;
    let deadline = Instant::now() + TIMEOUT;
    for turn in 0.. {
        assert!(Instant::now() < deadline, "every answer was read at once");
        let attempt = attempt(&format!("lock-{turn}"), LONG);
        let held = |lease: &HeldLease| lease.ttl == attempt.terms.ttl();
        let Some((answer, decided)) =
            read_late(&store, &attempt.name, store.acquire(&attempt), held).await
        else {
            continue;
        };
        let Ok(Acquisition::Granted(lease)) = answer else {
            panic!("{answer:?}");
        };
        return is_told_since(&lease, decided);
    }
}

pub(super) async fn a_renewal_is_told_without_the_time_since_it_was_made(fixture: &dyn Fixture) {
    let (store, attempt) = holding(fixture, attempt("lock", LONG)).await;
    let deadline = Instant::now() + TIMEOUT;
    // Each renewal has a longer TTL, which shows that the store has carried out the renewal.
    for turn in 1.. {
        assert!(Instant::now() < deadline, "every answer was read at once");
        let longer = ttl(LONG + turn);
        let renewal = store.renew(&attempt.name, &attempt.token, Some(longer));
        let held = |lease: &HeldLease| lease.ttl == longer;
        let Some((answer, decided)) = read_late(&store, &attempt.name, renewal, held).await else {
            continue;
        };
        let Ok(Renewal::Renewed(lease, _)) = answer else {
            panic!("{answer:?}");
        };
        return is_told_since(&lease, decided);
    }
}

pub(super) async fn a_hand_off_is_told_without_the_time_since_it_was_made(fixture: &dyn Fixture) {
    let store = fixture.store();
    let first = attempt("lock", LONG);
    let fence = granted(&store, &first).await.fence;
    let second = Attempt {
        wait: Some(Waiting {
            max_wait: TIMEOUT,
            longest_queue: 1,
            supersedes: None,
        }),
        ..attempt("lock", LONG)
    };
    let mut parked = store.stand(&second).await;
    store.must_release(&first).await;
    let deadline = Instant::now() + TIMEOUT;
    let is_another = async || {
        let shown = store.inspect(&second.name).await.ok()?.holder;
        matches!(shown, Some(Holder::Lease(lease)) if lease.fence != fence).then(Instant::now)
    };
    let mut decided = None;
    while decided.is_none() {
        assert!(Instant::now() < deadline, "it is handed to nobody");
        decided = is_another().await;
    }
    sleep(STALL).await;
    let lease = match parked.news().await {
        News::Granted(lease) => lease,
        News::GrantedProvisionally => {
            // The full TTL of the lease begins with the confirmation.
            let confirmation = store.confirm(&second.name, &second.token);
            let held = |lease: &HeldLease| lease.expires_in > lease.ttl.duration() / 2;
            // A grant that only waits for replicas has its full TTL before it is confirmed, so no inspection shows when
            // it was confirmed.
            let shown = store.inspect(&second.name).await.unwrap().holder;
            if matches!(&shown, Some(Holder::Lease(lease)) if held(lease)) {
                let answer = confirmation.await;
                let expected = matches!(answer, Ok(Confirmation::Confirmed(_)));
                assert!(expected, "{answer:?}");
                return;
            }
            let Some((answer, confirmed)) =
                read_late(&store, &second.name, confirmation, held).await
            else {
                return;
            };
            let Ok(Confirmation::Confirmed(lease)) = answer else {
                panic!("{answer:?}");
            };
            decided = Some(confirmed);
            lease
        }
        other => panic!("{other:?}"),
    };
    is_told_since(&lease, decided.expect("it was seen"));
}

pub(super) async fn a_renewal_tells_what_was_left_before(fixture: &dyn Fixture) {
    let gateways = fixture.gateways();
    let attempt = attempt("lock", LONG);
    let mut before = Instant::now();
    granted(&gateways[0], &attempt).await;
    // The gateways take turns, so that a gateway cannot know the time left from a renewal of its own.
    for turn in 0..6 {
        let gateway = &gateways[turn % gateways.len()];
        sleep(Duration::from_millis(20)).await;
        let asked = Instant::now();
        let renewal = gateway.renew(&attempt.name, &attempt.token, None).await;
        let Ok(Renewal::Renewed(_, margin)) = renewal else {
            panic!("{renewal:?}");
        };
        let ttl = attempt.terms.ttl().duration();
        assert!(margin <= ttl, "{margin:?}");
        assert!(margin + before.elapsed() + GRAIN >= ttl, "{margin:?}");
        before = asked;
    }
}

/// Stores count in whole milliseconds.
const GRAIN: Duration = Duration::from_millis(2);

/// Sends a command, and reads its answer some time after an inspection has shown that the command was carried out.
/// Answers the answer and the instant of that inspection; `None` if the answer was read before.
async fn read_late<T>(
    store: &AnyStore,
    name: &LockName,
    command: impl Future<Output = T>,
    carried_out: impl Fn(&HeldLease) -> bool,
) -> Option<(T, Instant)> {
    let mut command = pin!(command);
    loop {
        if command.as_mut().now_or_never().is_some() {
            return None;
        }
        // Nodes that are being asked may disagree for a moment.
        let shown = store.inspect(name).await;
        if let Ok(shown) = shown
            && let Some(Holder::Lease(lease)) = shown.holder
            && carried_out(&lease)
        {
            let decided = Instant::now();
            sleep(STALL).await;
            return Some((command.await, decided));
        }
    }
}

fn is_told_since(lease: &HeldLease, decided: Instant) {
    let now = Instant::now();
    let (left, since) = (lease.left_at(now), now - decided);
    assert!(since >= STALL);
    let expected = left + since <= lease.ttl.duration();
    assert!(expected, "{left:?} after {since:?}");
    assert!(left > lease.ttl.duration() / 2, "{left:?}");
}
