//! The recipient of a lease, with lost replies and late copies.

use crate::redis::prelude::*;

#[tokio::test]
async fn an_adoption_whose_reply_is_lost_is_an_adoption() {
    let (rig, proxy) = Rig::with_proxy().await;
    let lease = rig.must_hold(attempt("adopted")).await;
    let id = RecipientId::random();
    proxy.strike(&id.to_string(), Fault::CutReply);
    rig.must_renew_as(Renewer::Adopter(id), &lease).await;
    assert_eq!(proxy.strikes(), 1);
    let first = RecipientId::of_attempt(&lease.token);
    let release = |recipient| {
        rig.release_as(
            Releaser::Recipient(recipient),
            &lease.name,
            &lease.token,
            true,
        )
    };
    assert_eq!(release(first).await.unwrap(), Release::Adopted(id));
    assert!(matches!(release(id).await, Ok(Release::Released(_))));
}

#[tokio::test]
async fn a_late_copy_of_an_adoption_does_not_take_the_lease_from_the_next() {
    let (rig, proxy) = Rig::with_proxy().await;
    let lease = rig.must_hold(attempt("late")).await;
    let [older, newer] = [RecipientId::random(), RecipientId::random()];
    let renew = |renewer| rig.renew_as(renewer, &lease.name, &lease.token, RenewalTtl::default());
    proxy.strike(&older.to_string(), Fault::HoldRequest);
    for adopter in [older, newer] {
        rig.must_renew_as(Renewer::Adopter(adopter), &lease).await;
    }
    assert_eq!(proxy.strikes(), 1, "the first copy is on its way");
    let scripts = async || rig.server.calls("evalsha").await;
    let before = scripts().await;
    proxy.let_go();
    until("the late copy arrives", async || scripts().await > before).await;
    rig.must_renew_as(Renewer::Recipient(newer), &lease).await;
    // A repeated adoption by the older recipient is refused as well.
    assert_eq!(renew(Renewer::Adopter(older)).await, Ok(Renewal::Adopted));
}

#[tokio::test]
async fn a_late_copy_of_an_adoption_whose_caller_hung_up_takes_the_lease_from_no_stream() {
    let (rig, proxy) = Rig::with_proxy().await;
    let lease = rig.must_hold(attempt("left")).await;
    let [older, newer] = [RecipientId::random(), RecipientId::random()];
    proxy.strike(&older.to_string(), Fault::HoldRequest);
    tokio::select! {
        _ = rig.renew_as(Renewer::Adopter(older), &lease.name, &lease.token, RenewalTtl::default()) => {
            panic!("the first copy is on its way");
        }
        () = proxy.struck(1) => {}
    }
    let given_back = rig.give_back(&lease.name, &older.attempt(), None).await;
    assert_eq!(given_back, Ok(GiveBack::NothingHeld));
    rig.must_renew_as(Renewer::Adopter(newer), &lease).await;
    let scripts = async || rig.server.calls("evalsha").await;
    let before = scripts().await;
    proxy.let_go();
    until("the late copy arrives", async || scripts().await > before).await;
    rig.must_renew_as(Renewer::Recipient(newer), &lease).await;
}

#[tokio::test]
async fn an_attempt_that_was_answered_again_does_not_take_the_lease_back_later() {
    let rig = Rig::start().await;
    let (lease, again) = (keyed("again", "k"), keyed("again", "k"));
    rig.grant(&lease).await;
    let renew = |renewer| rig.renew_as(renewer, &lease.name, &lease.token, RenewalTtl::default());
    rig.must_replay(&again).await;
    let newer = RecipientId::random();
    renew(Renewer::Adopter(newer)).await.unwrap();
    // The attempt repeats its acquire, because its answer may have been lost.
    rig.must_answer(&again, Acquisition::Replaced).await;
    rig.must_renew_as(Renewer::Recipient(newer), &lease).await;
}
