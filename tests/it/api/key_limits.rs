//! How much a key may have.

use std::time::Duration;

use axum::body::Body;
use http::{Method, StatusCode};
use latchgate::{
    config::Config,
    lock::Ttl,
    store::{
        Unavailability,
        contract::{Holder, Loss, Release, Renewal},
    },
};
use tokio::time::{sleep, timeout};

use super::{
    key::Key,
    scripted::{held, held_by, queued},
    service::{ApiResponse, JSON, Service, TOKEN, until},
};

async fn post(service: &Service, key: &Key, target: &str, body: &str) -> ApiResponse {
    let headers = [key.auth(), JSON[0]];
    service
        .ask(Method::POST, target, &headers, body.to_owned())
        .await
}

fn code(answer: &ApiResponse) -> (u16, String) {
    assert!(answer.json()["retry_after_ms"].as_u64().unwrap() > 0);
    assert!(answer.header("retry-after").parse::<u64>().unwrap() > 0);
    answer.problem()
}

#[tokio::test(start_paused = true)]
async fn a_key_that_asks_too_often_is_told_exactly_when_to_ask_again() {
    let (key, other) = (Key::new(), Key::new());
    let file = key.entry("ci", "view = ['*']\nrequests_per_second = 2\nburst = 3")
        + &other.entry("other", "view = ['*']");
    let service = Service::with_keys(&file);
    let get = async |key: &Key| {
        service
            .ask(Method::GET, "/locks/a", &[key.auth()], "")
            .await
    };
    for _ in 0..3 {
        assert_eq!(get(&key).await.status, 200);
    }
    let refused = get(&key).await;
    assert_eq!(code(&refused), (429, "rate-limited".to_owned()));
    let wait = refused.json()["retry_after_ms"].as_u64().unwrap();
    assert_eq!((wait, refused.header("retry-after")), (501, "1"));
    assert_eq!(get(&other).await.status, 200, "another key");
    tokio::time::advance(Duration::from_millis(wait - 2)).await;
    assert_eq!(get(&key).await.status, 429);
    tokio::time::advance(Duration::from_millis(2)).await;
    assert_eq!(get(&key).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn renew_release_and_adopting_go_on_when_a_key_has_asked_too_often() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nrequests_per_second = 1"));
    assert_eq!(post(&service, &key, "/locks/a", "").await.status, 201);
    assert_eq!(post(&service, &key, "/locks/a", "").await.status, 429);
    assert_eq!(post(&service, &key, "/locks/a/hold", "").await.status, 429);
    let headers = [key.auth(), ("lock-token", TOKEN)];
    for _ in 0..50 {
        let renewed = service
            .ask(Method::PUT, "/locks/a/renew", &headers, "")
            .await;
        assert_eq!(renewed.status, 200);
    }
    let released = service.ask(Method::DELETE, "/locks/a", &headers, "").await;
    assert_eq!(released.status, 204);
    let adopting = http::Request::post("/locks/a/hold")
        .header("authorization", &key.header)
        .header("lock-token", TOKEN);
    let adopted = service.unread(adopting.body(Body::empty()).unwrap()).await;
    assert_eq!(adopted.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn who_renews_what_is_lost_over_and_over_pays_with_other_requests() {
    let key = Key::new();
    let lines = "acquire = ['*']\nrequests_per_second = 1\nburst = 5";
    let service = Service::with_keys(&key.entry("ci", lines));
    let headers = [key.auth(), ("lock-token", TOKEN)];
    for _ in 0..5 {
        let lost = Ok(Renewal::Lost(Loss::Free));
        service.script.renew.lock().unwrap().push_back(lost);
        let renewed = service
            .ask(Method::PUT, "/locks/a/renew", &headers, "")
            .await;
        assert_eq!(renewed.status, 410);
    }
    assert_eq!(post(&service, &key, "/locks/a", "").await.status, 429);
    let renewed = service
        .ask(Method::PUT, "/locks/a/renew", &headers, "")
        .await;
    assert_eq!(renewed.status, 200);
}

#[tokio::test(start_paused = true)]
async fn who_tries_tokens_pays_whichever_call_it_is() {
    for (method, path) in [
        (Method::PUT, "/locks/a/renew"),
        (Method::POST, "/locks/a/hold"),
        (Method::DELETE, "/locks/a"),
    ] {
        let key = Key::new();
        let lines = "acquire = ['*']\nrequests_per_second = 1\nburst = 5";
        let service = Service::with_keys(&key.entry("ci", lines));
        let headers = [key.auth(), ("lock-token", TOKEN)];
        for _ in 0..5 {
            let lost = Ok(Renewal::Lost(Loss::Free));
            service.script.renew.lock().unwrap().push_back(lost);
            let lost = Ok(Release::Lost(Loss::HeldByAnother));
            service.script.release.lock().unwrap().push_back(lost);
            let tried = service.ask(method.clone(), path, &headers, "").await;
            assert_eq!(tried.status, 410, "{path}");
        }
        let refused = post(&service, &key, "/locks/a", "").await;
        assert_eq!(code(&refused), (429, "rate-limited".to_owned()), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_on_a_renewal_pays_as_if_it_were_lost() {
    let key = Key::new();
    let lines = "acquire = ['*']\nrequests_per_second = 1\nburst = 2";
    let service = Service::with_keys(&key.entry("ci", lines));
    let headers = [key.auth(), ("lock-token", TOKEN)];
    service.script.paused.set();
    for asked in 1..=2 {
        let renewal = service.ask(Method::PUT, "/locks/a/renew", &headers, "");
        tokio::select! {
            answer = renewal => panic!("{}", answer.body),
            () = until("the store is asked", || service.script.asked().len() == asked) => {}
        }
    }
    service.script.paused.lift();
    assert_eq!(post(&service, &key, "/locks/a", "").await.status, 429);
}

/// A gateway at which an address may send three wrong tokens in a minute.
fn wary(key: &Key) -> Service {
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 3;
    Service::with_gate(config, &key.entry("ci", "acquire = ['*']")).0
}

async fn release(service: &Service, headers: &[(&str, &str)], lost: bool) -> ApiResponse {
    let answer = if lost {
        Release::Lost(Loss::HeldByAnother)
    } else {
        Release::Released
    };
    *service.script.release.lock().unwrap() = [Ok(answer)].into();
    service.ask(Method::DELETE, "/locks/a", headers, "").await
}

#[tokio::test(start_paused = true)]
async fn wrong_tokens_without_a_key_are_counted_by_their_address() {
    let key = Key::new();
    let service = wary(&key);
    let wrong = [("lock-token", TOKEN)];
    let granted = post(&service, &key, "/locks/a", "").await.json();
    for _ in 0..3 {
        // One that is right costs nothing.
        assert_eq!(release(&service, &wrong, false).await.status, 204);
        assert_eq!(release(&service, &wrong, true).await.status, 410);
    }
    let asked = service.script.asked().len();
    let refused = release(&service, &wrong, true).await;
    assert_eq!(code(&refused), (429, "rate-limited".to_owned()));
    assert_eq!(
        service.script.asked().len(),
        asked,
        "the store is not asked"
    );
    // A valid key is let pass, and so is a lease that was granted here.
    let with_key = [key.auth(), wrong[0]];
    assert_eq!(release(&service, &with_key, false).await.status, 204);
    let known = [("lock-token", granted["token"].as_str().unwrap())];
    assert_eq!(release(&service, &known, false).await.status, 204);
    assert_eq!(release(&service, &known, true).await.status, 429);
    tokio::time::advance(Duration::from_secs(21)).await;
    assert_eq!(release(&service, &wrong, true).await.status, 410);
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_on_a_release_has_had_it_counted() {
    let service = wary(&Key::new());
    service.script.paused.set();
    let wrong = [("lock-token", TOKEN)];
    for asked in 1..=3 {
        let releasing = service.ask(Method::DELETE, "/locks/a", &wrong, "");
        tokio::select! {
            answer = releasing => panic!("{}", answer.body),
            () = until("the store is asked", || service.script.asked().len() == asked) => {}
        }
    }
    service.script.paused.lift();
    let refused = release(&service, &wrong, true).await;
    assert_eq!(code(&refused), (429, "rate-limited".to_owned()));
}

#[tokio::test]
async fn where_there_are_no_keys_releases_are_not_counted() {
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 1;
    let service = Service::with(config);
    for _ in 0..3 {
        let lost = release(&service, &[("lock-token", TOKEN)], true).await;
        assert_eq!(lost.status, 410);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_has_no_more_leases_than_it_may() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_leases = 2"));
    let acquire = async |lock: &str| post(&service, &key, &format!("/locks/{lock}"), "").await;
    let first = acquire("a").await.json();
    assert_eq!(acquire("b").await.status, 201);
    let refused = acquire("c").await;
    assert_eq!(code(&refused), (429, "too-many-leases".to_owned()));
    assert_eq!(refused.header("retry-after"), "30");
    // A release makes room, also without a key.
    let token = [("lock-token", first["token"].as_str().unwrap())];
    assert_eq!(
        service
            .ask(Method::DELETE, "/locks/a", &token, "")
            .await
            .status,
        204
    );
    let third = acquire("c").await.json();
    assert_eq!(acquire("d").await.status, 429);
    // And so does an expiry; a renewal moves it.
    tokio::time::advance(Duration::from_secs(20)).await;
    let token = ("lock-token", third["token"].as_str().unwrap());
    let renewed = service
        .ask(Method::PUT, "/locks/c/renew", &[key.auth(), token], "")
        .await;
    assert_eq!(renewed.status, 200);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(acquire("d").await.status, 201);
    assert_eq!(acquire("e").await.status, 429);
}

#[tokio::test]
async fn a_refused_acquire_and_a_lost_answer_leave_room() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_leases = 1"));
    service.script.acquires(held_by(Holder::Lease(held())));
    assert_eq!(post(&service, &key, "/locks/a", "").await.status, 423);
    let request = http::Request::post("/locks/a").header("authorization", &key.header);
    let unread = service.unread(request.body(Body::empty()).unwrap()).await;
    assert_eq!(unread.status(), 201);
    assert_eq!(post(&service, &key, "/locks/b", "").await.status, 429);
    drop(unread);
    assert_eq!(post(&service, &key, "/locks/b", "").await.status, 201);
}

#[tokio::test]
async fn a_lease_that_is_asked_for_again_is_answered_although_there_is_no_room() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_leases = 1"));
    let headers = [
        key.auth(),
        ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11"),
    ];
    for _ in 0..2 {
        let answer = service.ask(Method::POST, "/locks/a", &headers, "").await;
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    let other = service.ask(Method::POST, "/locks/b", &headers, "").await;
    assert_eq!(other.problem(), (429, "too-many-leases".to_owned()));
}

/// Waits until the key has room for another lease, for less than a TTL.
async fn room(service: &Service, key: &Key) {
    let ask = async {
        while post(service, key, "/locks/room", "").await.status != 201 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let found = timeout(Duration::from_secs(5), ask).await;
    found.expect("there is room before the TTL is over");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_tried_again_for_nobody_leaves_room() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_leases = 1"));
    let lease = post(&service, &key, "/locks/a", "").await.json();
    let away = || Err(Unavailability::Connect("away".into()).into());
    *service.script.release.lock().unwrap() = (0..10_000).map(|_| away()).collect();
    service.script.paused.set();
    let asked = service.script.asked().len() + 1;
    let token = [("lock-token", lease["token"].as_str().unwrap())];
    tokio::select! {
        answer = service.ask(Method::DELETE, "/locks/a", &token, "") => panic!("{}", answer.body),
        () = until("the store is asked", || service.script.asked().len() == asked) => {}
    }
    service.script.paused.lift();
    room(&service, &key).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_for_the_key_that_adopted_it_last() {
    let (key, other) = (Key::new(), Key::new());
    let limited = "acquire = ['*']\nmax_leases = 1";
    let file = key.entry("ci", limited) + &other.entry("other", limited);
    let service = Service::with_keys(&file);
    let lease = post(&service, &key, "/locks/a", "").await.json();
    let adopt = async |key: &Key| {
        let adopting = http::Request::post("/locks/a/hold")
            .header("authorization", &key.header)
            .header("lock-token", lease["token"].as_str().unwrap());
        service.unread(adopting.body(Body::empty()).unwrap()).await
    };
    let older = adopt(&key).await;
    assert_eq!(post(&service, &key, "/locks/b", "").await.status, 429);
    let newer = adopt(&other).await;
    assert_eq!(
        (older.status(), newer.status()),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!(post(&service, &key, "/locks/b", "").await.status, 201);
    assert_eq!(post(&service, &other, "/locks/c", "").await.status, 429);
    drop(newer);
    room(&service, &other).await;
}

#[tokio::test]
async fn a_key_has_no_more_waiters_and_streams_than_it_may() {
    let key = Key::new();
    let lines = "acquire = ['*']\nmax_waiters = 1\nmax_streams = 2";
    let service = Service::with_keys(&key.entry("ci", lines));
    let hold = async |body: &str| {
        let request = http::Request::post("/locks/a/hold")
            .header("authorization", &key.header)
            .header("content-type", "application/json");
        service
            .unread(request.body(Body::from(body.to_owned())).unwrap())
            .await
    };
    service.script.acquires(queued(0));
    let waiting = hold(r#"{"wait_ms": 50000}"#).await;
    assert_eq!(waiting.status(), 200);
    let refused = post(&service, &key, "/locks/a", r#"{"wait_ms": 1000}"#).await;
    assert_eq!(code(&refused), (429, "too-many-waiters".to_owned()));
    assert_eq!(
        post(&service, &key, "/locks/b", "").await.status,
        201,
        "who does not wait"
    );
    let second = hold("").await;
    assert_eq!(second.status(), 200);
    let refused = ApiResponse::read(hold("").await).await;
    assert_eq!(code(&refused), (429, "rate-limited".to_owned()));
    drop(second);
    assert_eq!(hold("").await.status(), 200);
    drop(waiting);
    assert_eq!(
        post(&service, &key, "/locks/c", r#"{"wait_ms": 1000}"#)
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn a_key_that_says_nothing_of_streams_has_4000() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']"));
    let hold = || {
        let request = http::Request::post("/locks/a/hold").header("authorization", &key.header);
        service.unread(request.body(Body::empty()).unwrap())
    };
    let mut streams = Vec::new();
    for _ in 0..4_000 {
        streams.push(hold().await);
    }
    assert!(streams.iter().all(|stream| stream.status() == 200));
    let refused = hold().await;
    assert_eq!(refused.status(), 429);
}

#[tokio::test]
async fn who_was_granted_the_lock_is_no_waiter_any_more() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_waiters = 1"));
    let request = http::Request::post("/locks/a/hold")
        .header("authorization", &key.header)
        .header("content-type", "application/json");
    let body = Body::from(r#"{"wait_ms": 50000}"#);
    let mut stream = service.stream(request.body(body).unwrap()).await;
    let mut seen = String::new();
    while !seen.contains("granted") {
        use http_body_util::BodyExt;
        let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        seen += std::str::from_utf8(&frame).unwrap();
    }
    assert_eq!(
        post(&service, &key, "/locks/b", r#"{"wait_ms": 1000}"#)
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn guessing_costs_and_shuts_nobody_out_who_has_a_key() {
    let key = Key::new();
    let mut config = Config::default();
    config.auth.max_refused_per_minute = 3;
    let (service, ..) = Service::with_gate(config, &key.entry("ci", "view = ['*']"));
    let get = async |header: &str| {
        let headers = [("authorization", header)];
        service.ask(Method::GET, "/locks/a", &headers, "").await
    };
    for _ in 0..3 {
        assert_eq!(get(&Key::new().header).await.status, 401);
    }
    let refused = get(&Key::new().header).await;
    assert_eq!(code(&refused), (429, "rate-limited".to_owned()));
    assert!((19_000..=20_001).contains(&refused.json()["retry_after_ms"].as_u64().unwrap()));
    assert_eq!(
        get("Bearer x").await.status,
        429,
        "nothing that is no key either"
    );
    assert_eq!(get(&key.header).await.status, 200);
    // Who sends none guesses nothing.
    assert_eq!(service.get("/locks/a").await.status, 401);
}

#[tokio::test]
async fn a_reload_does_not_make_a_key_forget_what_it_has() {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']\nmax_leases = 1\nmax_ttl_ms = 60_000");
    let (service, gate, _) = Service::with_gate(Config::default(), &file);
    let answer = post(&service, &key, "/locks/a", r#"{"ttl_ms": 60000}"#).await;
    assert_eq!(
        answer.json()["ttl_ms"],
        Ttl::from_millis(60_000).unwrap().as_millis()
    );
    gate.replace(latchgate::auth::KeysFile::new("x").parse(&file).unwrap());
    assert_eq!(post(&service, &key, "/locks/b", "").await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn each_of_several_locks_counts_for_the_rate() {
    let key = Key::new();
    let lines = "acquire = ['*']\nrequests_per_second = 1\nburst = 4";
    let service = Service::with_keys(&key.entry("ci", lines));
    let names = r#"{"names": ["a", "b", "c", "d"]}"#;
    assert_eq!(post(&service, &key, "/locks", names).await.status, 201);
    let refused = post(&service, &key, "/locks/e", "").await;
    assert_eq!(code(&refused), (429, "rate-limited".to_owned()));
    tokio::time::advance(Duration::from_millis(1_001)).await;
    // One that is let in is carried out, and those after it wait for longer.
    assert_eq!(post(&service, &key, "/locks", names).await.status, 201);
    tokio::time::advance(Duration::from_millis(3_500)).await;
    assert_eq!(post(&service, &key, "/locks/f", "").await.status, 429);
    tokio::time::advance(Duration::from_millis(510)).await;
    assert_eq!(post(&service, &key, "/locks/f", "").await.status, 201);
}

#[tokio::test]
async fn several_locks_that_were_waited_for_in_vain_keep_no_position_and_no_room() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_waiters = 1"));
    // However often it looks, somebody else holds the lock.
    (0..100).for_each(|_| service.script.acquires(queued(0)));
    let request = http::Request::post("/locks")
        .header("authorization", &key.header)
        .header("content-type", "application/json")
        .header("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");
    let body = Body::from(r#"{"names": ["a", "b"], "wait_ms": 50000}"#);
    let mut waiting = Box::pin(service.unread(request.body(body).unwrap()));
    tokio::select! {
        _ = &mut waiting => panic!("it was not to be answered"),
        () = until("it waits", || !service.script.asked().is_empty()) => {}
    }
    let one = r#"{"wait_ms": 100}"#;
    let refused = post(&service, &key, "/locks/c", one).await;
    assert_eq!(code(&refused), (429, "too-many-waiters".to_owned()));
    drop(waiting);
    let waited = post(&service, &key, "/locks/c", one).await;
    assert_eq!(waited.problem(), (423, "locked".to_owned()));
}
