//! Late arrivals: copies of an acquire whose attempt has meanwhile lost its position or was granted the lock, and
//! messages that an attempt holds the lock.
//!
//! The position of the attempt shows that its acquire was sent again. Without this, a late copy would be granted the
//! lock, and no caller would know its token.

use crate::redis::prelude::*;

/// A held lock, and an attempt that entered the queue with the second copy of its acquire.
async fn queued(asked: Attempt) -> (Rig, Proxy, Attempt, Attempt) {
    let (rig, proxy) = Rig::with_proxy().await;
    let (holder, asked) = (attempt("late"), waiting(asked));
    rig.grant(&holder).await;
    proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
    rig.must_queue(&asked).await;
    assert_eq!(proxy.strikes(), 1, "the first copy is held");
    (rig, proxy, holder, asked)
}

/// Removes the attempt from the queue, as if its gateway had died.
async fn lose_place(rig: &Rig, asked: &Attempt) {
    let id = format!("2{}", asked.token);
    let place = ["LREM", "lg:{late}:wait", "1", &id];
    assert_eq!(rig.integer(&place).await, 1);
    let ticket = ["DEL", &format!("lg:{{late}}:of:{id}")];
    assert_eq!(rig.integer(&ticket).await, 1);
}

async fn nothing_is_granted_when_it_arrives(rig: &Rig, proxy: &Proxy, asked: &Attempt) {
    write_down_everything(&rig.server).await;
    proxy.let_go();
    until_runs(&rig.server, &asked.token, 1).await;
    rig.must_be_free(&asked.name).await;
}

#[tokio::test]
async fn one_that_has_left_although_its_place_was_lost_is_granted_nothing() {
    let (rig, proxy, holder, asked) = queued(attempt("late")).await;
    lose_place(&rig, &asked).await;
    rig.must_leave(&asked, None).await;
    rig.must_release(&holder).await;
    nothing_is_granted_when_it_arrives(&rig, &proxy, &asked).await;
}

#[tokio::test]
async fn one_whose_place_was_kept_until_nobody_came_is_granted_nothing() {
    let (rig, proxy, holder, asked) = queued(keyed("late", "k")).await;
    rig.must_leave(&asked, Some(GRACE)).await;
    // The attempt's wait is over when its turn comes, and it was not removed before.
    let ticket = format!("lg:{{late}}:of:2{}", asked.token);
    let over = ["SETRANGE", &ticket, "41", "1735689600000000"];
    rig.run(&over).await;
    rig.must_release(&holder).await;
    nothing_is_granted_when_it_arrives(&rig, &proxy, &asked).await;
}

#[tokio::test]
async fn one_that_asked_again_for_its_lost_place_is_granted_the_lock_once() {
    for ends in ["released", "left"] {
        let (rig, proxy) = Rig::with_proxy().await;
        let (holder, asked) = (attempt("late"), waiting(attempt("late")));
        let mut parked = rig.park(&asked);
        rig.grant(&holder).await;
        proxy.strike(&asked.token.to_string(), Fault::HoldRequest);
        rig.must_queue(&asked).await;
        assert_eq!(proxy.strikes(), 1, "the first copy is held");
        lose_place(&rig, &asked).await;
        parked.rearm();
        // One copy is enough now, because it shows that there was an earlier one.
        rig.must_queue(&asked).await;
        if ends == "left" {
            rig.must_leave(&asked, None).await;
        }
        rig.must_release(&holder).await;
        if ends == "released" {
            hear_grant(&mut parked).await;
            rig.must_release(&asked).await;
        }
        drop(parked);
        nothing_is_granted_when_it_arrives(&rig, &proxy, &asked).await;
    }
}

/// Hands a lock over to an attempt that waits at the first gateway, by a release at the second one.
async fn hand_over(gates: &[TestGateway; 2], asked: &Attempt) {
    let [here, there] = gates;
    let lease = there.take(asked.name.as_str()).await;
    let mut parked = here.park(asked);
    here.must_queue(asked).await;
    there.release(&lease).await;
    assert_eq!(parked.news().await, News::GrantedProvisionally);
}

#[tokio::test]
async fn a_lease_that_was_renewed_is_neither_longer_nor_shorter_when_its_attempt_is_late() {
    let (server, gates) = two_gateways().await;
    let store = &gates[0].store;
    for late in ["confirms", "asks"] {
        let asked = waiting(attempt(late));
        hand_over(&gates, &asked).await;
        store.must_confirm(&asked).await;
        store.must_renew(&asked, Some(ttl(3_600_000))).await;
        let lock = format!("lg:{{{late}}}:lock");
        let before = server.text(&["GET", &lock]).await;
        // A copy of an earlier command of the attempt.
        let held = match late {
            "confirms" => store.must_confirm(&asked).await,
            _ => granted(store.acquire(&asked).await),
        };
        assert!(held.expires_in > Duration::from_mins(59), "{held:?}");
        assert_eq!(server.text(&["GET", &lock]).await, before, "{late}");
        let left = server.integer(&["PTTL", &lock]).await;
        assert!((3_540_000..=3_600_000).contains(&left), "{late}: {left}");
    }
}

#[tokio::test]
async fn a_provisional_grant_gets_its_own_ttl_and_limit_once() {
    let (server, gates) = two_gateways().await;
    let mut asked = waiting(attempt("own"));
    asked.terms.set_ttl(ttl(40_000));
    asked.terms.set_hold_limit(limit(60_000));
    hand_over(&gates, &asked).await;
    let state = ["GETRANGE", "lg:{own}:lock", "65", "65"];
    let left = async || server.integer(&["PTTL", "lg:{own}:lock"]).await;
    assert_eq!(server.text(&state).await, "p");
    assert!(left().await <= 3_000, "it lasts until it is confirmed");
    let fence = gates[1].must_be_held(&asked.name).await.fence;
    assert!(!gates[1].must_be_stale("own", fence).await);
    let held = gates[0].must_confirm(&asked).await;
    gates[1].must_pass("own", fence).await;
    assert_eq!(server.text(&state).await, "h");
    assert_eq!(
        (held.ttl, held.held_for),
        (asked.terms.ttl(), Duration::ZERO)
    );
    assert_eq!(held.hold_expires_in, Some(Duration::from_mins(1)));
    let first = left().await;
    assert!((30_000..=40_000).contains(&first), "{first}");
    gates[0].must_confirm(&asked).await;
    assert!(left().await <= first, "it does not begin anew");
}

#[tokio::test]
async fn a_confirmation_does_not_touch_a_lease_that_a_newer_request_keeps() {
    let (server, gates) = two_gateways().await;
    let [older, newer] = ["k"; 2].map(|key| waiting(keyed("kept", key)));
    hand_over(&gates, &older).await;
    let collected = gates[1].acquire(&newer).await.unwrap();
    let expected = matches!(collected, Acquisition::Collected(..));
    assert!(expected, "{collected:?}");
    let before = server.text(&["GET", "lg:{kept}:lock"]).await;
    gates[0]
        .must_not_confirm(&older, Confirmation::Replaced)
        .await;
    assert_eq!(server.text(&["GET", "lg:{kept}:lock"]).await, before);
}

/// Tells every gateway that an attempt was granted the lease that it has, and waits until the gateway of the attempt
/// has checked this.
async fn tell_late(server: &RedisServer, lock: &str, token: &TokenHash) {
    let fence = fence_at(server, lock).await.parse().unwrap();
    tell_late_of(server, lock, token, fence).await;
}

/// Tells every gateway that an attempt was granted the lock with this fencing token, and waits until the gateway of the
/// attempt has checked this.
async fn tell_late_of(server: &RedisServer, lock: &str, token: &TokenHash, fence: u64) {
    write_down_everything(server).await;
    let before = runs(server, token).await;
    for channel in channels(server).await {
        let message = format!("granted {token} {lock} {fence}");
        server.run(&["PUBLISH", &channel, &message]).await;
    }
    until_runs(server, token, before + 1).await;
}

#[tokio::test]
async fn late_word_of_a_grant_takes_it_from_nobody() {
    let (server, [here, there]) = two_gateways().await;
    // Makes the script known to the server: from here on each call is one run.
    let nobody = attempt("warm");
    here.must_give_back(&nobody, GiveBack::NothingHeld).await;
    for (releasing, lock) in [(&here, "here"), (&there, "there")] {
        for heard_by in ["leaving", "confirming", "asking-again"] {
            let lock = format!("{lock}:{heard_by}");
            let lease = releasing.take(&lock).await;
            let asked = waiting(attempt(&lock));
            let parked = here.stand(&asked).await;
            releasing.release(&lease).await;
            match heard_by {
                "leaving" => drop(here.must_leave_granted(&asked).await),
                "confirming" => drop(here.must_confirm(&asked).await),
                _ => drop(here.must_grant(&asked).await),
            }
            // The attempt was answered, and is no longer parked. Then a message arrives that is of no use any more.
            drop(parked);
            tell_late(&server, &lock, &asked.token).await;
            here.must_release(&asked).await;
        }
    }
}

#[tokio::test]
async fn late_word_of_a_grant_that_was_lost_does_not_end_the_next_one_of_its_attempt() {
    let (server, gate, lease) = gateway_holding("anew").await;
    let (mut parked, token) = stand(&*gate.store, attempt("anew")).await;
    // The attempt was granted the lock before, through another gateway, and lost this grant unconfirmed.
    let earlier = lease.held.fence.get() + 1;
    gate.release(&lease).await;
    let news = parked.news().await;
    let News::Granted(held) = news else {
        panic!("not granted: {news:?}");
    };
    assert!(held.fence.get() > earlier);
    // The attempt was answered; the message of its grant came with the reply to the release.
    drop(parked);
    tell_late_of(&server, "anew", &token, earlier).await;
    let key = "lg:{anew}:lock";
    let found = server.text(&["GETRANGE", key, "1", "64"]).await;
    assert_eq!(found, token.to_string());
    // A message about the current grant of an attempt that is no longer parked ends the grant.
    tell_late_of(&server, "anew", &token, held.fence.get()).await;
    until_integer(&server, &["EXISTS", key], 0).await;
}

#[tokio::test]
async fn late_word_does_not_take_the_place_of_an_attempt_that_has_asked_again() {
    let (server, gate, _) = gateway_holding("asked").await;
    let (parked, token) = stand(&*gate.store, attempt("asked")).await;
    // Between the end of one wait and the beginning of the next.
    drop(parked);
    tell_late_of(&server, "asked", &token, 1).await;
    assert_eq!(gate.look("asked").await.waiters, 1);
}

#[tokio::test]
async fn a_grant_that_nobody_has_heard_of_is_given_back_on_the_word_of_it() {
    let (server, gate, lease) = gateway_holding("nobody").await;
    let (parked, token) = stand(&*gate.store, attempt("nobody")).await;
    gate.release(&lease).await;
    drop(parked);
    tell_late(&server, "nobody", &token).await;
    gate.until_free("nobody").await;
}

#[tokio::test]
async fn a_grant_that_nobody_has_heard_of_is_given_back_however_long_that_takes() {
    // More copies than are sent before a deadline.
    const LOST: usize = 40;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port(), &Lifecycle::new()).await;
    let gate = TestGateway::at(&proxy.url());
    let lease = gate.take("away").await;
    let mut asked = waiting(attempt("away"));
    // The TTL is longer than the test waits.
    asked.terms.set_ttl(ttl(600_000));
    gate.must_queue(&asked).await;
    for _ in 0..LOST {
        proxy.strike(&asked.token.to_string(), Fault::CutRequest);
    }
    gate.release(&lease).await;
    until_integer(&server, &["EXISTS", "lg:{away}:lock"], 0).await;
    assert_eq!(proxy.strikes(), LOST);
}

#[tokio::test]
async fn a_grant_whose_hold_limit_is_this_instant_is_over() {
    let (server, gate) = gateway().await;
    for confirms in [true, false] {
        let lease = gate.take("limit").await;
        let (_parked, token) = stand(&*gate.store, attempt("limit")).await;
        gate.release(&lease).await;
        // Redis keeps a key until its last millisecond has ended.
        let limit = ["SETRANGE", "lg:{limit}:lock", "126", "000000001"];
        server.run(&limit).await;
        let since = ["SETRANGE", "lg:{limit}:lock", "86", "1735689600000000"];
        server.run(&since).await;
        let over = if confirms {
            let confirmed = gate.confirm(&lease.name, &token).await.unwrap();
            matches!(confirmed, Confirmation::Lost)
        } else {
            let left = gate.leave(&lease.name, &token, None).await.unwrap();
            matches!(left, Leaving::Left(_))
        };
        assert!(over, "confirms: {confirms}");
        assert!(gate.look("limit").await.holder.is_none());
    }
}
