//! Clause 8 for waiters: a lease that no caller waits for any more is released.

use crate::conformance::prelude::*;

pub(crate) async fn a_grant_in_the_instant_of_the_hang_up_is_given_back(fixture: &dyn Fixture) {
    let mut random = Random::seeded();
    let gateways = Gateways::start(fixture).seeded(&random);
    for _ in 0..40 {
        let lease = gateways.hold("lock").await;
        let caller = gateways.queue(request("lock", "hangs up"), 1).await;
        let head_start = Duration::from_micros(random.next() % 3_000);
        let release = gateways.release("lock", &lease.token);
        let hang_up = async {
            sleep(head_start).await;
            caller.hang_up();
        };
        tokio::join!(release, hang_up);
        gateways.idle("lock").await;
    }
}

pub(crate) async fn a_grant_that_is_not_delivered_passes_on(fixture: &dyn Fixture) {
    let (gateways, lease) = Gateways::holding(fixture).await;
    let unlucky = gateways.queue(request("lock", "unlucky"), 1).await;
    let next = gateways.queue(request("lock", "next"), 2).await;
    gateways.release("lock", &lease.token).await;
    // The answer cannot be sent: the delivery is dropped.
    drop(unlucky.answer().await.unwrap());
    next.granted().await;
}

pub(crate) async fn one_who_is_given_back_while_queued_is_never_granted(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let queued = waiting();
    let mut place = store.stand(&queued).await;
    store.must_give_back(&queued, GiveBack::NothingHeld).await;
    released(&store, &holder).await;
    assert!(is_free(&store, "lock").await);
    // The sweep for lost positions may have found that the attempt has none.
    let news = place.try_news();
    assert!(matches!(news, None | Some(News::Forgotten)), "{news:?}");
}

pub(crate) async fn one_who_leaves_after_the_grant_is_told_so(fixture: &dyn Fixture) {
    let store = fixture.store();
    let holder = attempt("lock", LONG);
    let before = granted(&store, &holder).await;
    let queued = waiting();
    let mut place = store.stand(&queued).await;
    released(&store, &holder).await;
    timeout(LATE, place.news()).await.expect("it is granted");
    let held = store.must_leave_granted(&queued).await;
    assert!(held.fence > before.fence);
    assert!(held.expires_in > Duration::from_millis(LONG / 2));
    released(&store, &queued).await;
}

pub(crate) async fn one_who_confirms_is_told_whether_it_holds_the_lock(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let queued = waiting();
    let mut place = store.stand(&queued).await;
    store.must_not_confirm(&queued, Confirmation::Lost).await;
    released(&store, &holder).await;
    timeout(LATE, place.news()).await.expect("it is granted");
    let held = store.must_confirm(&queued).await;
    assert!(held.expires_in > Duration::from_millis(LONG / 2));
    released(&store, &queued).await;
    store.must_not_confirm(&queued, Confirmation::Lost).await;
}

pub(crate) async fn one_who_leaves_without_having_queued_has_left(fixture: &dyn Fixture) {
    let store = fixture.store();
    let unknown = waiting();
    for held in [false, true] {
        if held {
            granted(&store, &attempt("lock", LONG)).await;
        }
        let contention = store.must_leave(&unknown, None).await;
        assert_eq!(contention.holder.is_some(), held);
        assert_eq!(contention.waiters, 0);
    }
}

pub(crate) async fn one_who_leaves_after_it_was_replaced_takes_nobody_along(fixture: &dyn Fixture) {
    let (store, holder) = holding(fixture, attempt("lock", LONG)).await;
    let key = key();
    let [older, newer] = [(); 2].map(|()| patient(keyed("lock", LONG, key)));
    let _older = store.park(&older);
    let mut place = store.park(&newer);
    for attempt in [&older, &newer] {
        store.must_queue(attempt).await;
    }
    store.must_be_replaced(&older, None).await;
    store.must_give_back(&older, GiveBack::NothingHeld).await;
    released(&store, &holder).await;
    timeout(LATE, place.news()).await.expect("it is granted");
    released(&store, &newer).await;
}

pub(crate) async fn one_whose_wait_runs_out_with_the_grant_leaves_it_to_a_newer_request(
    fixture: &dyn Fixture,
) {
    let gateways = fixture.gateways();
    let [here, there] = [&gateways[0], &gateways[gateways.len() - 1]];
    let holder = here.must_hold(attempt("lock", LONG)).await;
    let key = key();
    let [older, newer] = [(); 2].map(|()| patient(keyed("lock", LONG, key)));
    let mut place = there.stand(&older).await;
    released(here, &holder).await;
    timeout(LATE, place.news()).await.expect("it is granted");
    // The older request no longer reads its news, because its wait is over. The same request is sent again.
    let answer = here.acquire(&newer).await.unwrap();
    let lease = match answer {
        Acquisition::Replayed(held, _) | Acquisition::Collected(held, ..) => held,
        other => panic!("{other:?}"),
    };
    there.must_be_replaced(&older, None).await;
    let recipient = Renewer::Recipient(RecipientId::of_attempt(&newer.token));
    let renewed = here.must_renew_as(recipient, &older).await;
    assert_eq!(renewed.fence, lease.fence);
}

fn waiting() -> Attempt {
    patient(attempt("lock", LONG))
}
