//! Clause 13: a release request is carried out, however often the lease is renewed.

use latchgate::store::contract::BrokenLease;

use crate::conformance::prelude::*;

/// The time that a request gives to the holder, if the case waits for its end.
const SOON: Duration = Duration::from_millis(700);
/// The time that a request gives to the holder, if the case does not wait for its end.
const LATER: Duration = Duration::from_mins(5);
/// The time within which an effect must come that the case does not want to wait for.
const PROMPT: Duration = Duration::from_secs(10);

fn request(within: Duration) -> ReleaseRequest {
    ReleaseRequest {
        by: Some("ops".into()),
        reason: Reason::new("the \"database\" moves").unwrap(),
        within,
    }
}

/// Requests the release of `lock`, which an exclusive lease must hold, at the last gateway. Answers the lease.
async fn asked(fixture: &dyn Fixture, target: Option<BreakTarget>, within: Duration) -> HeldLease {
    match requested(fixture, target, within).await {
        Requesting::Requested(Holder::Lease(lease)) => lease,
        other => panic!("not asked: {other:?}"),
    }
}

async fn requested(
    fixture: &dyn Fixture,
    target: Option<BreakTarget>,
    within: Duration,
) -> Requesting {
    let (lock, request, store) = (name("lock"), request(within), fixture.last());
    let requesting = store.request_release(&lock, target, &request);
    requesting.await.unwrap()
}

fn is_asked_for(lease: &HeldLease, within: Duration) {
    let asked = lease.release_requested.as_deref().expect("it is asked for");
    let expected = request(asked.within);
    assert_eq!(*asked, expected);
    assert!(asked.within <= within, "{asked:?}");
    let ends = within + ReleaseRequest::BACKSTOP;
    assert!(lease.expires_in <= ends, "{lease:?}");
}

async fn is_not_asked_for(store: &AnyStore, holder: &Attempt) {
    let lease = store.must_renew(holder, None).await;
    assert_eq!(lease.release_requested, None);
}

pub(crate) async fn are_heard_with_the_next_renewal(fixture: &dyn Fixture) {
    let store = fixture.store();
    let holder = attempt("lock", LONG);
    let lease = granted(&store, &holder).await;
    assert_eq!(lease.release_requested, None);
    is_not_asked_for(&store, &holder).await;
    let told = asked(fixture, Some(lease.fence.into()), LATER).await;
    assert_eq!((told.fence, told.hold_expires_in), (lease.fence, None));
    is_asked_for(&told, LATER);
    for restarted in [false, true] {
        let store = fixture.restart_if(restarted).await;
        let lease = store.must_renew(&holder, None).await;
        is_asked_for(&lease, LATER);
        assert_eq!(lease.hold_expires_in, None);
        is_asked_for(&store.must_be_held(&name("lock")).await, LATER);
        is_asked_for(&granted(&store, &holder).await, LATER);
    }
    released(&fixture.store(), &holder).await;
    assert!(is_free(&fixture.store(), "lock").await);
}

pub(crate) async fn end_a_lease_however_often_it_is_renewed(fixture: &dyn Fixture) {
    let store = fixture.store();
    let holder = attempt("lock", LONG);
    let lease = granted(&store, &holder).await;
    let begun = Instant::now();
    asked(fixture, None, SOON).await;
    let lost = loop {
        match store
            .renew(&holder.name, &holder.token, Some(ttl(LONG)))
            .await
        {
            Ok(Renewal::Renewed(lease, _)) => is_asked_for(&lease, SOON),
            Ok(Renewal::Lost(loss)) => break loss,
            // The lease ended before the answer came.
            Err(StoreError::Indeterminate(_)) => {}
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < SOON + PROMPT, "it does not end");
        sleep(Duration::from_millis(20)).await;
    };
    assert!(begun.elapsed() >= SOON, "{:?}", begun.elapsed());
    assert_eq!(lost, Loss::Broken { held: false });
    let next = granted(&store, &attempt("lock", LONG)).await;
    assert!(next.fence > lease.fence);
    store.must_lose(&holder, Loss::Broken { held: true }).await;
}

pub(crate) async fn end_a_lease_whose_gateway_is_gone(fixture: &dyn Fixture) {
    granted(&fixture.store(), &attempt("lock", LONG)).await;
    asked(fixture, None, SOON).await;
    fixture.restart().await;
    fixture.store().until_free("lock").await;
}

pub(crate) async fn with_the_earliest_end_count(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    asked(fixture, None, LATER).await;
    asked(fixture, None, LATER / 2).await;
    is_asked_for(&store.must_renew(&holder, None).await, LATER / 2);
    asked(fixture, None, LATER * 2).await;
    is_asked_for(&store.must_renew(&holder, None).await, LATER / 2);
    asked(fixture, None, SOON).await;
    fixture.store().until_free("lock").await;
}

pub(crate) async fn leave_a_short_ttl_as_it_is(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG / 4)).await;
    asked(fixture, None, Duration::from_millis(LONG)).await;
    let lease = store.must_renew(&holder, None).await;
    assert_eq!(lease.ttl, ttl(LONG / 4));
    assert!(lease.expires_in <= Duration::from_millis(LONG / 4));
    is_asked_for(&lease, Duration::from_millis(LONG));
}

pub(crate) async fn are_forgotten_with_a_lease_that_ends_in_time(fixture: &dyn Fixture) {
    for ending in ["released", "given back", "over"] {
        let (store, holder) = holding(fixture, attempt("lock", SHORT)).await;
        asked(fixture, None, LATER).await;
        match ending {
            "released" => released(&store, &holder).await,
            "given back" => store.must_give_back(&holder, GiveBack::GivenBack).await,
            _ => {}
        }
        store.until_free("lock").await;
        store.must_have_lost(&holder, Loss::Free).await;
    }
}

pub(crate) async fn concern_that_lease_alone(fixture: &dyn Fixture) {
    let store = fixture.store();
    let holder = attempt("lock", LONG);
    let lease = granted(&store, &holder).await;
    asked(fixture, None, SOON).await;
    released(&store, &holder).await;
    let next = store.must_hold(attempt("lock", LONG)).await;
    sleep(SOON + ReleaseRequest::BACKSTOP + Duration::from_millis(200)).await;
    // The lease was not broken: a holder that released in time must not be told that it was.
    store.must_lose(&holder, Loss::HeldByAnother).await;
    is_not_asked_for(&store, &next).await;
    let changed = requested(fixture, Some(lease.fence.into()), SOON).await;
    let expected = matches!(changed, Requesting::HolderChanged(Holder::Lease(_)));
    assert!(expected, "{changed:?}");
    is_not_asked_for(&store, &next).await;
}

pub(crate) async fn are_of_what_holds_the_lock_only(fixture: &dyn Fixture) {
    let store = fixture.store();
    assert_eq!(requested(fixture, None, LATER).await, Requesting::NotHeld);
    let holder = attempt("lock", LONG);
    let lease = granted(&store, &holder).await;
    let mark = ForeignMark::new(&"0".repeat(ForeignMark::DIGITS)).unwrap();
    let fence = FencingToken::new(lease.fence.get() + 1).unwrap();
    for other in [BreakTarget::Foreign(mark), BreakTarget::Lease(fence)] {
        let changed = requested(fixture, Some(other), LATER).await;
        let expected = matches!(changed, Requesting::HolderChanged(_));
        assert!(expected, "{changed:?}");
    }
    is_not_asked_for(&store, &holder).await;
    asked(fixture, Some(BreakTarget::All), LATER).await;
    is_asked_for(&store.must_renew(&holder, None).await, LATER);
}

pub(crate) async fn use_up_the_key_of_the_lease(fixture: &dyn Fixture) {
    let key = key();
    let (store, _) = holding(fixture, keyed("lock", LONG, key)).await;
    asked(fixture, None, SOON).await;
    fixture.store().until_free("lock").await;
    store.must_expire(&keyed("lock", LONG, key)).await;
}

pub(crate) async fn are_heard_of_by_every_gateway(fixture: &dyn Fixture) {
    let (_, holder) = holding(fixture, attempt("lock", LONG)).await;
    let expected = BrokenLease {
        name: name("lock"),
        token: holder.token,
    };
    // Each request has an earlier end, otherwise it would not change anything.
    let mut within = LATER;
    for listening in fixture.gateways() {
        let mut listener = listening.breaks().listen();
        // Repeated until an event is heard, because a gateway listens only some time after its start.
        let heard = async {
            loop {
                asked(fixture, None, within).await;
                within -= Duration::from_secs(1);
                let word = timeout(Duration::from_millis(300), listener.recv());
                if word.await == Ok(Some(expected.clone())) {
                    break;
                }
            }
        };
        timeout(PROMPT, heard).await.expect("a word of it comes");
    }
}
