//! Foreign values at our keys: they are never overwritten, and errors name them.

use crate::redis::prelude::*;

#[tokio::test]
async fn a_key_of_another_type_is_named_and_left_alone() {
    let rig = Rig::start().await;
    for part in ["lock", "wait"] {
        let asked = keyed(&format!("type-{part}"), "a");
        let key = format!("lg:{{{}}}:{part}", asked.name);
        rig.run(&["SADD", &key, "mine"]).await;
        assert_foreign(rig.acquire(&asked).await, &key);
        assert_foreign(rig.give_back(&asked.name, &asked.token, None).await, &key);
        if part == "lock" {
            assert_foreign(rig.release(&asked.name, &asked.token).await, &key);
            assert_foreign(rig.renew(&asked.name, &asked.token, None).await, &key);
        }
        if part == "lock" {
            assert_foreign(rig.inspect(&asked.name).await, &key);
            let query = fence_query(asked.name.as_str(), FencingToken::MAX);
            let check = rig.check_fence(&query);
            assert_foreign(check.await, &key);
        }
        let there = ["SISMEMBER", &key, "mine"];
        assert_eq!(rig.integer(&there).await, 1);
        assert_eq!(rig.keys().await, [key.as_str()], "nothing else was written");
        rig.run(&["DEL", &key]).await;
    }
    let asked = attempt("type-fence");
    let key = fence_key(&asked.name);
    for (set, get) in [(["RPUSH", &key, "mine"], ["LINDEX", &key, "0"])] {
        rig.run(&set).await;
        assert_foreign(rig.acquire(&asked).await, &key);
        assert_eq!(rig.text(&get).await, "mine");
    }
    for text in ["mine", "1.5", "-1", "0x10", "1e3", ""] {
        rig.run(&["SET", &key, text]).await;
        assert_foreign(rig.acquire(&asked).await, &key);
        assert_eq!(rig.text(&["GET", &key]).await, text);
    }
    assert_eq!(rig.keys().await, [key.as_str()], "nothing else was written");
}

#[tokio::test]
async fn a_ticket_of_another_type_is_named() {
    let rig = Rig::start().await;
    let asked = attempt("type-of");
    let key = format!("lg:{{type-of}}:of:2{}", asked.token);
    rig.run(&["RPUSH", &key, "mine"]).await;
    assert_foreign(rig.release(&asked.name, &asked.token).await, &key);
    let renewal = rig.renew(&asked.name, &asked.token, None).await;
    assert_foreign(renewal, &key);
    assert_foreign(rig.give_back(&asked.name, &asked.token, None).await, &key);
    assert_eq!(rig.keys().await, [key], "nothing was written");
}

#[tokio::test]
async fn a_ticket_of_another_type_keeps_a_lease_from_ending_half_way() {
    let rig = Rig::start().await;
    let held = attempt("ticket");
    let lease = rig.grant(&held).await;
    let waits = waiting(attempt("ticket"));
    let _place = rig.stand(&waits).await;
    let key = format!("lg:{{ticket}}:of:2{}", held.token);
    rig.run(&["RPUSH", &key, "mine"]).await;
    let before = rig.digest().await;
    let target = Some(lease.fence.into());
    assert_foreign(rig.give_back(&held.name, &held.token, None).await, &key);
    assert_eq!(rig.digest().await, before);
    assert!(rig.break_lock(&held.name, target).await.is_err());
    assert_eq!(rig.digest().await, before);
    rig.run(&["DEL", &key]).await;
    rig.must_break(&held.name, target).await;
    assert_holds(&rig.server, "ticket", &waits.token, "").await;
}

#[tokio::test]
async fn a_queue_or_counter_of_another_type_keeps_a_lease_from_ending_half_way() {
    let rig = Rig::start().await;
    let asked = rig.must_hold(keyed("half-way", "a")).await;
    let key = "lg:{half-way}:wait";
    rig.run(&["SET", key, "mine"]).await;
    let before = rig.digest().await;
    assert_foreign(rig.release(&asked.name, &asked.token).await, key);
    assert_foreign(rig.give_back(&asked.name, &asked.token, None).await, key);
    assert_eq!(rig.digest().await, before);
    rig.run(&["DEL", key]).await;
    // A ticket that was taken out of the queue for a grant is not lost either.
    let waits = waiting(attempt("half-way"));
    let _place = rig.stand(&waits).await;
    let counter = fence_key(&asked.name);
    rig.run(&["DEL", &counter]).await;
    rig.run(&["SADD", &counter, "mine"]).await;
    assert_foreign(rig.release(&asked.name, &asked.token).await, &counter);
    rig.must_be_held(&asked.name).await;
    assert_eq!(rig.inspect(&asked.name).await.unwrap().waiters, 1);
}

#[tokio::test]
async fn what_begins_otherwise_than_a_lease_is_foreign_and_left_alone() {
    let rig = Rig::start().await;
    let key = "lg:{layout}:lock";
    let asked = attempt("layout");
    let later = format!("3{}", "x".repeat(300));
    let shared = format!("2*{}", "1".repeat(300));
    for value in ["2", "1", "", "2x", &later, &shared] {
        rig.run(&["SET", key, value, "PX", "60000"]).await;
        let held = rig.acquire(&asked).await.unwrap();
        let foreign = matches!(
            &held,
            Acquisition::Held(Contention {
                holder: Some(Holder::Foreign { mark: Some(_), .. }),
                ..
            })
        );
        assert!(foreign, "{value:?}: {held:?}");
        let lost = Loss::HeldByAnother;
        rig.must_lose(&asked, lost).await;
        assert_eq!(rig.text(&["GET", key]).await, value);
        rig.must_break(&asked.name, None).await;
        assert_eq!(rig.integer(&["EXISTS", key]).await, 0);
    }
}

#[tokio::test]
async fn a_foreign_client_excludes_and_is_shown_with_its_expiry() {
    let rig = Rig::start().await;
    let asked = attempt("foreign");
    let key = "lg:{foreign}:lock";
    let set = rig.text(&["SET", key, "theirs", "NX", "PX", "60000"]).await;
    assert_eq!(set, "OK");
    match rig.acquire(&asked).await.unwrap() {
        Acquisition::Held(Contention {
            holder:
                Some(Holder::Foreign {
                    expires_in: Some(left),
                    ..
                }),
            waiters: 0,
        }) => {
            let expected = left > Duration::from_secs(50) && left <= Duration::from_mins(1);
            assert!(expected, "{left:?}");
        }
        other => panic!("{other:?}"),
    }
    rig.run(&["PERSIST", key]).await;
    // SHA-1 of the value `theirs`.
    let holder = foreign_holder("d16d74303205ee1884bba2395511c1f66af12d14");
    let held = rig.acquire(&asked).await.unwrap();
    assert_eq!(held, Acquisition::Held(contention(holder.clone())));
    assert_eq!(rig.inspect(&asked.name).await.unwrap(), held_by(holder));
    for fence in [FencingToken::new(1).unwrap(), FencingToken::MAX] {
        assert!(!rig.must_be_stale("foreign", fence).await);
    }

    let lost = Loss::HeldByAnother;
    rig.must_have_lost(&asked, lost).await;
    rig.must_give_back(&asked, GiveBack::NothingHeld).await;
    assert_eq!(rig.text(&["GET", key]).await, "theirs");

    rig.run(&["DEL", key]).await;
    rig.grant(&attempt("foreign")).await;
}

#[tokio::test]
async fn a_lease_of_ours_excludes_a_foreign_client_until_it_runs_out() {
    let rig = Rig::start().await;
    let asked = rig
        .must_hold(with(attempt("theirs"), |it| it.terms.set_ttl(ttl(1_500))))
        .await;
    let key = "lg:{theirs}:lock";
    let set = ["SET", key, "theirs", "NX", "PX", "60000"];
    assert_eq!(rig.text(&set).await, "");
    until("the lease runs out", async || rig.text(&set).await == "OK").await;
    rig.must_not_release(&asked, Loss::HeldByAnother).await;
    assert_eq!(rig.text(&["GET", key]).await, "theirs");
}

#[tokio::test]
async fn a_lock_deleted_by_hand_is_free_whatever_its_record_says() {
    let rig = Rig::start().await;
    let first = with(attempt("by-hand"), |it| {
        it.terms.set_hold_limit(limit(40_000));
    });
    let lease = rig.grant(&first).await;
    rig.run(&["DEL", "lg:{by-hand}:lock"]).await;
    rig.must_be_free(&first.name).await;
    rig.must_lose(&first, Loss::Free).await;
    let second = rig.grant(&attempt("by-hand")).await;
    assert!(second.fence > lease.fence);
    match rig.inspect(&first.name).await.unwrap() {
        Inspection {
            holder: Some(Holder::Lease(seen)),
            ..
        } => {
            assert_eq!((seen.fence, seen.hold_expires_in), (second.fence, None));
        }
        other => panic!("{other:?}"),
    }
}
