//! How the client reads answers, also answers with numbers that no gateway sends.

use std::{collections::BTreeMap, time::Duration};

use latchgate::{
    client::{
        AcquireMode, AcquireRequest, ApiKey, Client, ClientError, ClientOptions, Lease,
        LeaseRenewer, LeaseState, LockState, Reserve,
    },
    lock::{
        BreakTarget, GroupNames, IdempotencyKey, Limit, LockName, Metadata, Mode, OrderNumber,
        Owner, Reason, SupersedeKey, Token,
    },
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::fake_gateway::{FakeGateway, Reply};

/// The token in [`lease`].
pub(super) const TOKEN: &str = "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU";

pub(super) fn lease() -> Reply {
    let body = format!(
        r#"{{"name":"deploy","token":"{TOKEN}","fencing_token":42,"ttl_ms":30000,"expires_in_ms":29000,"expires_at":"2026-11-20T12:00:30.000Z","acquired_at":"2026-11-20T12:00:00.000Z","renew_after_ms":9666,"hold_expires_in_ms":null,"owner":"me","metadata":{{"job":"7"}},"waited_ms":0,"from_the_future":[1]}}"#
    );
    Reply::Answer(201, body)
}

pub(super) fn client(gateway: &FakeGateway) -> Client {
    client_of(&gateway.url)
}

pub(super) fn client_of(url: &str) -> Client {
    let options = ClientOptions {
        url: url.to_owned(),
        request_timeout: Duration::from_millis(500),
        attempts: 3,
        ..ClientOptions::default()
    };
    Client::new(options).unwrap()
}

pub(super) fn name() -> LockName {
    LockName::new("deploy").unwrap()
}

pub(super) fn token() -> Token {
    Token::parse(TOKEN).unwrap()
}

pub(super) async fn acquire(gateway: &FakeGateway) -> Result<Lease, ClientError> {
    client(gateway)
        .acquire(&name(), &AcquireRequest::default())
        .await
}

#[tokio::test]
async fn an_acquire_says_what_it_was_asked_to_say() {
    let gateway = FakeGateway::new([lease()]);
    let options = ClientOptions {
        url: gateway.url.clone(),
        key: Some(ApiKey::new("k3y").unwrap()),
        ..ClientOptions::default()
    };
    let key = "5f0c2f5e-9d1b-4c58-9a3b-6f5f2b1f7d11";
    let request = AcquireRequest {
        ttl: Some(Duration::from_secs(30)),
        wait: Duration::ZERO,
        max_hold: Some(Duration::from_mins(1)),
        min_hold: Some(Duration::from_secs(40)),
        mode: AcquireMode::Shared {
            limit: Limit::new(3).ok(),
        },
        supersedes: Some(SupersedeKey::new("deploy").unwrap()),
        order: OrderNumber::new(41_873).ok(),
        rollback: Some(Reason::new("bad").unwrap()),
        reserve: Some(Reserve {
            until: "2026-12-04T18:00:00Z".to_owned(),
            reason: Reason::new("x").unwrap(),
        }),
        owner: Some(Owner::new("me").unwrap()),
        metadata: Metadata::new(BTreeMap::from([("job".to_owned(), "7".to_owned())])).unwrap(),
        idempotency_key: Some(IdempotencyKey::new(key).unwrap()),
    };
    let client = Client::new(options).unwrap();
    client.acquire(&name(), &request).await.unwrap();
    let received = &gateway.received()[0];
    assert_eq!(received.line, "POST /locks/deploy HTTP/1.1");
    assert_eq!(received.header("authorization"), Some("Bearer k3y"));
    assert_eq!(received.header("idempotency-key"), Some(key));
    assert_eq!(
        received.body,
        r#"{"limit":3,"max_hold_ms":60000,"metadata":{"job":"7"},"min_hold_ms":40000,"mode":"shared","order":41873,"owner":"me","reserve":{"reason":"x","until":"2026-12-04T18:00:00Z"},"rollback":"bad","supersedes":"deploy","ttl_ms":40000}"#
    );
}

#[tokio::test]
async fn an_answer_about_another_lock_is_an_error_that_names_both() {
    let path = LockName::new("acme/deploy").unwrap();
    let other = "the answer is about the lock \"deploy\", not \"acme/deploy\": a proxy has changed the path";
    let is_told = |error: &ClientError| {
        assert!(error.to_string().contains(other), "{error}");
        matches!(error, ClientError::OutcomeUnknown { .. })
    };
    // The lease that was granted is released: it is answered to the withdrawal, too.
    let released = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([lease(), lease(), released]);
    let client = client(&gateway);
    let error = client.acquire(&path, &AcquireRequest::default()).await;
    assert!(is_told(&error.unwrap_err()));
    client.finish_releases().await;
    let lines: Vec<_> = gateway.received().into_iter().map(|it| it.line).collect();
    assert_eq!(
        lines,
        [
            "POST /locks/acme%2Fdeploy HTTP/1.1",
            "POST /locks/acme%2Fdeploy HTTP/1.1",
            "DELETE /locks/deploy HTTP/1.1",
        ]
    );

    let gateway = FakeGateway::new([lease()]);
    let error = client_of(&gateway.url).renew(&path, &token(), None).await;
    assert!(is_told(&error.unwrap_err()));
    let shown = r#"{"name":"deploy","state":"free","holders":[],"holder_count":0}"#.to_owned();
    let gateway = FakeGateway::new([Reply::Answer(200, shown.clone())]);
    let error = client_of(&gateway.url).inspect(&path).await;
    assert!(!is_told(&error.unwrap_err()), "a look is never in doubt");
    let gateway = FakeGateway::new([Reply::Answer(200, shown)]);
    let reason = Reason::new("it hangs").unwrap();
    let client = client_of(&gateway.url);
    let error = client.break_lock(&path, &reason, None).await;
    assert!(is_told(&error.unwrap_err()));
}

#[tokio::test]
async fn a_lease_counts_from_when_it_was_asked_for() {
    let gateway = FakeGateway::new([lease()]);
    let before = Instant::now();
    let lease = acquire(&gateway).await.unwrap();
    let after = Instant::now();
    assert_eq!(lease.token.expose(), TOKEN);
    assert_eq!(lease.fence.get(), 42);
    assert_eq!(lease.renew_after, Duration::from_millis(9_666));
    let good_for = Duration::from_secs(29);
    assert!(before + good_for <= lease.good_until() && lease.good_until() <= after + good_for);
    assert!(lease.json().contains("from_the_future"));
    assert!(!format!("{lease:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_lease_says_its_mode_and_its_slot_and_without_them_it_is_exclusive() {
    let shared = |slot| Mode::Shared { slot };
    for (field, expected) in [
        ("", Some(Mode::Exclusive)),
        (r#""mode":"exclusive","slot":null,"#, Some(Mode::Exclusive)),
        (r#""mode":"shared","slot":null,"#, Some(shared(None))),
        (r#""mode":"shared","slot":2,"#, Some(shared(Some(2)))),
        // With an unknown mode, the client does not know whether other callers hold the lock.
        (r#""mode":"borrowed","#, None),
    ] {
        let Reply::Answer(status, body) = lease() else {
            panic!("it is an answer");
        };
        let body = body.replacen('{', &format!("{{{field}"), 1);
        let gateway = FakeGateway::new([Reply::Answer(status, body)]);
        let mode = acquire(&gateway).await.ok().map(|lease| lease.mode);
        assert_eq!(mode, expected, "{field}");
    }
}

#[tokio::test]
async fn a_lock_that_is_held_says_by_whom_and_how_many_they_are() {
    let holder = r#"{"owner":"ci","metadata":{},"fencing_token":41,"mode":"shared","slot":3,"expires_in_ms":9000,"foreign":false}"#;
    let more = format!(r#","retry_after_ms":1200,"holders":[{holder}],"holder_count":120"#);
    let gateway = FakeGateway::new([Reply::problem(423, "locked", &more)]);
    let Err(ClientError::Held(problem)) = acquire(&gateway).await else {
        panic!("it is held");
    };
    assert_eq!(gateway.received().len(), 1);
    assert_eq!(problem.retry_after(), Some(Duration::from_millis(1_200)));
    assert_eq!(problem.holders[0].owner.as_deref(), Some("ci"));
    assert_eq!(problem.holder_count, Some(120));
    assert_eq!(problem.holders[0].mode.as_deref(), Some("shared"));
    assert_eq!(problem.holders[0].slot, Some(3));
    let waiter = r#"{"position":1,"owner":null,"mode":"shared","limit":3,"waited_ms":7}"#;
    let lock = format!(
        r#"{{"state":"held","holders":[{holder}],"holder_count":120,"waiters":[{waiter}],"waiter_count":1}}"#
    );
    let gateway = FakeGateway::new([Reply::Answer(200, lock)]);
    let lock = client(&gateway).inspect(&name()).await.unwrap();
    assert_eq!((lock.holder_count, lock.waiters[0].limit), (120, Some(3)));
    assert_eq!(lock.waiters[0].mode.as_deref(), Some("shared"));
}

#[tokio::test]
async fn a_lock_that_rests_says_for_how_long() {
    let rest = r#"{"fencing_token":41,"slot":2,"available_in_ms":9000}"#;
    let more =
        format!(r#","holders":[],"holder_count":0,"resting":[{rest}],"available_in_ms":9000"#);
    let gateway = FakeGateway::new([Reply::problem(423, "locked", &more)]);
    let error = acquire(&gateway).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(text, "the lock is held: it rests for another 9s");
    let problem = error.problem().unwrap();
    assert_eq!(
        (problem.resting[0].slot, problem.available_in_ms),
        (Some(2), Some(9_000))
    );
    let lock = format!(r#"{{"state":"resting","holders":[],"holder_count":0,"resting":[{rest}]}}"#);
    let gateway = FakeGateway::new([Reply::Answer(200, lock)]);
    let lock = client(&gateway).inspect(&name()).await.unwrap();
    assert_eq!(
        (lock.state, lock.resting[0].fencing_token),
        (LockState::Resting, 41)
    );
}

#[tokio::test]
async fn a_break_of_all_is_not_sent_again_when_its_answer_is_lost() {
    let reason = Reason::new("drain").unwrap();
    let gateway = FakeGateway::new([Reply::Lost]);
    let broken = client(&gateway)
        .break_lock(&name(), &reason, Some(BreakTarget::All))
        .await;
    assert!(
        matches!(broken, Err(ClientError::OutcomeUnknown { .. })),
        "{broken:?}"
    );
    let received = gateway.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].body, r#"{"all":true,"reason":"drain"}"#);
}

#[tokio::test]
async fn renew_and_release_carry_the_token_in_its_header() {
    let done = Reply::Answer(204, String::new());
    let gateway = FakeGateway::new([lease(), done]);
    let client = client(&gateway);
    client.renew(&name(), &token(), None).await.unwrap();
    client.release(&name(), &token()).await.unwrap();
    let received = gateway.received();
    assert_eq!(received[0].line, "PUT /locks/deploy/renew HTTP/1.1");
    assert_eq!(received[0].body, "{}");
    assert_eq!(received[1].line, "DELETE /locks/deploy HTTP/1.1");
    for request in received {
        assert_eq!(request.header("lock-token"), Some(TOKEN));
    }
}

#[tokio::test]
async fn a_lost_lease_says_whether_somebody_else_has_the_lock() {
    let gateway = FakeGateway::new([Reply::problem(410, "lease-lost", r#","held":true"#)]);
    let Err(ClientError::Lost(problem)) = client(&gateway).renew(&name(), &token(), None).await
    else {
        panic!("it is lost");
    };
    assert_eq!(problem.held, Some(true));
}

#[tokio::test]
async fn an_answer_that_is_no_gateways_is_called_that() {
    let tls = "This address speaks TLS: use https:// and not http://";
    for (status, body, what) in [
        (404, "not here", "status 404, no problem document"),
        (302, "", "status 302, no problem document"),
        (
            400,
            tls,
            "status 400, this address speaks TLS: its URL begins with https://",
        ),
    ] {
        let gateway = FakeGateway::new([Reply::Answer(status, body.to_owned())]);
        let error = acquire(&gateway).await.unwrap_err();
        let ClientError::Unexpected { what: told, .. } = error else {
            panic!("{status}: {error}");
        };
        assert_eq!(told, what);
        assert_eq!(gateway.received().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_lock_is_free_or_held() {
    let free = r#"{"name":"deploy","state":"free","holders":[],"waiters":[]}"#;
    let gateway = FakeGateway::new([Reply::Answer(200, free.to_owned())]);
    let lock = client(&gateway).inspect(&name()).await.unwrap();
    assert!(lock.state == LockState::Free && lock.holders.is_empty());
    assert_eq!(lock.json(), free);
    let held = r#"{"name":"deploy","state":"held","holders":[{"foreign":true,"expires_in_ms":null,"fencing_token":null,"metadata":{}}]}"#;
    let gateway = FakeGateway::new([Reply::Answer(200, held.to_owned())]);
    let lock = client(&gateway).inspect(&name()).await.unwrap();
    assert_eq!(lock.state, LockState::Held);
    assert!(lock.holders[0].foreign);
}

/// The longest time that any awaited event may take, also on a machine that does other work.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

/// A lease of 3 s with these fields replaced.
pub(super) fn lease_with(numbers: &[(&str, &str)]) -> Reply {
    let mut body = serde_json::json!({
        "name": "deploy", "token": TOKEN, "fencing_token": 42,
        "ttl_ms": 3_000, "expires_in_ms": 3_000, "renew_after_ms": 1_000,
    });
    for (field, number) in numbers {
        body[field] = serde_json::from_str(number).unwrap();
    }
    Reply::Answer(201, body.to_string())
}

/// A lease of the locks `a` and `b` for `ms` milliseconds.
pub(super) fn lease_of_two(ms: u64) -> Reply {
    let soon = ms / 3;
    let lease = format!(
        r#"{{"leases":[{{"name":"a","fencing_token":1}},{{"name":"b","fencing_token":2}}],"token":"{TOKEN}","ttl_ms":{ms},"expires_in_ms":{ms},"renew_after_ms":{soon}}}"#
    );
    Reply::Answer(201, lease)
}

/// Acquires the locks `a` and `b` and starts renewing them.
pub(super) async fn keep_two(gateway: &FakeGateway) -> LeaseRenewer {
    let (client, names) = (client(gateway), GroupNames::parse(["a", "b"]).unwrap());
    let request = AcquireRequest::default();
    let lease = client.acquire_all(&names, &request).await.unwrap();
    LeaseRenewer::start(&client, lease).await.unwrap()
}

/// Acquires a lease and starts renewing it.
pub(super) async fn keep(gateway: &FakeGateway) -> LeaseRenewer {
    let lease = acquire(gateway).await.unwrap();
    LeaseRenewer::start(&client(gateway), lease).await.unwrap()
}

#[tokio::test]
async fn an_answer_with_them_is_no_lease() {
    for (field, numbers) in [
        ("ttl_ms", "0 -1 1e3 null 18446744073709551615"),
        (
            "expires_in_ms",
            "-1 18446744073709551616 9007199254740992 1e300",
        ),
        ("renew_after_ms", "0.5 9007199254740992"),
        ("hold_expires_in_ms", "-1 9007199254740992"),
        ("waited_ms", "9007199254740992"),
        ("fencing_token", "0 -42"),
    ] {
        for number in numbers.split(' ') {
            let gateway = FakeGateway::new([lease_with(&[(field, number)])]);
            let error = acquire(&gateway).await.unwrap_err();
            let unknown = matches!(error, ClientError::OutcomeUnknown { .. });
            assert!(unknown, "{field} {number}: {error}");
        }
    }
}

#[tokio::test]
async fn no_lease_is_believed_to_last_longer_than_its_ttl() {
    let longer = lease_with(&[("expires_in_ms", "9007199254740991")]);
    let gateway = FakeGateway::new([longer]);
    let renewer = keep(&gateway).await;
    let until = renewer.until().unwrap();
    assert!(until < Instant::now() + Duration::from_secs(3));
}

#[tokio::test]
async fn a_gateway_that_wants_renewals_at_once_is_not_asked_without_end() {
    let begun = Instant::now();
    let gateway = FakeGateway::new([lease_with(&[("renew_after_ms", "0")])]);
    let _renewer = keep(&gateway).await;
    sleep(Duration::from_secs(1)).await;
    // The pause before a repeated renewal is a twentieth of the time left, shortened at random by up to a tenth.
    let most = begun.elapsed().as_millis() / 135 + 2;
    assert!(gateway.received().len() as u128 <= most);
}

#[tokio::test]
async fn a_gateway_that_wants_no_renewal_in_time_is_asked_in_time() {
    let gateway = FakeGateway::new([lease_with(&[("renew_after_ms", "9007199254740991")])]);
    let renewer = keep(&gateway).await;
    let lost = timeout(Duration::from_secs(5), renewer.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

#[tokio::test]
async fn the_renewal_of_another_lease_is_not_believed() {
    let gateway = FakeGateway::new([lease_with(&[]), lease_with(&[("fencing_token", "43")])]);
    at_risk(&keep(&gateway).await).await;
}

#[tokio::test]
async fn of_several_locks_all_must_be_renewed() {
    let a = r#"{"name":"a","code":null,"expires_in_ms":3000}"#;
    for others in [
        "",
        r#",{"name":"b","code":null}"#,
        r#",{"name":"c","code":null,"expires_in_ms":3000}"#,
        r#",{"name":"b","code":null,"expires_in_ms":9007199254740992}"#,
    ] {
        let renewed = format!(r#"{{"results":[{a}{others}],"renew_after_ms":1000}}"#);
        let gateway = FakeGateway::new([lease_of_two(3_000), Reply::Answer(200, renewed)]);
        at_risk(&keep_two(&gateway).await).await;
    }
}

async fn at_risk(renewer: &LeaseRenewer) {
    stands(renewer, |state| matches!(state, LeaseState::AtRisk { .. })).await;
}

/// Waits until the state of the lease satisfies a condition.
pub(super) async fn stands(renewer: &LeaseRenewer, so: impl FnMut(&LeaseState) -> bool) {
    let mut state = renewer.watch();
    let found = timeout(TIMEOUT, state.wait_for(so)).await;
    found.expect("it comes to stand so").unwrap();
}

#[tokio::test]
async fn a_pause_without_end_ends_before_the_call_does() {
    for (status, code) in [(503, "overloaded"), (429, "rate-limited")] {
        let never = r#","retry_after_ms":18446744073709551615"#;
        let busy = Reply::problem(status, code, never);
        let gateway = FakeGateway::new([busy, lease_with(&[])]);
        let client = Client::new(ClientOptions {
            url: gateway.url.clone(),
            deadline: Duration::from_secs(4),
            ..ClientOptions::default()
        });
        let request = AcquireRequest::default();
        client.unwrap().acquire(&name(), &request).await.unwrap();
        assert_eq!(gateway.received().len(), 2);
    }
}
