//! Leases with a hold limit that is over although Redis still has their keys: it keeps a key until its last millisecond
//! has ended.

use crate::redis::prelude::*;

/// The stored text of a lease of half a minute with a hold limit of one millisecond that ended long ago.
fn over(lease: &str) -> String {
    let (head, since, limit) = (&lease[..86], "1735689600000000", "000000001");
    format!("{head}{since}{}{limit}{}", &lease[102..126], &lease[135..])
}

/// Changes an attempt's stored lease, so that its hold limit is over.
async fn reach_limit(rig: &Rig, asked: &Attempt) {
    let (lock, id) = (key_of(asked, "lock"), format!("2{}", asked.token));
    if asked.terms.sharing.is_some() {
        let leases = key_of(asked, "leases");
        let lease = rig.text(&["HGET", &leases, &id]).await;
        let set = ["HSET", &leases, &id, &over(&lease)];
        rig.run(&set).await;
    } else {
        let lease = rig.text(&["GET", &lock]).await;
        let set = ["SET", &lock, &over(&lease), "KEEPTTL"];
        rig.run(&set).await;
    }
}

fn key_of(asked: &Attempt, key: &str) -> String {
    format!("lg:{{{}}}:{key}", asked.name)
}

async fn renewed(rig: &Rig, asked: &Attempt, ttl_ms: Option<u64>) -> Renewal {
    let renewed = rig.renew(&asked.name, &asked.token, ttl_ms.map(ttl)).await;
    renewed.unwrap()
}

#[tokio::test]
async fn a_renewal_when_nothing_is_left_finds_the_lease_over() {
    let rig = Rig::start().await;
    for ttl_ms in [None, Some(60_000), Some(5_000)] {
        let asked = rig.must_hold(attempt("alone")).await;
        reach_limit(&rig, &asked).await;
        let lost = renewed(&rig, &asked, ttl_ms).await;
        assert_eq!(lost, Renewal::Lost(Loss::Free), "{ttl_ms:?}");
        let lock = key_of(&asked, "lock");
        assert_eq!(rig.integer(&["EXISTS", &lock]).await, 0);
    }
}

#[tokio::test]
async fn a_renewal_of_one_who_shares_a_lock_when_nothing_is_left_ends_that_lease_alone() {
    let rig = Rig::start().await;
    for (others, loss) in [(1, Loss::HeldByAnother), (0, Loss::Free)] {
        let [asked, other] = [reader("shared"), reader("shared")];
        rig.grant(&asked).await;
        if others > 0 {
            rig.grant(&other).await;
        }
        reach_limit(&rig, &asked).await;
        let lost = renewed(&rig, &asked, None).await;
        assert_eq!(lost, Renewal::Lost(loss));
        match rig.inspect(&asked.name).await.unwrap().holder {
            Some(Holder::Shared(holders)) => assert_eq!(holders.count, others),
            None => assert_eq!(others, 0),
            shown => panic!("{shown:?}"),
        }
        drop(rig.release(&other.name, &other.token).await);
    }
}

#[tokio::test]
async fn a_renewal_when_nothing_is_left_says_that_the_holder_was_asked_to_release() {
    let rig = Rig::start().await;
    for asked in [attempt("alone"), reader("shared")] {
        rig.grant(&asked).await;
        reach_limit(&rig, &asked).await;
        let request = key_of(&asked, &format!("asked:2{}", asked.token));
        rig.run(&["SET", &request, "1735689601000000"]).await;
        let lost = renewed(&rig, &asked, None).await;
        assert_eq!(lost, Renewal::Lost(Loss::Broken { held: false }));
    }
}
