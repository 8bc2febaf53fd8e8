//! Fencing tokens rise, even if their counter is lost or wrong.

use crate::redis::prelude::*;

#[tokio::test]
async fn a_fence_is_at_least_the_time_and_rises_with_every_grant() {
    let rig = Rig::start().await;
    let mut last = rig.server.micros().await;
    for _ in 0..50 {
        let next = turn(&rig.store, "rising").await;
        assert!(next > last);
        last = next;
    }
    let key = fence_key(&name("rising"));
    let found = rig.text(&["GET", &key]).await;
    assert_eq!(found, last.to_string(), "all digits are kept");
}

#[tokio::test]
async fn a_counter_ahead_of_the_time_goes_on_from_where_it_is() {
    let rig = Rig::start().await;
    let ahead = rig.server.micros().await + 3_600_000_000;
    let key = fence_key(&name("ahead"));
    rig.run(&["SET", &key, &ahead.to_string()]).await;
    assert_eq!(turn(&rig.store, "ahead").await, ahead + 1);
    // The counter is lost, and the clock is behind it: the gateway remembers the fencing token.
    rig.run(&["DEL", &key]).await;
    assert_eq!(turn(&rig.store, "ahead").await, ahead + 2);
    // The remembered floor counts only for its slot.
    assert!(turn(&rig.store, "another-slot").await < ahead);
}

#[tokio::test]
async fn a_fence_that_was_shown_is_never_fallen_below() {
    let rig = Rig::start().await;
    let other = open(&rig.server.url());
    let ahead = rig.server.micros().await + 3_600_000_000;
    let key = fence_key(&name("shown"));
    for (ahead_by, seen_by) in (0..).zip(["acquire", "inspect", "renew"]) {
        // Only the other gateway has seen the counter of this turn.
        let ahead = ahead + 1_000_000 * ahead_by;
        rig.run(&["SET", &key, &ahead.to_string()]).await;
        let held = attempt("shown");
        assert_eq!(granted(other.acquire(&held).await).fence.get(), ahead + 1);
        match seen_by {
            "acquire" => drop(rig.acquire(&attempt("shown")).await.unwrap()),
            "inspect" => drop(rig.inspect(&held.name).await.unwrap()),
            _ => drop(rig.must_renew(&held, None).await),
        }
        // Counter and lease are lost, and the clock is behind both.
        rig.run(&["FLUSHALL"]).await;
        assert_eq!(turn(&rig.store, "shown").await, ahead + 2, "{seen_by}");
    }
}

#[tokio::test]
async fn a_counter_that_was_lost_issues_no_old_number() {
    let rig = Rig::start().await;
    let before = turn(&rig.store, "lost").await;
    rig.run(&["FLUSHALL"]).await;
    let after = turn(&rig.store, "lost").await;
    assert!(after > before);
    // The fencing tokens also rise at a gateway that has seen none.
    let rig = Rig::on(rig.server);
    rig.run(&["FLUSHALL"]).await;
    assert!(turn(&rig.store, "lost").await > after);
}

#[tokio::test]
async fn names_of_one_slot_share_a_counter() {
    let rig = Rig::start().await;
    let slot = Slot::of_tag(b"one");
    let mut names = (0..).map(|n| format!("other-{n}"));
    let other = names
        .find(|other| Slot::of_tag(other.as_bytes()) == slot)
        .unwrap();
    let before = turn(&rig.store, "one").await;
    assert!(turn(&rig.store, &other).await > before);
    assert_eq!(rig.keys().await, [fence_key(&name("one"))]);
    let keyslot = ["CLUSTER", "KEYSLOT", &fence_key(&name(&other))];
    let sharded = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
    let theirs = usize::try_from(sharded.integer(&keyslot).await).unwrap();
    assert_eq!(theirs, slot.index(), "the counter lives where its names do");
}

#[tokio::test]
async fn after_the_last_fence_there_is_none() {
    let rig = Rig::start().await;
    let key = fence_key(&name("last"));
    let last = FencingToken::MAX.get();
    rig.run(&["SET", &key, &(last - 1).to_string()]).await;
    assert_eq!(turn(&rig.store, "last").await, last);
    let before = rig.digest().await;
    let refused = rig.acquire(&attempt("last")).await.unwrap_err();
    assert_eq!(refused, StoreError::FenceExhausted);
    assert_eq!(rig.digest().await, before, "nothing was written");
}

#[tokio::test]
async fn no_fence_is_made_from_an_impossible_time() {
    let rig = Rig::start().await;
    let script = composed("acquire");
    // Times in 1970, in 2001, in the last second of 2024, and in 2200.
    for seconds in ["25", "1000000000", "1735689599", "7258118400"] {
        // The unchanged script on a server whose clock shows this time.
        let script = script.replace("redis.call('TIME')", &format!("{{ '{seconds}', '0' }}"));
        let (key, counter) = ("lg:{l}:lock", "lg:{f}:fence");
        let gateway = format!("{:016}{}", 0, "0123456789abcdef");
        let mut command = vec!["EVAL", &script, "2", key, counter];
        command.extend(["token", "1000", "rest", &gateway, "", "", "", "9"]);
        let refused = format!("clock token 0:10:{seconds:0>10}");
        assert_eq!(rig.text(&command).await, refused);
    }
    assert_eq!(rig.integer(&["DBSIZE"]).await, 0, "nothing was written");
}
