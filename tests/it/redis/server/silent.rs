//! Servers that are silent, slow or overloaded.

use tokio::task::yield_now;

use crate::redis::prelude::*;

/// Ten times the three seconds of a provisional grant, and a period.
const NOTICED: Duration = Duration::from_secs(50);

fn by(cable: &Cable) -> ServersUrl {
    url(&format!("redis://127.0.0.1:{}", cable.port()))
}

#[tokio::test]
async fn what_is_sent_over_them_is_given_up_in_time_and_a_new_one_serves() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let cable = Cable::to(server.port(), &lifecycle).await;
    let store = open(&by(&cable));
    let held = store.must_hold(attempt("held")).await;
    cable.cut();
    let start = Instant::now();
    let unknown = store.acquire(&attempt("lock")).await;
    let expected = matches!(
        unknown,
        Err(StoreError::Indeterminate(_) | StoreError::Unavailable(_))
    );
    assert!(expected, "{unknown:?}");
    assert!(start.elapsed() < Duration::from_secs(30), "it is told");
    let nothing = server.text(&["GET", "lg:{lock}:lock"]).await;
    assert_eq!(nothing, "", "nothing came through");
    cable.mend();
    eventually("it serves again", async || {
        store.release(&held.name, &held.token).await.ok()
    })
    .await;
    granted(store.acquire(&attempt("held")).await);
}

#[tokio::test]
async fn a_gateway_that_has_no_others_delays_those_behind_it_once_and_loses_no_waiter() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let cable = Cable::to(server.port(), &lifecycle).await;
    let here = TestGateway::on(&server).await;
    // The gateway is cut off for longer than the short time-outs allow.
    let there = TestGateway::with(&by(&cable), &patient());
    let lease = here.take("lock").await;
    let first = there.queue(request("lock")).await;
    let second = here.queue(request("lock")).await;
    cable.cut();
    let start = Instant::now();
    here.release(&lease).await;
    // The first waiter is granted the lock, but its gateway is cut off.
    let lease = second.lease().await;
    assert!(start.elapsed() < NOTICED, "{:?}", start.elapsed());
    cable.mend();
    here.release(&lease).await;
    let mended = Instant::now();
    let last = first.lease().await;
    assert!(mended.elapsed() < NOTICED, "{:?}", mended.elapsed());
    assert!(last.held.fence > lease.held.fence);
    there.release(&last).await;
}

/// The delay of a reply.
const LATE: Duration = Duration::from_millis(500);
/// The TTL of every lease here.
const TTL_MS: u64 = 6_000;

#[tokio::test]
async fn a_stream_tells_its_renewal_without_the_time_that_the_reply_took() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let proxy = Proxy::start(server.port(), &lifecycle).await;
    let config = with(patient(), |it| it.command_timeout_ms = Millis(TTL_MS));
    let gate = TestGateway::with(&proxy.url(), &config);
    // From here on the server knows the scripts.
    let warm = gate.take("warm").await;
    let (name, token) = (warm.name.clone(), warm.token.clone());
    let renewal = gate.engine.renew(name, token, RenewalTtl::default());
    renewal.await.unwrap();
    let asked = at_once(with(request("slow"), |it| it.terms.set_ttl(ttl(TTL_MS))));
    let mut hold = gate.engine.hold(asked).await.unwrap();
    assert!(matches!(hold.next().await, Some(HoldEvent::Granted(_))));
    // The history asks about the lease after a second, and the stream renews it after two.
    sleep(Duration::from_millis(1_700)).await;
    proxy.strike("{slow}", Fault::HoldReply);
    let held_back = async {
        proxy.struck(1).await;
        let since = Instant::now();
        sleep(LATE).await;
        proxy.let_go();
        since
    };
    let (event, since) = tokio::join!(hold.next(), held_back);
    let Some(HoldEvent::Renewed(lease)) = event else {
        panic!("{event:?}");
    };
    let now = Instant::now();
    let (left, took) = (lease.left_at(now), now - since);
    assert!(took >= LATE);
    let expected = left + took <= lease.ttl.duration();
    assert!(expected, "{left:?} after {took:?}");
    assert!(!left.is_zero());
}

/// How many acquires are sent.
const MANY: usize = 3_000;
/// How many commands may be on their way at once.
const SENT: usize = 1_024;

/// Time-outs that no machine reaches during a pause of the server.
fn endless() -> RedisConfig {
    RedisConfig {
        command_timeout_ms: Millis(60_000),
        deadline_ms: Millis(60_000),
        ..RedisConfig::default()
    }
}

/// Counts the locks that were granted before the lease was renewed, by their expiries: all have the same TTL.
const BEFORE: &str = "local renewed, before = redis.call('PEXPIRETIME', 'lg:{held}:lock'), 0 \
    for n = 1, tonumber(ARGV[1]) do \
        local granted = redis.call('PEXPIRETIME', 'lg:{n' .. n .. '}:lock') \
        if granted > 0 and granted < renewed then before = before + 1 end \
    end \
    return before";

/// The result of one round of the test.
struct Round {
    /// How many acquires got room in time.
    granted: usize,
    /// How many of these were served before the renewal.
    before: i64,
}

#[tokio::test]
async fn a_renewal_stands_in_line_behind_few_of_those_who_ask() {
    for _ in 0..10 {
        let round = round().await;
        // On a slow machine, most acquires were refused before any was served, so the order is not seen.
        if round.granted > 2 * SENT {
            // With several connections, one of them may be ahead by a batch of commands.
            let few = i64::try_from(SENT + SENT / 2).unwrap();
            assert!(round.before <= few, "{} were served first", round.before);
            return;
        }
    }
    panic!("never did more than {} find room", 2 * SENT);
}

/// Many acquires are sent while the server is paused, then a renewal; then all are served.
async fn round() -> Round {
    let rig = Rig::with(&endless()).await;
    let held = rig.must_hold(attempt("held")).await;
    let asked: Vec<_> = (1..=MANY).map(|n| attempt(&format!("n{n}"))).collect();
    // The server serves none before all have been sent, however long that takes.
    rig.run(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;
    let begun = AtomicUsize::new(0);
    let all = join_all(asked.iter().map(async |attempt| {
        begun.fetch_add(1, Ordering::Relaxed);
        rig.acquire(attempt).await
    }));
    let renewal = async {
        while begun.load(Ordering::Relaxed) < MANY {
            yield_now().await;
        }
        let renewal = rig.renew(&held.name, &held.token, None);
        let serve = async {
            // By now the renewal was sent, and waits in front before a connection is opened.
            for _ in 0..100 {
                yield_now().await;
            }
            rig.run(&["CLIENT", "UNPAUSE"]).await;
        };
        tokio::join!(biased; renewal, serve).0
    };
    let (renewed, answers) = tokio::join!(renewal, all);
    assert!(matches!(renewed, Ok(Renewal::Renewed(..))), "{renewed:?}");
    // An acquire without room is told that nothing happened.
    let overloaded = StoreError::from(Unavailability::Overloaded);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    for error in refused {
        assert_eq!(*error, overloaded);
    }
    let counted = ["EVAL", BEFORE, "0", &MANY.to_string()];
    Round {
        granted: answers.iter().filter(|answer| answer.is_ok()).count(),
        before: rig.integer(&counted).await,
    }
}
