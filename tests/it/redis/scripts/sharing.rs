//! Shared locks on one server: foreign locks, foreign values at our keys, leftovers, late copies.

use super::late::let_late_copy_arrive;
use crate::redis::prelude::*;

async fn is_foreign(rig: &Rig, asked: &Attempt) {
    let holder = rig.must_refuse(asked).await.holder;
    assert!(matches!(holder, Some(Holder::Foreign { .. })), "{holder:?}");
}

/// How many keys of a shared lock exist.
async fn keys_left(server: &RedisServer, lock: &str) -> i64 {
    let keys = shared_keys(lock);
    let mut exists = vec!["EXISTS"];
    exists.extend(keys.iter().map(String::as_str));
    server.integer(&exists).await
}

#[tokio::test]
async fn a_foreign_client_is_excluded_as_long_as_anybody_shares_the_lock_and_excludes() {
    let rig = Rig::start().await;
    let sharing = [reader("foreign"), one_of(2, "foreign")];
    let key = "lg:{foreign}:lock";
    let set = ["SET", key, "theirs", "NX", "PX", "60000"];
    for asked in &sharing {
        rig.grant(asked).await;
        assert_eq!(rig.text(&set).await, "");
    }
    for (gone, asked) in sharing.iter().enumerate() {
        assert_eq!(rig.text(&set).await, "", "{gone} have gone");
        rig.must_release(asked).await;
    }
    let found = keys_left(&rig.server, "foreign").await;
    assert_eq!(found, 0, "nothing is left");
    assert_eq!(rig.text(&set).await, "OK");
    for asked in [reader("foreign"), one_of(9, "foreign"), attempt("foreign")] {
        is_foreign(&rig, &asked).await;
    }
    for asked in &sharing {
        let lost = Loss::HeldByAnother;
        rig.must_have_lost(asked, lost).await;
    }
    assert_eq!(rig.text(&["GET", key]).await, "theirs");
    rig.run(&["DEL", key]).await;
    rig.grant(&reader("foreign")).await;
}

#[tokio::test]
async fn those_who_shared_a_lock_that_was_deleted_by_hand_do_not_come_back() {
    let rig = Rig::start().await;
    let key = "lg:{by-hand}:lock";
    for between in ["nobody", "alone", "foreign"] {
        let dead: Vec<_> = (0..3).map(|_| one_of(3, "by-hand")).collect();
        let mut last = None;
        for asked in &dead {
            last = Some(rig.grant(asked).await.fence);
        }
        rig.run(&["DEL", key]).await;
        let name = &dead[0].name;
        rig.must_be_free(name).await;
        match between {
            "alone" => {
                let alone = rig.must_hold(attempt("by-hand")).await;
                rig.must_release(&alone).await;
            }
            "foreign" => {
                rig.run(&["SET", key, "theirs", "PX", "60000"]).await;
                is_foreign(&rig, &reader("by-hand")).await;
                rig.run(&["DEL", key]).await;
            }
            _ => {}
        }
        let next = one_of(1, "by-hand");
        let held = rig.grant(&next).await;
        assert!(Some(held.fence) > last);
        assert_eq!(held.mode.slot(), Some(0), "{between}: no slot is taken");
        assert_eq!(rig.must_be_shared(&next.name).await.count, 1);
        for asked in &dead {
            rig.must_have_lost(asked, Loss::HeldByAnother).await;
        }
        assert_eq!(rig.must_be_shared(&next.name).await.count, 1);
        rig.must_release(&next).await;
        assert_eq!(keys_left(&rig.server, "by-hand").await, 0);
    }
}

#[tokio::test]
async fn what_of_a_shared_lock_was_evicted_is_restored_from_the_leases() {
    let rig = Rig::start().await;
    for kind in ["shared", "slots"] {
        let lock = format!("evicted-{kind}");
        let held = [one_of(4, &lock), one_of(4, &lock)];
        rig.must_grant_each(&held).await;
        let key = format!("lg:{{{lock}}}:{kind}");
        rig.run(&["DEL", &key]).await;
        rig.must_refuse(&attempt(&lock)).await;
        let third = one_of(4, &lock);
        assert_eq!(rig.grant(&third).await.mode.slot(), Some(2), "{kind}");
        assert_eq!(rig.must_be_shared(&third.name).await.count, 3);
        let lasts = rig.integer(&["PTTL", &key]).await;
        assert!(lasts > 0, "{kind} ends with the lock: {lasts}");
        rig.store
            .must_release_each([&held[0], &third, &held[1]])
            .await;
        assert_eq!(keys_left(&rig.server, &lock).await, 0);
    }
}

#[tokio::test]
async fn a_shared_lock_whose_leases_were_evicted_is_free() {
    let rig = Rig::start().await;
    rig.must_grant(&one_of(4, "evicted")).await;
    rig.run(&["DEL", "lg:{evicted}:leases"]).await;
    let alone = rig.must_hold(attempt("evicted")).await;
    rig.must_release(&alone).await;
    assert_eq!(keys_left(&rig.server, "evicted").await, 0);
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_nothing_is_granted_or_lost() {
    let rig = Rig::start().await;
    for kind in ["shared", "leases", "slots"] {
        let lock = format!("type-{kind}");
        let key = format!("lg:{{{lock}}}:{kind}");
        let held = with(keyed(&lock, "k"), |it| {
            it.terms.sharing = Some(sharing(Some(3)));
        });
        let other = one_of(3, &lock);
        rig.must_grant_each([&held, &other]).await;
        let fence = rig.must_be_shared(&held.name).await.leases[0].fence;
        let aside = format!("{key}:aside");
        rig.run(&["RENAME", &key, &aside]).await;
        rig.run(&["RPUSH", &key, "mine"]).await;
        let before = rig.digest().await;
        for asked in [reader(&lock), one_of(9, &lock), attempt(&lock)] {
            assert_foreign(rig.acquire(&asked).await, &key);
            assert_eq!(rig.digest().await, before, "acquire");
        }
        let Attempt { name, token, .. } = &held;
        assert_foreign(rig.release(name, token).await, &key);
        assert_eq!(rig.digest().await, before, "release");
        if kind != "slots" {
            // A renewal keeps the slot, so it does not read the bitmap and would succeed with a foreign one.
            assert_foreign(rig.renew(name, token, None).await, &key);
            assert_eq!(rig.digest().await, before, "renew");
        }
        assert_foreign(rig.give_back(name, token, None).await, &key);
        assert_eq!(rig.digest().await, before, "give back");
        let broken = rig.break_lock(name, Some(fence.into())).await;
        assert!(broken.is_err(), "{broken:?}");
        assert_eq!(rig.digest().await, before, "break");
        // When the keys are restored, the leases are as before.
        rig.run(&["DEL", &key]).await;
        rig.run(&["RENAME", &aside, &key]).await;
        assert_eq!(rig.must_be_shared(&held.name).await.count, 2);
        rig.must_renew(&held, None).await;
        assert_eq!(rig.grant(&one_of(3, &lock)).await.mode.slot(), Some(2));
        rig.must_release(&held).await;
    }
}

#[tokio::test]
async fn a_queue_of_another_type_keeps_nobody_from_going() {
    let rig = Rig::start().await;
    let key = "lg:{queue}:wait";
    let sharing = ["queue"; 3].map(|lock| one_of(3, lock));
    rig.must_grant_each(&sharing).await;
    rig.run(&["SET", key, "mine"]).await;
    assert_foreign(rig.acquire(&one_of(9, "queue")).await, key);
    let count = ["ZCARD", "lg:{queue}:shared"];
    assert_eq!(rig.integer(&count).await, 3);
    rig.must_release(&sharing[0]).await;
    assert_eq!(rig.integer(&count).await, 2);
    rig.must_give_back(&sharing[1], GiveBack::GivenBack).await;
    rig.must_release(&sharing[2]).await;
    assert_eq!(keys_left(&rig.server, "queue").await, 0);
    assert_eq!(rig.text(&["GET", key]).await, "mine");
}

#[tokio::test]
async fn all_that_a_lock_leaves_goes_by_itself() {
    let rig = Rig::start().await;
    let brief = |ms, asked: Attempt| with(asked, |it| it.terms.set_ttl(ttl(ms)));
    let last = brief(900, one_of(3, "expires"));
    for asked in [brief(400, reader("expires")), last.clone()] {
        rig.grant(&asked).await;
    }
    let left = async |key: &str| rig.integer(&["PTTL", key]).await;
    let [lock, others @ ..] = shared_keys("expires");
    let ends = left(&lock).await;
    assert!((1..=900).contains(&ends), "{ends}");
    for key in &others {
        let ends = left(key).await;
        assert!((1..=61_000).contains(&ends), "{key}: {ends}");
    }
    let is_so = async || left(&lock).await == -2;
    until("the lock is free although nobody looks at it", is_so).await;
    for key in &others {
        let ends = left(key).await;
        assert!((1..=91_000).contains(&ends), "{key}: {ends}");
    }
    // Leftovers of an expired lease have no effect on the next lease.
    assert_eq!(rig.grant(&one_of(1, "expires")).await.mode.slot(), Some(0));
}

#[tokio::test]
async fn a_late_copy_of_an_acquire_takes_no_place_after_the_release() {
    for others in [0, 1] {
        let (rig, proxy) = Rig::with_proxy().await;
        let stays: Vec<_> = (0..others).map(|_| one_of(3, "late")).collect();
        rig.must_grant_each(&stays).await;
        let asked = one_of(3, "late");
        proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
        rig.grant(&asked).await;
        assert_eq!(proxy.strikes(), 1, "the second copy was granted");
        rig.must_release(&asked).await;
        let_late_copy_arrive(&rig, &proxy, &asked).await;
        let holder = rig.inspect(&asked.name).await.unwrap().holder;
        assert_eq!(holder.map_or(0, |it| it.count()), others);
        // The late copy has taken no slot either.
        let next = rig.grant(&one_of(3, "late")).await;
        assert_eq!(next.mode.slot().map(u64::from), Some(others));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_share_a_lock_keep_it_and_their_slots_over_a_failover() {
    let watched = Watched::start().await;
    let config = waits_for(2, 5_000);
    let store = open_with(&watched.url(), &config);
    let sharing = [one_of(2, "kept"), one_of(2, "kept")]
        .map(|asked| with(asked, |it| it.terms.set_ttl(ttl(600_000))));
    store.must_grant_each(&sharing).await;
    watched.settled(0).await;
    watched.fail_over().await;
    watched.replaced(0).await;
    for (slot, asked) in (0..).zip(&sharing) {
        let renewed = eventually("it is renewed at the new master", async || {
            match store.renew(&asked.name, &asked.token, None).await {
                Ok(Renewal::Renewed(renewed, _)) => Some(renewed),
                Ok(lost) => panic!("{lost:?}"),
                Err(_) => None,
            }
        })
        .await;
        assert_eq!(renewed.mode.slot(), Some(slot));
    }
    let third = one_of(2, "kept");
    eventually("nobody else is granted it", async || {
        match store.acquire(&third).await {
            Ok(Acquisition::Held(_)) => Some(()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_ended_is_forgotten_by_whoever_looks_next() {
    let rig = Rig::start().await;
    let stays = rig.must_hold(one_of(2, "pruned")).await;
    rig.must_grant(&with(one_of(2, "pruned"), |it| it.terms.set_ttl(ttl(150))))
        .await;
    let entries = async || rig.integer(&["HLEN", "lg:{pruned}:leases"]).await;
    let is_so = async || rig.must_be_shared(&stays.name).await.count == 1;
    until("it has ended", is_so).await;
    // Only grants and ends of leases write to this key.
    assert_eq!(entries().await, 2);
    let next = rig.grant(&one_of(2, "pruned")).await;
    assert_eq!(next.mode.slot(), Some(1));
    assert_eq!(entries().await, 2);
    let left = rig.integer(&["ZCARD", "lg:{pruned}:shared"]).await;
    assert_eq!(left, 2);
    assert!(next.expires_in > Duration::from_secs(20));
}
