//! The access log: one line for each request, without secrets.

use tracing::subscriber::DefaultGuard;

use crate::api::prelude::*;

/// A gateway that logs every request, and its captured log.
fn logging_all() -> (Lines, DefaultGuard, Service) {
    let lines = Lines::default();
    let guard = lines.collect();
    let service = Service::configured(|it| it.log.requests = LogRequests::All);
    (lines, guard, service)
}

#[tokio::test]
async fn only_what_failed_or_was_slow_is_logged_unless_more_is_wanted() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let service = Service::start();
    let named = |id| [("x-request-id", id)];
    let granted = service.call("POST /locks/a", &named("granted")).await;
    assert_eq!(granted.status, 201);
    service.call("GET /locks/a/", &named("missing")).await;
    service.script.paused.set();
    let slow = named("slow");
    let (slow, ()) = tokio::join!(service.call("GET /locks/a", &slow), async {
        sleep(Duration::from_millis(1_100)).await;
        service.script.paused.lift();
    });
    assert_eq!(slow.status, 200, "{}", slow.body);
    let log = lines.read();
    assert!(!log.contains("id=\"granted\""), "{log}");
    assert!(log.contains("id=\"missing\""), "{log}");
    assert!(log.contains("id=\"slow\""), "{log}");
}

#[tokio::test]
async fn a_request_is_one_line_with_its_route_status_code_and_id() {
    let (lines, _guard, service) = logging_all();
    let headers = [("x-request-id", "one")];
    service.call("GET /locks/a/", &headers).await;
    let headers = [("x-request-id", "two")];
    service.call("POST /locks/a%2Fb", &headers).await;
    let log = lines.read();
    let line = |id: &str| {
        let id = format!("id=\"{id}\"");
        let found = log
            .lines()
            .filter(|line| line.contains(&id))
            .collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{log}");
        found[0].to_owned()
    };
    for part in words(r#"INFO method="GET" status=404 code="not-found" us="#) {
        assert!(line("one").contains(part), "{}", line("one"));
    }
    for part in ["method=\"POST\"", "route=\"/locks/{name}\"", "status=201"] {
        assert!(line("two").contains(part), "{}", line("two"));
    }
}

#[tokio::test]
async fn an_id_that_is_a_secret_of_the_request_is_neither_logged_nor_echoed() {
    const SECRET: &str = "c0ffee00-9d1b-4c58-9a3b-6f5f2b1f7d11";
    let (lines, _guard, service) = logging_all();
    for (header, method, target, status) in [
        ("idempotency-key", Method::POST, "/locks/a", 201),
        ("lock-token", Method::DELETE, "/locks/a", 400),
    ] {
        let sent = [("x-request-id", SECRET), (header, SECRET)];
        let answer = service.call(&format!("{method} {target}"), &sent).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        let id = answer.header("x-request-id");
        assert!(!id.is_empty() && id != SECRET, "{id}");
        assert!(!answer.body.contains(SECRET), "{}", answer.body);
    }
    let log = lines.read();
    assert!(!log.contains("c0ffee00"), "{log}");
}

#[tokio::test]
async fn a_failure_is_a_warning_with_its_cause_unless_the_store_reports_its_outage_itself() {
    let (lines, _guard, service) = logging_all();
    let why = || "no word from redis-3".to_owned();
    for (error, status, level) in [
        (Unavailability::Connect(why()).into(), 503, "INFO"),
        (Uncertainty::ConnectionLost(why()).into(), 504, "INFO"),
        (Uncertainty::UnexpectedReply(why()).into(), 504, "WARN"),
    ] {
        service.script.acquire.push(Err(error));
        service.acquire("{}").await;
        let log = lines.read();
        let line = log.lines().last().unwrap();
        let status = format!("status={status}");
        assert!(line.contains(level) && line.contains(&status), "{line}");
        assert!(line.contains(&why()), "{line}");
    }
}

#[tokio::test]
async fn requests_for_which_there_is_no_room_are_one_warning() {
    let (lines, _guard, service) = logging_all();
    for _ in 0..20 {
        let full = Err(Unavailability::Overloaded.into());
        service.script.acquire.push(full);
        assert_eq!(service.acquire("{}").await.status, 503);
    }
    let log = lines.read();
    let having = |what| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(having("code=\"overloaded\""), 20, "{log}");
    assert_eq!(having("WARN"), 1, "{log}");
    assert_eq!(having("there is no room for them refused=1"), 1, "{log}");
}

#[tokio::test]
async fn requests_that_a_stopping_gateway_sends_away_are_no_failures() {
    for (requests, lines_each) in [(LogRequests::Failed, 0), (LogRequests::All, 1)] {
        let lines = Lines::default();
        let _guard = lines.collect();
        let service = Service::configured(|it| it.log.requests = requests);
        service.script.acquire.ok(queued(0));
        let waits = service.acquire(r#"{"wait_ms": 20000}"#);
        let (waited, ()) = tokio::join!(waits, async {
            service.is_asked(1).await;
            service.lifecycle.drain();
        });
        for answer in [waited, service.acquire("{}").await] {
            assert_eq!(answer.problem(), (503, "draining"));
        }
        let log = lines.read();
        let having = |what| log.lines().filter(|line| line.contains(what)).count();
        assert_eq!(having("code=\"draining\""), 2 * lines_each, "{log}");
        assert_eq!(having("WARN"), 0, "{log}");
    }
}

#[tokio::test]
async fn a_panic_is_logged_with_its_message() {
    let (lines, _guard, service) = logging_all();
    service.script.panics.set();
    service.get("/locks/a").await;
    let log = lines.read();
    assert!(log.contains("cause=\"panic: the script says so\""), "{log}");
}

#[tokio::test]
async fn a_caller_that_hung_up_is_a_line_too() {
    let (lines, _guard, service) = logging_all();
    service.script.paused.set();
    let request = "GET /locks/a HTTP/1.1\r\nhost: localhost\r\nx-request-id: gone\r\n\r\n";
    let stream = service.sent(request).await;
    service.is_asked(1).await;
    drop(stream);
    until("the line is written", || {
        let log = lines.read();
        log.lines()
            .any(|line| line.contains("hung up") && line.contains("id=\"gone\""))
    })
    .await;
}

/// The last events may have arrived without being read: the gateway cannot know.
#[tokio::test]
async fn whoever_listens_no_more_is_a_line_that_says_no_more_than_is_known() {
    let (lines, _guard, service) = logging_all();
    let request = "GET /events HTTP/1.1\r\nhost: localhost\r\nx-request-id: ear\r\n\r\n";
    let stream = service.sent(request).await;
    until("the stream is open", || lines.read().contains("status=200")).await;
    drop(stream);
    until("the line is written", || {
        let log = lines.read();
        let mut lines = log.lines();
        lines.any(|line| {
            line.contains("DEBUG")
                && line.contains("a listener to events")
                && line.contains("hung up, or does not read")
        })
    })
    .await;
}

#[tokio::test]
async fn no_secret_is_ever_logged() {
    let (lines, _guard, service) = logging_all();
    let key = "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11";
    let with_key = [("idempotency-key", key)];
    let granted = service.call("POST /locks/a", &with_key).await.json();
    let token = granted["token"].as_str().unwrap();
    let body = format!(r#"{{"token": "{TOKEN}"}}"#);
    let json = [("content-type", "application/json")];
    service.ask("POST /locks/a/release", &json, body).await;
    let headers = [("lock-token", token)];
    service.call("DELETE /locks/a", &headers).await;
    let line = format!("DELETE /locks/a?token={TOKEN}");
    service.call(&line, &[]).await;
    service.call(&format!("DELETE /locks/{TOKEN}/x"), &[]).await;
    service
        .call("POST /locks/a", &[("idempotency-key", &key[..20])])
        .await;
    let log = lines.read();
    assert_eq!(log.matches("request method=").count(), 6, "{log}");
    for secret in [key, &key[..20], token, TOKEN] {
        assert!(!log.contains(secret), "{log}");
    }
}
