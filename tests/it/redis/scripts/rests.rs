//! Rests after a release whose reply is lost, or of which a copy comes late.

use crate::redis::prelude::*;

/// Two attempts for the lock with a minimum hold, without and with an idempotency key.
fn cooling() -> [Attempt; 2] {
    [attempt("cools"), keyed("cools", "key")].map(|asked| {
        let min_hold = MinHold::from_millis(20_000, asked.terms.ttl()).unwrap();
        with(asked, |it| it.terms.min_hold = Some(min_hold))
    })
}

/// The bytes of a release after the token of the lease.
fn release_of(asked: &Attempt) -> String {
    format!("{}\r\n$32\r\n", asked.token)
}

async fn rests(rig: &Rig, asked: &Attempt) -> HeldLease {
    let held = rig.must_be_held(&asked.name).await;
    assert!(held.is_resting, "{held:?}");
    held
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_leaves_one_rest() {
    let (rig, proxy) = Rig::with_proxy().await;
    for asked in cooling() {
        let lease = rig.grant(&asked).await;
        proxy.strike(&release_of(&asked), Fault::CutReply);
        let release = rig.release(&asked.name, &asked.token).await;
        if asked.idempotency.is_some() {
            assert!(matches!(release, Ok(Release::Released(_))), "{release:?}");
        } else {
            assert_unknown(release);
        }
        assert_eq!(rests(&rig, &asked).await.fence, lease.fence);
        rig.must_lose(&asked, Loss::HeldByAnother).await;
        rig.must_break(&asked.name, Some(lease.fence.into())).await;
        rig.must_be_free(&asked.name).await;
    }
}

#[tokio::test]
async fn a_late_copy_of_a_release_ends_no_rest_and_no_later_lease() {
    for asked in cooling() {
        let (rig, proxy) = Rig::with_proxy().await;
        let lease = rig.grant(&asked).await;
        proxy.strike(&release_of(&asked), Fault::HoldRequest);
        rig.must_release(&asked).await;
        let left = rests(&rig, &asked).await.expires_in;
        super::late::let_late_copy_arrive(&rig, &proxy, &asked).await;
        let rest = rests(&rig, &asked).await;
        assert_eq!(rest.fence, lease.fence);
        assert!(rest.expires_in <= left);
        rig.must_break(&asked.name, None).await;
        let next = rig.must_hold(attempt("cools")).await;
        drop(rig.release(&asked.name, &asked.token).await);
        rig.must_release(&next).await;
    }
}

#[tokio::test]
async fn a_rest_has_no_owner_no_metadata_and_no_key_and_ends_with_its_key_in_redis() {
    let rig = Rig::start().await;
    let [_, asked] = cooling();
    let asked = with(asked, |it| {
        it.terms.said.owner = Some(Owner::new("ann").unwrap());
    });
    rig.grant(&asked).await;
    rig.must_release(&asked).await;
    let lock = "lg:{cools}:lock";
    let record = rig.text(&["GET", lock]).await;
    assert!(record.ends_with("  \n"), "{record:?}");
    assert!(!record.contains(&asked.token.to_string()));
    let left = rig.integer(&["PTTL", lock]).await;
    assert!((10_000..=20_000).contains(&left), "{left}");
    // What is remembered of the lease lasts a minute longer than the rest.
    let of = format!("lg:{{cools}}:of:2{}", asked.token);
    let remembered = rig.integer(&["PTTL", &of]).await;
    assert!((left + 55_000..=left + 60_100).contains(&remembered));
}
