//! Limits of API keys: leases, waiters, TTLs, and wrong tokens of an address.

use http::Response;
use tokio::time::advance;

use crate::api::prelude::*;

/// A gateway, and one of its keys.
struct Limited {
    service: Service,
    key: Key,
}

/// The idempotency key of a request that may be repeated.
const REPEATED: (&str, &str) = ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");

const WAITING: &str = r#"{"wait_ms": 50000}"#;
const WAITING_BRIEFLY: &str = r#"{"wait_ms": 1000}"#;

// === impl Limited ===

impl Limited {
    /// A gateway with a key that may acquire and view every lock, with these limits.
    fn to(limits: &str) -> Self {
        let key = Key::new();
        let service = Service::with_keys(&file("ci", &key, limits));
        Self { service, key }
    }

    async fn ask(&self, line: &str, body: &str) -> ApiResponse {
        let headers = [self.key.auth(), JSON[0]];
        self.service.ask(line, &headers, body.to_owned()).await
    }

    /// Sends an acquire with a body. Answers the status.
    async fn acquire_with(&self, lock: &str, body: &str) -> u16 {
        self.ask(&format!("POST /locks/{lock}"), body).await.status
    }

    async fn acquire(&self, lock: &str) -> u16 {
        self.acquire_with(lock, "").await
    }

    async fn with_token(&self, line: &str, token: &str) -> ApiResponse {
        let headers = [self.key.auth(), ("lock-token", token)];
        self.service.call(line, &headers).await
    }

    async fn hold(&self, body: &str) -> Response<Body> {
        let headers = [self.key.auth(), JSON[0]];
        let body = body.to_owned();
        self.service
            .open("POST /locks/a/hold", &headers, body)
            .await
    }

    async fn adopt(&self, key: &Key, token: &str) -> Response<Body> {
        let headers = [key.auth(), ("lock-token", token)];
        self.service.open("POST /locks/a/hold", &headers, "").await
    }

    /// Sends a request that the store does not answer, and hangs up.
    async fn hang_up(&self, line: &str, headers: &[(&str, &str)]) {
        let asked = self.service.script.asked().len() + 1;
        tokio::select! {
            answer = self.service.call(line, headers) => panic!("{}", answer.body),
            () = self.service.is_asked(asked) => {}
        }
    }

    /// Waits until the key may have another lease, for less than a TTL.
    async fn has_room(&self) {
        let ask = async {
            while self.acquire("room").await != 201 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let found = timeout(Duration::from_secs(5), ask).await;
        found.expect("there is room before the TTL is over");
    }
}

fn file(name: &str, key: &Key, limits: &str) -> String {
    key.entry(name, &format!("acquire = ['*']\nview = ['*']\n{limits}"))
}

fn code(answer: &ApiResponse) -> (u16, &'static str) {
    assert!(answer["retry_after_ms"].as_u64().unwrap() > 0);
    assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
    answer.problem()
}

#[track_caller]
fn refused(answer: &ApiResponse, because: &str) {
    assert_eq!(code(answer), (429, because));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_asks_too_often_is_told_exactly_when_to_ask_again() {
    let (key, other) = (Key::new(), Key::new());
    let limited = file("ci", &key, "requests_per_second = 2\nburst = 3");
    let service = Service::with_keys(&(limited + &file("other", &other, "")));
    let get = async |key: &Key| service.call("GET /locks/a", &[key.auth()]).await;
    for _ in 0..3 {
        assert_eq!(get(&key).await.status, 200);
    }
    let refused = get(&key).await;
    assert_eq!(code(&refused), (429, "rate-limited"));
    let wait = refused["retry_after_ms"].as_u64().unwrap();
    assert_eq!((wait, refused.header("retry-after")), (501, "1"));
    assert_eq!(get(&other).await.status, 200, "another key");
    advance(Duration::from_millis(wait - 2)).await;
    assert_eq!(get(&key).await.status, 429);
    advance(Duration::from_millis(2)).await;
    assert_eq!(get(&key).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn renew_release_and_adopting_go_on_when_a_key_has_asked_too_often() {
    let limited = Limited::to("requests_per_second = 1");
    assert_eq!(limited.acquire("a").await, 201);
    assert_eq!(limited.acquire("a").await, 429);
    assert_eq!(limited.hold("").await.status(), 429);
    for _ in 0..50 {
        let renewed = limited.with_token("PUT /locks/a/renew", TOKEN).await;
        assert_eq!(renewed.status, 200);
    }
    limited.with_token("DELETE /locks/a", TOKEN).await.is(204);
    let adopted = limited.adopt(&limited.key, TOKEN).await;
    assert_eq!(adopted.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn who_tries_tokens_pays_whichever_call_it_is() {
    for line in [
        "PUT /locks/a/renew",
        "POST /locks/a/hold",
        "DELETE /locks/a",
    ] {
        let limited = Limited::to("requests_per_second = 1\nburst = 5");
        for _ in 0..5 {
            limited.service.script.renew.ok(Renewal::Lost(Loss::Free));
            let lost = Release::Lost(Loss::HeldByAnother);
            limited.service.script.release.ok(lost);
            assert_eq!(limited.with_token(line, TOKEN).await.status, 410, "{line}");
        }
        let refused = limited.ask("POST /locks/a", "").await;
        assert_eq!(code(&refused), (429, "rate-limited"), "{line}");
        limited.service.script.renew.clear();
        let renewed = limited.with_token("PUT /locks/a/renew", TOKEN).await;
        assert_eq!(renewed.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_on_a_renewal_pays_as_if_it_were_lost() {
    let limited = Limited::to("requests_per_second = 1\nburst = 2");
    let headers = [limited.key.auth(), ("lock-token", TOKEN)];
    limited.service.script.paused.set();
    for _ in 0..2 {
        limited.hang_up("PUT /locks/a/renew", &headers).await;
    }
    limited.service.script.paused.lift();
    assert_eq!(limited.acquire("a").await, 429);
}

/// A gateway that accepts three wrong tokens from an address in a minute.
fn wary() -> Limited {
    let key = Key::new();
    let config = with(Config::default(), |it| it.auth.max_refused_per_minute = 3);
    let service = Service::with_gate(config, &file("ci", &key, "")).0;
    Limited { service, key }
}

async fn release(service: &Service, headers: &[(&str, &str)], answer: Release) -> ApiResponse {
    service.script.release.clear();
    service.script.release.ok(answer);
    service.call("DELETE /locks/a", headers).await
}

const LOST: Release = Release::Lost(Loss::HeldByAnother);
const WRONG: (&str, &str) = ("lock-token", TOKEN);

#[tokio::test(start_paused = true)]
async fn wrong_tokens_without_a_key_are_counted_by_their_address() {
    let wary = wary();
    let service = &wary.service;
    let granted = wary.ask("POST /locks/a", "").await;
    for _ in 0..3 {
        // A right token does not count.
        release(service, &[WRONG], Release::Released(None))
            .await
            .is(204);
        assert_eq!(release(service, &[WRONG], LOST).await.status, 410);
    }
    let asked = service.script.asked().len();
    refused(&release(service, &[WRONG], LOST).await, "rate-limited");
    assert_eq!(
        service.script.asked().len(),
        asked,
        "the store is not asked"
    );
    // A request with a valid key is accepted, and so is one with the token of a lease that this gateway granted.
    let known = ("lock-token", granted["token"].as_str().unwrap());
    for headers in [&[wary.key.auth(), WRONG][..], &[known]] {
        release(service, headers, Release::Released(None))
            .await
            .is(204);
    }
    assert_eq!(release(service, &[known], LOST).await.status, 429);
    advance(Duration::from_secs(21)).await;
    assert_eq!(release(service, &[WRONG], LOST).await.status, 410);
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_on_a_release_has_had_it_counted() {
    let wary = wary();
    wary.service.script.paused.set();
    for _ in 0..3 {
        wary.hang_up("DELETE /locks/a", &[WRONG]).await;
    }
    wary.service.script.paused.lift();
    refused(
        &release(&wary.service, &[WRONG], LOST).await,
        "rate-limited",
    );
}

#[tokio::test]
async fn where_there_are_no_keys_releases_are_not_counted() {
    let service = Service::configured(|it| it.auth.max_refused_per_minute = 1);
    for _ in 0..3 {
        assert_eq!(release(&service, &[WRONG], LOST).await.status, 410);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_has_no_more_leases_than_it_may() {
    let limited = Limited::to("max_leases = 2");
    let first = limited.ask("POST /locks/a", "").await;
    assert_eq!(limited.acquire("b").await, 201);
    let refused = limited.ask("POST /locks/c", "").await;
    assert_eq!(code(&refused), (429, "too-many-leases"));
    assert_eq!(refused.header("retry-after"), "30");
    // A release, also without an API key, allows another lease.
    let token = [("lock-token", first["token"].as_str().unwrap())];
    let released = limited.service.call("DELETE /locks/a", &token).await;
    assert_eq!(released.status, 204);
    let third = limited.ask("POST /locks/c", "").await;
    assert_eq!(limited.acquire("d").await, 429);
    // The end of a TTL allows another lease as well; a renewal moves this end.
    advance(Duration::from_secs(20)).await;
    let token = third["token"].as_str().unwrap();
    let renewed = limited.with_token("PUT /locks/c/renew", token).await;
    assert_eq!(renewed.status, 200);
    advance(Duration::from_secs(10)).await;
    assert_eq!(limited.acquire("d").await, 201);
    assert_eq!(limited.acquire("e").await, 429);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_rests_counts_until_the_minimum_hold_is_over() {
    const RESTS: &str = r#"{"min_hold_ms": 20000}"#;
    for (query, rests) in [("", true), ("?unused=true", false)] {
        let limited = Limited::to("max_leases = 1");
        let lease = limited.ask("POST /locks/a", RESTS).await.is(201);
        let token = lease["token"].as_str().unwrap();
        advance(Duration::from_secs(5)).await;
        let release = format!("DELETE /locks/a{query}");
        limited.with_token(&release, token).await.is(204);
        if rests {
            let refused = limited.ask("POST /locks/b", "").await;
            assert_eq!(code(&refused), (429, "too-many-leases"));
            assert_eq!(refused.header("retry-after"), "15");
            advance(Duration::from_secs(15)).await;
        }
        assert_eq!(limited.acquire("b").await, 201);
    }
    // An answer that is not read, and a stream that is closed.
    for (line, rests) in [("POST /locks/a", false), ("POST /locks/a/hold", true)] {
        let limited = Limited::to("max_leases = 1");
        let headers = [limited.key.auth(), JSON[0]];
        let answer = limited.service.open(line, &headers, RESTS).await;
        assert!(answer.status().is_success());
        if rests {
            let mut stream = answer.into_body();
            read_until(&mut stream, "granted").await;
            drop(stream);
            advance(Duration::from_secs(1)).await;
            assert_eq!(limited.acquire("b").await, 429, "{line}");
            advance(Duration::from_secs(19)).await;
        } else {
            drop(answer);
        }
        limited.has_room().await;
    }
}

#[tokio::test]
async fn a_refused_acquire_and_a_lost_answer_leave_room() {
    let limited = Limited::to("max_leases = 1");
    let held = held_by(Holder::Lease(held()));
    limited.service.script.acquire.ok(held);
    assert_eq!(limited.acquire("a").await, 423);
    let headers = [limited.key.auth()];
    let unread = limited.service.open("POST /locks/a", &headers, "").await;
    assert_eq!(unread.status(), 201);
    assert_eq!(limited.acquire("b").await, 429);
    drop(unread);
    assert_eq!(limited.acquire("b").await, 201);
}

#[tokio::test]
async fn a_lease_that_is_asked_for_again_is_answered_although_there_is_no_room() {
    let limited = Limited::to("max_leases = 1");
    let headers = [limited.key.auth(), REPEATED];
    for (line, status) in [
        ("POST /locks/a", 201),
        ("POST /locks/a", 201),
        ("POST /locks/b", 429),
    ] {
        limited.service.call(line, &headers).await.is(status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_for_the_key_that_adopted_it_last() {
    let (key, other) = (Key::new(), Key::new());
    let one = "max_leases = 1";
    let service = Service::with_keys(&(file("ci", &key, one) + &file("other", &other, one)));
    let other = Limited {
        service,
        key: other,
    };
    let acquire = async |lock: &str| {
        let line = format!("POST /locks/{lock}");
        other.service.call(&line, &[key.auth()]).await
    };
    let lease = acquire("a").await;
    let token = lease["token"].as_str().unwrap();
    let older = other.adopt(&key, token).await;
    assert_eq!(acquire("b").await.status, 429);
    let newer = other.adopt(&other.key, token).await;
    assert!(older.status() == 200 && newer.status() == 200);
    assert_eq!(acquire("b").await.status, 201);
    assert_eq!(other.acquire("c").await, 429);
    drop(newer);
    other.has_room().await;
}

#[tokio::test]
async fn a_key_has_no_more_waiters_and_streams_than_it_may() {
    let limited = Limited::to("max_waiters = 1\nmax_streams = 2");
    limited.service.script.acquire.ok(queued(0));
    let waiting = limited.hold(WAITING).await;
    assert_eq!(waiting.status(), 200);
    let refused = limited.ask("POST /locks/a", WAITING_BRIEFLY).await;
    assert_eq!(code(&refused), (429, "too-many-waiters"));
    assert_eq!(limited.acquire("b").await, 201, "who does not wait");
    let second = limited.hold("").await;
    assert_eq!(second.status(), 200);
    let refused = ApiResponse::read(limited.hold("").await).await;
    assert_eq!(code(&refused), (429, "rate-limited"));
    drop(second);
    assert_eq!(limited.hold("").await.status(), 200);
    drop(waiting);
    assert_eq!(limited.acquire_with("c", WAITING_BRIEFLY).await, 201);
}

#[tokio::test]
async fn a_key_that_says_nothing_of_streams_has_4000() {
    let limited = Limited::to("");
    let mut streams = Vec::new();
    for _ in 0..4_000 {
        streams.push(limited.hold("").await);
    }
    assert!(streams.iter().all(|stream| stream.status() == 200));
    assert_eq!(limited.hold("").await.status(), 429);
}

#[tokio::test]
async fn who_was_granted_the_lock_is_no_waiter_any_more() {
    let limited = Limited::to("max_waiters = 1");
    let mut stream = limited.hold(WAITING).await.into_body();
    read_until(&mut stream, "granted").await;
    assert_eq!(limited.acquire_with("b", WAITING_BRIEFLY).await, 201);
}

#[tokio::test]
async fn guessing_costs_and_shuts_nobody_out_who_has_a_key() {
    let wary = wary();
    let get = async |header: &str| {
        let headers = [("authorization", header)];
        wary.service.call("GET /locks/a", &headers).await
    };
    for _ in 0..3 {
        assert_eq!(get(&Key::new().header).await.status, 401);
    }
    let refused = get(&Key::new().header).await;
    assert_eq!(code(&refused), (429, "rate-limited"));
    assert!((19_000..=20_001).contains(&refused["retry_after_ms"].as_u64().unwrap()));
    // A text that is not even a key is refused as well.
    assert_eq!(get("Bearer x").await.status, 429);
    assert_eq!(get(&wary.key.header).await.status, 200);
    // A request without a key does not count as a guess.
    assert_eq!(wary.service.get("/locks/a").await.status, 401);
}

#[tokio::test]
async fn a_reload_does_not_make_a_key_forget_what_it_has() {
    let key = Key::new();
    let file = file("ci", &key, "max_leases = 1\nmax_ttl_ms = 60_000");
    let (service, gate, _) = Service::with_gate(Config::default(), &file);
    let limited = Limited { service, key };
    let lease = limited.ask("POST /locks/a", r#"{"ttl_ms": 60000}"#).await;
    assert_eq!(lease["ttl_ms"], 60_000);
    gate.replace(KeysFile::new("x").parse(&file).unwrap());
    assert_eq!(limited.acquire("b").await, 429);
}

#[tokio::test(start_paused = true)]
async fn each_of_several_locks_counts_for_the_rate() {
    let limited = Limited::to("requests_per_second = 1\nburst = 4");
    let names = r#"{"names": ["a", "b", "c", "d"]}"#;
    assert_eq!(limited.ask("POST /locks", names).await.status, 201);
    refused(&limited.ask("POST /locks/e", "").await, "rate-limited");
    advance(Duration::from_millis(1_001)).await;
    // After an accepted request, the next requests must wait longer.
    assert_eq!(limited.ask("POST /locks", names).await.status, 201);
    advance(Duration::from_millis(3_500)).await;
    assert_eq!(limited.acquire("f").await, 429);
    advance(Duration::from_millis(510)).await;
    assert_eq!(limited.acquire("f").await, 201);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_for_several_locks_that_is_refused_keeps_no_room_beyond_their_ttl() {
    let limited = Limited::to("max_leases = 2");
    let headers = [limited.key.auth(), JSON[0], REPEATED];
    let body = r#"{"names": ["a", "b"], "ttl_ms": 1000}"#;
    let first = limited.service.ask("POST /locks", &headers, body).await;
    assert_eq!(first.status, 201, "{}", first.body);
    let script = &limited.service.script;
    script.acquire.ok(Acquisition::IdempotencyMismatch);
    let again = limited.service.ask("POST /locks", &headers, body).await;
    assert_eq!(again.problem(), (409, "idempotency-mismatch"));
    assert_eq!(limited.acquire("c").await, 429);
    advance(Duration::from_millis(1_001)).await;
    assert_eq!(limited.acquire("c").await, 201);
}

#[tokio::test]
async fn several_locks_that_were_waited_for_in_vain_keep_no_position_and_no_room() {
    let limited = Limited::to("max_waiters = 1");
    // However often the group asks the store, another caller holds the lock.
    (0..100).for_each(|_| limited.service.script.acquire.ok(queued(0)));
    let headers = [limited.key.auth(), JSON[0], REPEATED];
    let body = r#"{"names": ["a", "b"], "wait_ms": 50000}"#;
    let mut waiting = Box::pin(limited.service.open("POST /locks", &headers, body));
    tokio::select! {
        _ = &mut waiting => panic!("it was not to be answered"),
        () = limited.service.is_asked(1) => {}
    }
    let one = r#"{"wait_ms": 100}"#;
    refused(&limited.ask("POST /locks/c", one).await, "too-many-waiters");
    drop(waiting);
    let waited = limited.ask("POST /locks/c", one).await;
    assert_eq!(waited.problem(), (423, "locked"));
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_kept_for_somebody_who_has_gone_counts_for_the_grace() {
    let limited = Limited::to("max_waiters = 1");
    let is_held = || {
        let held = held_by(Holder::Lease(held()));
        limited.service.script.acquire.ok(held);
    };
    let ask = async |key: &str| {
        let headers = [limited.key.auth(), JSON[0], ("idempotency-key", key)];
        let asked = limited
            .service
            .ask("POST /locks/a", &headers, WAITING_BRIEFLY);
        asked.await.status
    };
    let [mine, another] = ["mine-0123456789abcdefghij", "another-0123456789abcdefg"];
    // A repeated request with the idempotency key takes over the wait, so it does not count twice.
    for _ in 0..2 {
        is_held();
        assert_eq!(ask(mine).await, 423);
        assert_eq!(ask(another).await, 429);
    }
    // A request that is granted the lock no longer counts as a waiter.
    assert_eq!(ask(mine).await, 201);
    is_held();
    assert_eq!(ask(another).await, 423);
    assert_eq!(ask(mine).await, 429);
    advance(Duration::from_millis(5_001)).await;
    assert_eq!(ask(mine).await, 201, "the place is kept no longer");
}
