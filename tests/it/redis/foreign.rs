//! What others have put under our keys: never overwritten, always named.

use std::time::Duration;

use latchgate::{
    lock::LockName,
    store::{
        Store, StoreError,
        contract::{Acquisition, Contention, GiveBack, Holder, Inspection, Loss, Release, Renewal},
        redis::{Slot, SlotTags},
    },
};

use super::{
    leases::keyed,
    rig::{Rig, attempt, eventually, name, token},
};

pub(super) fn fence_key(lock: &LockName) -> String {
    let tags = SlotTags::compute();
    format!(
        "lg:{{{}}}:fence",
        tags.of(Slot::of(lock.as_str().as_bytes()))
    )
}

#[track_caller]
fn assert_foreign<T: std::fmt::Debug>(answer: Result<T, StoreError>, expected: &str) {
    match answer {
        Err(StoreError::ForeignData { key, .. }) => assert_eq!(key, expected),
        other => panic!("{expected} is in the way, but: {other:?}"),
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_left_alone() {
    let rig = Rig::start().await;
    for part in ["lock", "info", "ended"] {
        let asked = keyed(&format!("type-{part}"), "a");
        let key = format!("lg:{{{}}}:{part}", asked.name);
        rig.server.run(&["RPUSH", &key, "mine"]).await;
        assert_foreign(rig.store.acquire(&asked).await, &key);
        assert_foreign(rig.store.give_back(&asked.name, &asked.token).await, &key);
        assert_foreign(rig.store.release(&asked.name, &asked.token).await, &key);
        if part != "ended" {
            assert_foreign(rig.store.renew(&asked.name, &asked.token, None).await, &key);
        }
        if part == "lock" {
            assert_foreign(rig.store.inspect(&asked.name).await, &key);
        }
        assert_eq!(rig.server.text(&["LINDEX", &key, "0"]).await, "mine");
        assert_eq!(
            rig.server.keys().await,
            [key.as_str()],
            "nothing else was written"
        );
        rig.server.run(&["DEL", &key]).await;
    }
    let asked = attempt("type-fence");
    let key = fence_key(&asked.name);
    for (set, get) in [(["RPUSH", &key, "mine"], ["LINDEX", &key, "0"])] {
        rig.server.run(&set).await;
        assert_foreign(rig.store.acquire(&asked).await, &key);
        assert_eq!(rig.server.text(&get).await, "mine");
    }
    for text in ["mine", "1.5", "-1", "0x10", "1e3", ""] {
        rig.server.run(&["SET", &key, text]).await;
        assert_foreign(rig.store.acquire(&asked).await, &key);
        assert_eq!(rig.server.text(&["GET", &key]).await, text);
    }
    assert_eq!(
        rig.server.keys().await,
        [key.as_str()],
        "nothing else was written"
    );
}

#[tokio::test]
async fn memories_of_another_type_keep_a_lease_from_ending_half_way() {
    let rig = Rig::start().await;
    let asked = keyed("half-way", "a");
    rig.grant(&asked).await;
    let key = "lg:{half-way}:ended";
    rig.server.run(&["DEL", key]).await;
    rig.server.run(&["SET", key, "mine"]).await;
    let before = rig.server.text(&["DEBUG", "DIGEST"]).await;
    assert_foreign(rig.store.renew(&asked.name, &asked.token, None).await, key);
    assert_foreign(rig.store.release(&asked.name, &asked.token).await, key);
    assert_foreign(rig.store.give_back(&asked.name, &asked.token).await, key);
    assert_eq!(rig.server.text(&["DEBUG", "DIGEST"]).await, before);
}

#[tokio::test]
async fn a_record_of_another_layout_is_refused_and_left_alone() {
    let rig = Rig::start().await;
    for fields in [["v", "2"], ["v", "10"], ["v", "x"], ["mine", "1"]] {
        for held in [false, true] {
            let asked = attempt("layout");
            let info = "lg:{layout}:info";
            rig.server.run(&["FLUSHALL"]).await;
            rig.server
                .run(&["HSET", info, fields[0], fields[1], "lock", "x"])
                .await;
            if held {
                let value = asked.token.to_string();
                rig.server
                    .run(&["SET", "lg:{layout}:lock", &value, "PX", "60000"])
                    .await;
            }
            let before = rig.server.text(&["DEBUG", "DIGEST"]).await;
            assert_foreign(rig.store.acquire(&asked).await, info);
            assert_foreign(rig.store.renew(&asked.name, &asked.token, None).await, info);
            assert_foreign(rig.store.release(&asked.name, &asked.token).await, info);
            assert_foreign(rig.store.give_back(&asked.name, &asked.token).await, info);
            if held {
                assert_foreign(rig.store.inspect(&asked.name).await, info);
            }
            assert_eq!(
                rig.server.text(&["DEBUG", "DIGEST"]).await,
                before,
                "{fields:?}"
            );
        }
    }
}

#[tokio::test]
async fn of_another_layout_no_more_is_shown_than_anybody_reads() {
    let rig = Rig::start().await;
    let version = "\x1b[31m2\r\n".repeat(100_000);
    rig.server
        .run(&["HSET", "lg:{loud}:info", "v", &version])
        .await;
    let refused = rig.store.acquire(&attempt("loud")).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("\\u{1b}[31m2\\r\\n"), "{text}");
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(text.len() < 300, "{text}");
}

#[tokio::test]
async fn a_foreign_client_excludes_and_is_shown_with_its_expiry() {
    let rig = Rig::start().await;
    let asked = attempt("foreign");
    let key = "lg:{foreign}:lock";
    let set = rig
        .server
        .text(&["SET", key, "theirs", "NX", "PX", "60000"])
        .await;
    assert_eq!(set, "OK");
    match rig.store.acquire(&asked).await.unwrap() {
        Acquisition::Held(Contention {
            holder:
                Some(Holder::Foreign {
                    expires_in: Some(left),
                    ..
                }),
            waiters: 0,
        }) => {
            assert!(
                left > Duration::from_secs(50) && left <= Duration::from_mins(1),
                "{left:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    rig.server.run(&["PERSIST", key]).await;
    // SHA-1 of `theirs`.
    let holder = super::expected::foreign("d16d74303205ee1884bba2395511c1f66af12d14");
    let held = rig.store.acquire(&asked).await.unwrap();
    assert_eq!(
        held,
        Acquisition::Held(super::expected::contention(holder.clone()))
    );
    assert_eq!(
        rig.store.inspect(&asked.name).await.unwrap(),
        super::expected::held_by(holder)
    );

    let lost = Loss::HeldByAnother;
    let renewal = rig
        .store
        .renew(&asked.name, &asked.token, None)
        .await
        .unwrap();
    assert_eq!(renewal, Renewal::Lost(lost));
    let release = rig.store.release(&asked.name, &asked.token).await.unwrap();
    assert_eq!(release, Release::Lost(lost));
    let outcome = rig
        .store
        .give_back(&asked.name, &asked.token)
        .await
        .unwrap();
    assert_eq!(outcome, GiveBack::NothingHeld);
    assert_eq!(rig.server.text(&["GET", key]).await, "theirs");

    rig.server.run(&["DEL", key]).await;
    rig.grant(&attempt("foreign")).await;
}

#[tokio::test]
async fn a_lease_of_ours_excludes_a_foreign_client_until_it_runs_out() {
    let rig = Rig::start().await;
    let mut asked = attempt("theirs");
    asked.ttl = super::rig::ttl(1_500);
    rig.grant(&asked).await;
    let key = "lg:{theirs}:lock";
    let set = ["SET", key, "theirs", "NX", "PX", "60000"];
    assert_eq!(rig.server.text(&set).await, "");
    eventually("the lease runs out", async || {
        (rig.server.text(&set).await == "OK").then_some(())
    })
    .await;
    let release = rig.store.release(&asked.name, &asked.token).await.unwrap();
    assert_eq!(release, Release::Lost(Loss::HeldByAnother));
    assert_eq!(rig.server.text(&["GET", key]).await, "theirs");
}

#[tokio::test]
async fn a_lock_deleted_by_hand_is_free_whatever_its_record_says() {
    let rig = Rig::start().await;
    let mut first = attempt("by-hand");
    first.hold_limit = Some(super::rig::limit(40_000));
    let lease = rig.grant(&first).await;
    rig.server.run(&["DEL", "lg:{by-hand}:lock"]).await;
    assert_eq!(
        rig.store.inspect(&first.name).await.unwrap(),
        super::expected::free()
    );
    let renewal = rig
        .store
        .renew(&first.name, &first.token, None)
        .await
        .unwrap();
    assert_eq!(renewal, Renewal::Lost(Loss::Free), "it is not brought back");
    let second = rig.grant(&attempt("by-hand")).await;
    assert!(second.fence > lease.fence);
    match rig.store.inspect(&first.name).await.unwrap() {
        Inspection {
            holder: Some(Holder::Lease(seen)),
            ..
        } => {
            assert_eq!((seen.fence, seen.hold_expires_in), (second.fence, None));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lock_whose_record_was_deleted_is_not_renewed_and_can_be_released() {
    let rig = Rig::start().await;
    let asked = attempt("no-record");
    rig.grant(&asked).await;
    rig.server.run(&["DEL", "lg:{no-record}:info"]).await;
    let inspection = rig.store.inspect(&asked.name).await.unwrap();
    assert!(
        matches!(
            inspection,
            Inspection {
                holder: Some(Holder::Foreign { .. }),
                ..
            }
        ),
        "{inspection:?}"
    );
    let renewal = rig
        .store
        .renew(&asked.name, &asked.token, None)
        .await
        .unwrap();
    assert_eq!(renewal, Renewal::Lost(Loss::HeldByAnother));
    let lost = rig.store.release(&asked.name, &token()).await.unwrap();
    assert_eq!(lost, Release::Lost(Loss::HeldByAnother));
    let released = rig
        .store
        .release(&name("no-record"), &asked.token)
        .await
        .unwrap();
    assert_eq!(released, Release::Released);
}
