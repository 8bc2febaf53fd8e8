//! Clause 16: a reservation ends at its time, however long it was queued and however often it is renewed.

use latchgate::lock::Reservation;

use crate::conformance::prelude::*;

/// A reservation that ends in so many milliseconds; negative: that has ended.
fn ending_in(ms: i64) -> Reservation {
    let now = latchgate::clock::Clock::wall(&SystemClock)
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    Reservation {
        until_ms: now.checked_add_signed(ms).unwrap(),
        reason: Reason::new("load \"test\" \u{fc}").unwrap(),
        by: Some("ops".into()),
    }
}

fn reserving(reservation: &Reservation, attempt: Attempt) -> Attempt {
    with(attempt, |it| {
        it.terms.ends = Ends::At(Box::new(reservation.clone()));
    })
}

/// A request for a reservation, which waits no longer than until its end.
fn request_until(ms: i64, owner: &str) -> AcquireRequest {
    let reservation = ending_in(ms);
    with(request("lock", owner), |it| {
        it.terms.ends = Ends::At(Box::new(reservation));
        it.wait = Duration::from_millis(ms.unsigned_abs());
    })
}

/// The whole days that are left of a reservation, whose hold limit is its end.
fn days(held: &HeldLease) -> u64 {
    ends_at_limit(held);
    held.expires_in.as_secs() / 86_400
}

fn ends_at_limit(held: &HeldLease) {
    let limit = held.hold_expires_in.expect("a reservation has a limit");
    assert!(
        limit.abs_diff(held.expires_in) < Duration::from_millis(50),
        "{held:?}"
    );
}

pub(crate) async fn last_until_their_time_and_no_renewal_changes_it(fixture: &dyn Fixture) {
    let reservation = ending_in(20 * 86_400_000 + 3_600_000);
    let metadata = Metadata::new([("a".to_owned(), "b".to_owned())].into()).unwrap();
    let asked = with(owned("ann", attempt("lock", SHORT)), |it| {
        it.terms.said.metadata = metadata.clone();
    });
    let asked = reserving(&reservation, asked);
    let lease = granted(&fixture.store(), &asked).await;
    assert_eq!(days(&lease), 20);
    for restarted in [false, true] {
        let store = fixture.restart_if(restarted).await;
        let shown = store.must_be_held(&asked.name).await;
        assert_eq!((days(&shown), shown.fence), (20, lease.fence));
        assert_eq!(shown.reservation.as_deref(), Some(&reservation));
        assert_eq!(shown.said.metadata, metadata);
        // The token of the attempt answers the same lease.
        assert_eq!(days(&granted(&store, &asked).await), 20);
        for ms in [SHORT, 86_400_000] {
            assert_eq!(days(&renewed(&store, &asked, ms).await), 20);
        }
        refused(&store, &attempt("lock", LONG)).await;
    }
    let store = fixture.store();
    released(&store, &asked).await;
    granted(&store, &attempt("lock", LONG)).await;
}

pub(crate) async fn end_at_their_time(fixture: &dyn Fixture) {
    let store = fixture.store();
    let asked = reserving(&ending_in(3_000), attempt("lock", LONG));
    let (lease, began) = (granted(&store, &asked).await, Instant::now());
    assert!(lease.expires_in <= Duration::from_secs(3));
    assert!(renewed(&store, &asked, LONG).await.expires_in <= Duration::from_secs(3));
    let next = store.until_granted(&attempt("lock", LONG)).await;
    assert!(next.fence > lease.fence && began.elapsed() >= Duration::from_secs(1));
    let loss = store.renew(&asked.name, &asked.token, None).await;
    assert_eq!(loss, Ok(Renewal::Lost(Loss::HeldByAnother)));
}

pub(crate) async fn end_at_their_time_however_long_they_were_queued(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let first = gateways.queue(request_until(10_000, "first"), 1).await;
    let second = gateways.queue(request_until(3_600_000, "second"), 2).await;
    let behind = gateways.queue(request("lock", "behind"), 3).await;
    sleep(Duration::from_secs(1)).await;
    let first = gateways.pass(&lease, first).await;
    assert!(first.held.expires_in <= Duration::from_secs(9), "{first:?}");
    // The first reservation ends by itself.
    let second = second.granted().await;
    assert!(second.held.expires_in <= Duration::from_hours(1));
    assert!(second.held.expires_in > Duration::from_mins(58));
    ends_at_limit(&second.held);
    let lease = gateways.pass(&second, behind).await;
    assert_eq!(lease.held.hold_expires_in, None);
}

pub(crate) async fn are_granted_to_nobody_after_their_time(fixture: &dyn Fixture) {
    let store = fixture.store();
    for late in [
        attempt("lock", LONG),
        patient(attempt("lock", LONG)),
        keyed("lock", LONG, key()),
    ] {
        let last_century = Reservation {
            until_ms: 1_000,
            ..ending_in(0)
        };
        for over in [ending_in(-1), last_century] {
            let answer = store.acquire(&reserving(&over, late.clone())).await;
            assert_eq!(answer, Ok(Acquisition::ReservationOver));
        }
    }
    store.must_be_free(&name("lock")).await;
    let (gateways, lease) = Gateways::holding(fixture).await;
    let over = gateways.queue(request_until(1_000, "over"), 1).await;
    let behind = gateways.queue(request("lock", "behind"), 2).await;
    let error = over.refused().await;
    assert!(matches!(error, AcquireError::ReservationOver), "{error:?}");
    // A waiter of a gateway whose clock is slow still stands in the queue after the end of its reservation.
    let slow = with(request_until(1_000, "slow"), |it| {
        it.wait = Duration::from_secs(8);
    });
    let slow = gateways.queue(slow, 2).await;
    sleep(Duration::from_millis(1_100)).await;
    let lease = gateways.pass(&lease, behind).await;
    gateways.end(&lease).await;
    let error = slow.refused().await;
    assert!(matches!(error, AcquireError::ReservationOver), "{error:?}");
}

pub(crate) async fn are_repeated_under_an_idempotency_key(fixture: &dyn Fixture) {
    let gateways = Gateways::start(fixture);
    let key = new_key();
    let asked = |reservation: &Reservation| {
        with(request("lock", "ann"), |it| {
            it.terms.ends = Ends::At(Box::new(reservation.clone()));
            it.idempotency_key = Some(key.clone());
        })
    };
    let reservation = ending_in(3_600_000);
    let lease = gateways.hold_as(asked(&reservation)).await;
    let again = gateways.ask(asked(&reservation)).granted().await;
    assert_eq!(
        (again.held.fence, again.token.expose()),
        (lease.held.fence, lease.token.expose())
    );
    for other in [
        Reservation {
            until_ms: reservation.until_ms + 1,
            ..reservation.clone()
        },
        Reservation {
            reason: Reason::new("x").unwrap(),
            ..reservation.clone()
        },
    ] {
        let error = gateways.ask(asked(&other)).refused().await;
        assert!(
            matches!(error, AcquireError::IdempotencyMismatch),
            "{error:?}"
        );
    }
    // The repetition of a request whose reservation has ended, and of one that has waited until then.
    let over = with(request_until(1_500, "bob"), |it| {
        it.name = name("other");
        it.idempotency_key = Some(new_key());
        it.wait = Duration::ZERO;
    });
    gateways.hold_as(over.clone()).await;
    let waits = with(request_until(1_000, "eve"), |it| {
        it.idempotency_key = Some(new_key());
    });
    let late = with(waits.clone(), |it| it.wait = Duration::ZERO);
    let error = gateways.ask(waits).refused().await;
    assert!(matches!(error, AcquireError::ReservationOver), "{error:?}");
    let error = gateways.ask(late).refused().await;
    assert!(matches!(error, AcquireError::ReservationOver), "{error:?}");
    sleep(Duration::from_secs(1)).await;
    let error = gateways.ask(over).refused().await;
    assert!(
        matches!(error, AcquireError::IdempotencyExpired),
        "{error:?}"
    );
}

pub(crate) async fn end_earlier_by_a_break_or_a_release_request_only(fixture: &dyn Fixture) {
    let store = fixture.store();
    let reservation = ending_in(20 * 86_400_000);
    let first = reserving(&reservation, attempt("lock", LONG));
    let lease = granted(&store, &first).await;
    let Holder::Lease(broken) = store
        .must_break(&first.name, Some(lease.fence.into()))
        .await
    else {
        panic!("one lease holds it");
    };
    assert!(broken.is_reserved_by(Some(&"ops".into())) && !broken.is_reserved_by(None));
    let second = reserving(&reservation, attempt("lock", LONG));
    granted(&store, &second).await;
    let request = ReleaseRequest {
        by: None,
        reason: Reason::new("urgent").unwrap(),
        within: Duration::from_millis(500),
    };
    let asked = store.request_release(&second.name, None, &request).await;
    assert!(matches!(asked, Ok(Requesting::Requested(_))), "{asked:?}");
    let left = renewed(&store, &second, LONG).await.expires_in;
    assert!(left <= Duration::from_millis(1_500), "{left:?}");
    store.until_granted(&attempt("lock", LONG)).await;
}
