//! Dead waiters, of killed gateways or of callers that are gone, do not delay the others.

use crate::{api::fixture::Lines, redis::prelude::*};

#[tokio::test]
async fn a_gateway_that_is_killed_with_a_thousand_waiters_delays_the_others_once() {
    let (server, [doomed, other]) = two_gateways().await;
    let lease = other.take_for("killed", 600_000).await;
    let crowd = doomed.crowd("killed", 1_000).await;
    let next = other.queue(request("killed")).await;
    let last = other.queue(request("killed")).await;
    doomed.kill().await;
    let start = Instant::now();
    other.release(&lease).await;
    let (at, lease) = next.granted().await;
    // Only one provisional grant may be lost: then the gateway counts as dead, and its other waiters are skipped.
    let delay = at - start;
    assert!(delay > Duration::from_secs(2), "{delay:?}");
    assert!(delay < Duration::from_secs(30), "{delay:?}");
    assert_eq!(other.look("killed").await.waiters, 1);
    other.release(&lease).await;
    other.release(&last.lease().await).await;
    assert_eq!(leftovers(&server, "killed").await, [""; 0]);
    drop(crowd);
}

#[tokio::test]
async fn many_who_are_dead_already_are_cleared_away_without_waiting_for_a_round() {
    let (server, [doomed, other]) = two_gateways().await;
    let lease = other.take_for("many", 600_000).await;
    // More dead waiters than three runs of the script remove: otherwise three rounds with pauses of two seconds would
    // follow.
    let crowd = doomed.crowd("many", 1_600).await;
    doomed.kill().await;
    forget_gateways(&server).await;
    let next = other.queue(request("many")).await;
    let start = Instant::now();
    other.release(&lease).await;
    let (at, _) = next.granted().await;
    drop(crowd);
    assert!(at - start < Duration::from_secs(4), "{:?}", at - start);
}

#[tokio::test]
async fn a_grant_to_one_who_is_no_longer_there_is_passed_on_at_once() {
    let (_server, [here, there], lease) = two_gateways_holding("left").await;
    // These callers disappear without leaving the queue.
    for gate in [&here, &there, &here, &there] {
        drop(stand(&*gate.store, attempt("left")).await);
    }
    let stays = here.queue(request("left")).await;
    let start = Instant::now();
    here.release(&lease).await;
    let (at, _) = stays.granted().await;
    // Without the skips, two of the grants would last three seconds each, and two as long as their TTL.
    assert!(at - start < Duration::from_secs(5), "{:?}", at - start);
}

#[tokio::test]
async fn a_grant_that_nobody_took_has_not_used_its_key() {
    let (_server, gate, lease) = gateway_holding("unused").await;
    let vanished = waiting(keyed("unused", "k"));
    let parked = gate.stand(&vanished).await;
    drop(parked);
    gate.release(&lease).await;
    gate.until_free("unused").await;
    gate.must_grant(&keyed("unused", "k")).await;
}

#[tokio::test]
async fn a_gateway_that_confirms_is_alive_for_its_other_waiters() {
    let (server, [here, there], lease) = two_gateways_holding("alive").await;
    let asked = there.queue(request("alive")).await;
    let _behind = there.queue(request("alive")).await;
    here.pass(&lease, asked).await;
    let alive = alive(&server).await;
    // Only one gateway has waiters, so only one is marked as alive.
    assert_eq!(alive.len(), 1, "{alive:?}");
    let left = server.integer(&["PTTL", &alive[0]]).await;
    assert!(left > 3_000, "{left}");
}

#[tokio::test]
async fn a_gateway_that_counted_as_dead_hears_so_when_it_queues_another() {
    let (server, [cut_off, other]) = two_gateways().await;
    let lease = other.take("lapsed").await;
    let mut stood = vec![stand(&*cut_off.store, attempt("lapsed")).await];
    stood.push(stand(&*cut_off.store, attempt("lapsed")).await);
    for (parked, _) in &mut stood {
        let news = parked.try_news();
        assert_eq!(news, None, "it is known to be alive from the first on");
    }
    forget_gateways(&server).await;
    // The waiters of the gateway are removed as dead before its round notices.
    other.release(&lease).await;
    assert_eq!(other.look("lapsed").await.waiters, 0);
    other.take("lapsed").await;
    let _one_more = stand(&*cut_off.store, attempt("lapsed")).await;
    // The gateway notices at the next wait, if its last sign of life is a second old, and otherwise in its round.
    for (parked, _) in &mut stood {
        let told = timeout(Duration::from_secs(30), parked.news()).await;
        assert_eq!(told, Ok(News::Forgotten));
    }
}

/// Releases an undelivered lease for the next waiter in line, in the instant in which the current lease has ended and
/// no gateway has noticed it.
async fn give_back_at_the_end(server: &RedisServer, lock: &str, token: &TokenHash) -> Value {
    let script = composed("give_back");
    let (before, after) = script
        .split_once("local held = redis")
        .expect("it looks who holds");
    let script = format!("{before}redis.call('DEL', KEYS[1])\nlocal held = redis{after}");
    let (key, fence) = (format!("lg:{{{lock}}}:lock"), fence_key(&name(lock)));
    let (id, gateway) = (format!("2{token}"), format!("{:016}0123456789abcdef", 0));
    let mut command = vec!["EVAL", &script, "2", &key, &fence];
    command.extend([&*id, &*gateway, "0", ""]);
    server.run(&command).await
}

#[tokio::test]
async fn an_attempt_that_is_given_back_at_the_head_of_a_free_lock_is_not_granted_it() {
    let (server, gate, _) = gateway_holding("head").await;
    let (mut given_up, token) = stand(&*gate.store, attempt("head")).await;
    let (mut behind, next) = stand(&*gate.store, attempt("head")).await;
    give_back_at_the_end(&server, "head", &token).await;
    assert_holds(&server, "head", &next, "").await;
    assert_eq!(behind.news().await, News::GrantedProvisionally);
    assert_eq!(given_up.try_news(), None::<News>);

    gate.take("alone").await;
    let (mut given_up, token) = stand(&*gate.store, attempt("alone")).await;
    give_back_at_the_end(&server, "alone", &token).await;
    assert_eq!(server.text(&["GET", "lg:{alone}:lock"]).await, "");
    assert_eq!(gate.look("alone").await.waiters, 0);
    assert_eq!(given_up.try_news(), None::<News>);
}

#[tokio::test]
async fn the_dead_of_a_full_queue_do_not_keep_out_the_living() {
    for length in [20, 200] {
        let (_server, [doomed, other]) = two_gateways().await;
        let lease = other.take("crowded").await;
        let mut crowd = Vec::new();
        crowd.push(stand(&*other.store, attempt("crowded")).await);
        for _ in 1..length {
            crowd.push(stand(&*doomed.store, attempt("crowded")).await);
        }
        let mut asks = waiting(attempt("crowded"));
        asks.wait = asks.wait.map(|wait| Waiting {
            longest_queue: length,
            supersedes: None,
            ..wait
        });
        other.must_answer(&asks, Acquisition::QueueFull).await;
        doomed.kill().await;
        let start = Instant::now();
        let queued = eventually("the dead are found", async || {
            let asks = with(asks.clone(), |it| it.token = token());
            match other.acquire(&asks).await {
                // On a busy machine the server may take longer than one command may.
                Ok(Acquisition::QueueFull)
                | Err(StoreError::Indeterminate(Uncertainty::TimedOut)) => None,
                Ok(queued) => Some(queued),
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
        // A silent gateway counts as dead after six seconds.
        assert!(start.elapsed() < Duration::from_mins(1));
        let first = other.look("crowded").await.waiters;
        assert!(first < length, "{first}");
        // The living waiter has kept its position.
        other.release(&lease).await;
        let (parked, _) = &mut crowd[0];
        hear_grant(parked).await;
    }
}

/// More waiters than one run of the script searches for the position of a leaving one.
const LONG: usize = 512;

#[tokio::test]
async fn many_who_hang_up_in_any_order_are_all_gone_and_the_next_is_granted() {
    let (server, gate, lease) = gateway_holding("left").await;
    let mut crowd = gate.crowd("left", 3 * LONG).await;
    // Every third waiter stays at first; the others leave at both ends and in the middle.
    let stays: Vec<_> = (0..LONG).map(|n| crowd.swap_remove(2 * n)).collect();
    drop(crowd);
    let most = (LONG + LONG / 3 + 1) as u64;
    until("at most a quarter of the queue has left it", async || {
        let seen = gate.look("left").await.waiters;
        seen >= LONG as u64 && seen <= most
    })
    .await;
    let last = gate.queue(request("left")).await;
    drop(stays);
    gate.until_queued("left", 1).await;
    assert_eq!(server.integer(&["LLEN", "lg:{left}:wait"]).await, 1);
    assert_eq!(server.integer(&["EXISTS", "lg:{left}:gone"]).await, 0);
    gate.pass(&lease, last).await;
}

#[tokio::test]
async fn those_who_left_and_were_passed_over_are_not_looked_for_again_and_again() {
    let (server, gate, lease) = gateway_holding("passed").await;
    let mut crowd = gate.crowd("passed", 3 * LONG).await;
    // Less than a quarter has left: their ids stay in the queue, at its head, and are skipped.
    drop(crowd.drain(..LONG / 2));
    let is_so = async || server.text(&["GET", "lg:{passed}:gone"]).await == (LONG / 2).to_string();
    until("they have left", is_so).await;
    gate.release(&lease).await;
    until("they were passed over", async || {
        let left = server.integer(&["LLEN", "lg:{passed}:wait"]).await;
        usize::try_from(left).is_ok_and(|left| left < 3 * LONG - LONG / 2)
    })
    .await;
    server.run(&["CONFIG", "RESETSTAT"]).await;
    drop(crowd.drain(crowd.len() - LONG / 2..));
    // Each leave removes its ticket.
    let is_so = async || server.calls("del").await >= LONG as u64 / 2;
    until("others have left", is_so).await;
    let looks = server.calls("getrange").await;
    assert!(looks < 2 * 3 * LONG as u64, "{looks}");
}

/// Repeats a command until it is answered: on a busy machine one may take longer than a command may. The commands here
/// have the same effect when they are repeated.
async fn answered<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> T {
    eventually("it is answered", async || match ask().await {
        Ok(answer) => Some(answer),
        Err(StoreError::Indeterminate(Uncertainty::TimedOut)) => None,
        Err(error) => panic!("{error}"),
    })
    .await
}

/// Makes 4,500 of 6,000 waiters leave, in this order, and checks the ids in the queue. This is several times what one
/// run of the script examines: at most a quarter may belong to waiters that have left, and all others must be there.
async fn removed_if_they_leave(mut next: impl FnMut(usize) -> usize) {
    let (server, gate) = gateway().await;
    let _lease = gate.take_for("together", 600_000).await;
    let mut crowd = Vec::new();
    for _ in 0..6_000 {
        let mut asked = waiting(attempt("together"));
        asked.wait.as_mut().unwrap().max_wait = Duration::from_mins(10);
        let queued = answered(async || gate.acquire(&asked).await).await;
        assert!(matches!(queued, Acquisition::Queued(_)), "{queued:?}");
        crowd.push(asked);
    }
    while crowd.len() > 1_500 {
        let leaves = crowd.remove(next(crowd.len()));
        let leave = async || gate.leave(&leaves.name, &leaves.token, None).await;
        let left = answered(leave).await;
        assert!(matches!(left, Leaving::Left(_)), "{left:?}");
    }
    let queue = server.integer(&["LLEN", "lg:{together}:wait"]).await;
    assert!((1_500..=2_000).contains(&queue), "{queue}");
    for waits in crowd {
        let id = format!("2{}", waits.token);
        let place = server.run(&["LPOS", "lg:{together}:wait", &id]).await;
        assert!(matches!(place, Value::Int(_)), "{place:?}");
    }
}

#[tokio::test]
async fn those_who_left_together_are_removed_wherever_they_stood() {
    // The newest leave first: the head of the queue, where the script looks first, keeps waiting.
    removed_if_they_leave(|count| count - 1).await;
}

#[tokio::test]
async fn those_who_left_all_over_a_queue_are_removed() {
    let mut at = 0;
    removed_if_they_leave(|count| {
        at = (at + 2_003) % count;
        at
    })
    .await;
}

#[tokio::test]
async fn a_look_where_few_have_left_forgets_few_of_those_who_stand_elsewhere() {
    // A random order, in which searches find gaps of earlier ones: the generator of Knuth's MMIX.
    let mut random = 125_u64;
    removed_if_they_leave(|count| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % count
    })
    .await;
}

#[tokio::test]
async fn one_who_hangs_up_and_cannot_be_taken_out_of_the_queue_is_logged() {
    let lines = Lines::default();
    let _collecting = lines.collect();
    let (server, gate, lease) = gateway_holding("a").await;
    let waiter = gate.queue(request("a")).await;
    server.freeze();
    drop(waiter);
    until("the log says so", async || {
        let log = lines.read();
        log.contains("could not be taken out of the queue")
    })
    .await;
    server.thaw();
    // The reaper removes the waiter.
    gate.until_queued("a", 0).await;
    gate.release(&lease).await;
}
