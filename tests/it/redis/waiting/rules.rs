//! The scripts of a queue with wrong clocks, counters, tickets or keys. Each script is run directly, at a time that the
//! test chooses.

use crate::redis::prelude::*;

/// The id of the gateway as which a test runs a script. It is not the gateway of the waiters.
const ANOTHER: &str = "0123456789abcdef";
/// The id of an attempt that neither holds the lock nor waits for it.
const SOMEBODY: &str = "27777777777777777777777777777777777777777777777777777777777777777";
/// The floor of a gateway that has seen no fencing token.
const UNSEEN: u64 = 0;

/// A held lock with a waiter, whose gateway does nothing any more but counts as alive.
struct Queue {
    server: RedisServer,
    lock: String,
    holder: TokenHash,
    /// The fencing token of the lease.
    fence: u64,
    waiter: TokenHash,
}

/// What a script did with the lock.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// The waiter was granted the lock with this fencing token.
    Passed(u64),
    /// The lock is free, and the waiter stays in the queue.
    Free,
}

/// The key of the lock's counter of fencing tokens.
fn counter_key() -> String {
    fence_key(&name("rules"))
}

/// The scripts that hand a lock on: those that end its lease, and those that find a free lock with a queue.
const PASSING: &str = "release give_back break advance leave acquire";

// === impl Queue ===

impl Queue {
    async fn start() -> Self {
        let (server, gate) = gateway().await;
        let held = attempt("rules");
        let lease = gate.must_grant(&held).await;
        let waits = waiting(attempt("rules"));
        let _place = gate.stand(&waits).await;
        gate.kill().await;
        for key in alive(&server).await {
            server.run(&["PEXPIRE", &key, "600000"]).await;
        }
        Self {
            server,
            lock: "lg:{rules}:lock".to_owned(),
            holder: held.token,
            fence: lease.fence.get(),
            waiter: waits.token,
        }
    }

    fn ticket(&self) -> String {
        format!("lg:{{rules}}:of:2{}", self.waiter)
    }

    /// Frees the lock by a script, or runs a script that finds it free, as another gateway whose floor is this fencing
    /// token. The script reads this time, if there is one, instead of the clock.
    async fn free_by(&self, script: &str, floor: u64, time: Option<(&str, &str)>) -> String {
        let mut text = composed(script);
        if let Some((seconds, micros)) = time {
            let shown = format!("{{ '{seconds}', '{micros}' }}");
            assert!(text.contains("redis.call('TIME')"), "{script}");
            text = text.replace("redis.call('TIME')", &shown);
        }
        let (counter, gateway) = (counter_key(), format!("{floor:016}{ANOTHER}"));
        let (id, fence) = (format!("2{}", self.holder), format!("{:016}", self.fence));
        if !["release", "give_back", "break"].contains(&script) {
            self.server.run(&["DEL", &self.lock]).await;
        }
        let arguments: Vec<&str> = match script {
            "release" => vec![&id, &gateway],
            "give_back" => vec![&id, &gateway, "0", ""],
            "break" => vec!["nonce", &gateway, &fence, "", "0"],
            "advance" => vec![&gateway],
            "leave" => vec![SOMEBODY, &gateway, ""],
            "acquire" => vec![SOMEBODY, "30000", "", &gateway],
            other => panic!("{other} passes no lock on"),
        };
        let mut command = vec!["EVAL", &text, "2", &self.lock, &counter];
        command.extend(arguments);
        let reply = self.server.text(&command).await;
        assert!(!reply.is_empty(), "{script}");
        reply
    }

    async fn seen(&self) -> Seen {
        let lease = self.server.text(&["GET", &self.lock]).await;
        let id = format!("2{}", self.waiter);
        let queue = ["LRANGE", "lg:{rules}:wait", "0", "-1"];
        let queue: Vec<String> = from_redis_value(self.server.run(&queue).await).unwrap();
        if lease.starts_with(&id) {
            assert_eq!(queue, [""; 0]);
            return Seen::Passed(lease[70..86].parse().unwrap());
        }
        assert_eq!(queue, [id]);
        let ticket = self.server.text(&["GET", &self.ticket()]).await;
        assert!(ticket.starts_with('q'), "{ticket}");
        // A lease is ended even if the lock cannot be granted to a waiter.
        assert_eq!(lease, "");
        Seen::Free
    }

    /// A number of the ticket in microseconds.
    async fn micros(&self, from: usize) -> u64 {
        let ticket = self.server.text(&["GET", &self.ticket()]).await;
        ticket[from..from + 16].parse().unwrap()
    }
}

#[tokio::test]
async fn at_an_impossible_time_nobody_is_granted_the_lock_and_nobody_loses_a_place() {
    for script in words(PASSING) {
        for seconds in ["25", "1000000000", "7258118400", "99999999999"] {
            let queue = Queue::start().await;
            let counter = queue.server.text(&["GET", &counter_key()]).await;
            let reply = queue.free_by(script, UNSEEN, Some((seconds, "7"))).await;
            let why = format!("{script} at {seconds} s: {reply}");
            assert_eq!(queue.seen().await, Seen::Free, "{why}");
            let now = queue.server.text(&["GET", &counter_key()]).await;
            assert_eq!(now, counter, "{why}");
            // Once the clock is right, the waiter is granted the lock.
            let reply = queue.free_by("advance", UNSEEN, None).await;
            assert!(reply.starts_with("passed "), "{reply}");
            assert!(matches!(queue.seen().await, Seen::Passed(fence) if fence > queue.fence));
        }
    }
}

#[tokio::test]
async fn a_counter_of_another_length_is_compared_as_a_number() {
    for script in words(PASSING) {
        // The counter has fewer digits than the time: compared as text, the first would be larger.
        for counter in ["999999999999999", "9", "0"] {
            let queue = Queue::start().await;
            queue.server.run(&["SET", &counter_key(), counter]).await;
            queue.free_by(script, UNSEEN, None).await;
            let Seen::Passed(fence) = queue.seen().await else {
                panic!("{script} with {counter}");
            };
            assert!(fence > queue.fence, "{script} with {counter}: {fence}");
            let kept = queue.server.text(&["GET", &counter_key()]).await;
            assert_eq!(kept, fence.to_string(), "{script} with {counter}");
        }
        // The counter has more digits than a fencing token may have, so no greater one exists.
        let queue = Queue::start().await;
        let counter = "10000000000000000";
        queue.server.run(&["SET", &counter_key(), counter]).await;
        queue.free_by(script, UNSEEN, None).await;
        assert_eq!(queue.seen().await, Seen::Free, "{script}");
        let kept = queue.server.text(&["GET", &counter_key()]).await;
        assert_eq!(kept, counter, "{script}");
    }
}

#[tokio::test]
async fn whoever_waits_is_granted_a_higher_fence_although_the_counter_is_missing_or_behind() {
    for script in words(PASSING) {
        let queue = Queue::start().await;
        queue.server.run(&["DEL", &counter_key()]).await;
        queue.free_by(script, UNSEEN, None).await;
        let Seen::Passed(fence) = queue.seen().await else {
            panic!("{script}");
        };
        assert!(fence > queue.fence, "{script}: {fence}");

        // A gateway has seen a fencing token that is ahead of the time.
        let queue = Queue::start().await;
        let floor = queue.fence + 3_600_000_000;
        queue.free_by(script, floor, None).await;
        assert_eq!(queue.seen().await, Seen::Passed(floor + 1), "{script}");
        let kept = queue.server.text(&["GET", &counter_key()]).await;
        assert_eq!(kept, (floor + 1).to_string(), "{script}");
    }
}

#[tokio::test]
async fn a_counter_that_is_no_number_costs_nobody_a_place_and_is_left_alone() {
    for script in words(PASSING) {
        for counter in ["", "mine", "-1", "1e3", " 7"] {
            let queue = Queue::start().await;
            queue.server.run(&["SET", &counter_key(), counter]).await;
            let reply = queue.free_by(script, UNSEEN, None).await;
            let why = format!("{script} with {counter:?}: {reply}");
            assert_eq!(queue.seen().await, Seen::Free, "{why}");
            let kept = queue.server.text(&["GET", &counter_key()]).await;
            assert_eq!(kept, counter, "{why}");
        }
    }
}

#[tokio::test]
async fn a_ticket_without_a_key_counts_until_its_wait_is_over() {
    let queue = Queue::start().await;
    let (queued, ends) = (queue.micros(25).await, queue.micros(41).await);
    let wait = waiting(attempt("rules")).wait.unwrap().max_wait;
    let wait = u64::try_from(wait.as_micros()).unwrap();
    assert_eq!(ends, queued + wait);

    let at = |us: u64| ((us / 1_000_000).to_string(), (us % 1_000_000).to_string());
    let (seconds, micros) = at(ends - 1);
    let time = Some((&*seconds, &*micros));
    queue.free_by("release", UNSEEN, time).await;
    assert_eq!(queue.seen().await, Seen::Passed(ends - 1));

    let queue = Queue::start().await;
    let (seconds, micros) = at(queue.micros(41).await);
    let time = Some((&*seconds, &*micros));
    queue.free_by("release", UNSEEN, time).await;
    assert_eq!(queue.server.text(&["GET", &queue.lock]).await, "");
    let left = queue.server.integer(&["LLEN", "lg:{rules}:wait"]).await;
    assert_eq!(left, 0, "a dead ticket is cleared away");
}

/// An attempt that waits for `seconds` with the idempotency key of all attempts here, in a queue of this length.
fn under_the_key(seconds: u64, longest_queue: u64) -> Attempt {
    Attempt {
        wait: Some(Waiting {
            max_wait: Duration::from_secs(seconds),
            longest_queue,
            supersedes: None,
        }),
        ..keyed("rules", "same")
    }
}

#[tokio::test]
async fn who_takes_a_place_over_stands_there_since_the_first_and_until_its_own_wait_ends() {
    let (server, gate) = gateway().await;
    gate.take_for("rules", 600_000).await;
    let mut stood: Option<(u64, u64)> = None;
    // The second attempt waits longer than the first, and the third less long.
    for seconds in [50, 500, 5] {
        let asked = under_the_key(seconds, 10);
        let _place = gate.park(&asked);
        let before = server.micros().await;
        gate.must_queue(&asked).await;
        let after = server.micros().await;
        let ticket = format!("lg:{{rules}}:of:2{}", asked.token);
        let ticket = server.text(&["GET", &ticket]).await;
        let number = |from: usize| ticket[from..from + 16].parse::<u64>().unwrap();
        let (queued, ends) = (number(25), number(41));
        let slack = (seconds + 5) * 1_000_000;
        let expected = (before + slack..=after + slack).contains(&ends);
        assert!(expected, "{seconds}");
        if let Some((first, last)) = stood {
            assert_eq!(queued, first, "{seconds}");
            assert_ne!(ends, last, "{seconds}");
        }
        stood = Some((queued, ends));
    }
    let left = server.integer(&["LLEN", "lg:{rules}:wait"]).await;
    assert_eq!(left, 1);
}

#[tokio::test]
async fn one_whom_a_full_queue_refuses_leaves_nothing_under_its_key() {
    let (server, gate) = gateway().await;
    gate.take_for("rules", 600_000).await;
    let lost = under_the_key(50, 10);
    let place = gate.stand(&lost).await;
    let key = eventually("the key leads to the place", async || {
        let keys = server.keys().await;
        keys.into_iter()
            .find(|key| key.starts_with("lg:{rules}:key:"))
    })
    .await;
    // The position is lost, and another waiter fills the queue.
    drop(place);
    server.run(&["DEL", "lg:{rules}:wait"]).await;
    let other = waiting(attempt("rules"));
    let _place = gate.stand(&other).await;
    let refused = gate.acquire(&under_the_key(50, 1)).await;
    assert!(matches!(refused, Ok(Acquisition::QueueFull)), "{refused:?}");
    assert_eq!(server.integer(&["EXISTS", &key]).await, 0);
}

#[tokio::test]
async fn a_ticket_of_another_type_keeps_who_leaves_from_passing_the_lock_on_unheard() {
    let queue = Queue::start().await;
    let ticket = format!("lg:{{rules}}:of:{SOMEBODY}");
    queue.server.run(&["RPUSH", &ticket, "mine"]).await;
    queue.server.run(&["DEL", &queue.lock]).await;
    let before = queue.server.digest().await;
    let (text, counter) = (composed("leave"), counter_key());
    let gateway = format!("{UNSEEN:016}{ANOTHER}");
    let mut command = vec!["EVAL", &text, "2", &queue.lock, &counter];
    command.extend([SOMEBODY, &gateway, ""]);
    let reply = queue.server.run(&command).await;
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    assert_eq!(queue.server.digest().await, before);
}

#[tokio::test]
async fn who_may_not_ask_any_more_passes_a_free_lock_on_before_it_is_refused() {
    for (letter, answer) in [
        ("g", "withdrawn "),
        ("a", "replaced "),
        ("s", "replaced "),
        ("r", "withdrawn "),
        ("b", "withdrawn "),
    ] {
        let queue = Queue::start().await;
        let memory = format!("lg:{{rules}}:of:{SOMEBODY}");
        queue.server.run(&["SET", &memory, letter]).await;
        let reply = queue.free_by("acquire", UNSEEN, None).await;
        assert!(reply.starts_with(answer), "{letter}: {reply}");
        let seen = queue.seen().await;
        assert!(matches!(seen, Seen::Passed(_)), "{letter}: {seen:?}");
        assert_eq!(queue.server.text(&["GET", &memory]).await, letter);
    }
}
