//! Sends requests with a key for which the client exchanges its ID token.

use std::{sync::Arc, time::Duration};

use reqwest::{
    Method, RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::json;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use crate::{
    ApiKey, Client, IdTokenError,
    http::{CallResponse, RetryableFailure, SendError, without_nulls},
    id_token::{ExchangedKey, Exchanger},
};

/// The gateway's answer to an exchange.
#[derive(Deserialize)]
struct Exchanged {
    key: String,
    expires_in_ms: u64,
}

/// The longest answer to an exchange, in bytes. A key has 3 KiB at most.
const MAX_ANSWER: usize = 64 * 1024;
/// The longest life of an exchanged key.
const MAX_LIFE: Duration = Duration::from_hours(24);
/// How long before its end a key is exchanged for a new one, at most. A key of less than five minutes: in the last fifth
/// of its life.
const EARLY: Duration = Duration::from_mins(1);

// === impl Exchanged ===

impl Exchanged {
    /// The key, and how long the client uses the key before it exchanges again; `None` if the answer has no key.
    fn read(body: &str) -> Option<(ApiKey, Duration)> {
        let Self { key, expires_in_ms } = serde_json::from_str(body).ok()?;
        let lives = Duration::from_millis(expires_in_ms).min(MAX_LIFE);
        Some((
            ApiKey::new(&key).ok()?,
            lives.saturating_sub(EARLY.min(lives / 5)),
        ))
    }
}

// === impl Client ===

impl Client {
    /// Sends one copy of a request to the gateway at `base`, with the API key of the client or with a key for which the
    /// client exchanges its ID token. `time_out`: how long the answer may take; `None` if the caller counts itself.
    ///
    /// A key that is about to end is exchanged in the background, so that no renewal waits for that. Where no further
    /// exchange succeeds, the client keeps the key: the gateway renews leases with it until a day after the exchange.
    pub(crate) async fn send(
        &self,
        base: &str,
        request: RequestBuilder,
        time_out: Option<Duration>,
    ) -> Result<Response, SendError> {
        let with_time_out = |request: RequestBuilder, left: Duration| match time_out {
            Some(_) => request.timeout(left),
            None => request,
        };
        let time_out = time_out.unwrap_or(self.options.request_timeout);
        let Some(exchanger) = &self.exchanger else {
            let request = with_time_out(request, time_out);
            return request.send().await.map_err(SendError::Request);
        };
        let deadline = Instant::now() + time_out;
        let key = match exchanger.key() {
            Some(key) => {
                if key.due <= Instant::now() {
                    self.exchange_in_background(exchanger, &key, base, time_out);
                }
                key
            }
            None => self.exchange(exchanger, None, base, deadline).await?,
        };
        let send = async |request: RequestBuilder, key: &ExchangedKey| {
            let left = deadline.saturating_duration_since(Instant::now());
            let request = with_time_out(request, left).header(AUTHORIZATION, key.header.clone());
            request.send().await.map_err(SendError::Request)
        };
        let again = request.try_clone();
        let response = send(request, &key).await?;
        let Some(again) = again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(response);
        };
        // The key was revoked, its rules have changed, or it has ended.
        let key = self.exchange(exchanger, Some(&key), base, deadline).await?;
        send(again, &key).await
    }

    fn exchange_in_background(
        &self,
        exchanger: &Arc<Exchanger>,
        seen: &Arc<ExchangedKey>,
        base: &str,
        time_out: Duration,
    ) {
        if exchanger.exchanging.try_lock().is_err() {
            return;
        }
        let (client, exchanger) = (self.clone(), Arc::clone(exchanger));
        let (seen, base) = (Arc::clone(seen), base.to_owned());
        let deadline = Instant::now() + time_out;
        drop(Handle::current().spawn(async move {
            // If the exchange fails, the key that is at hand stays, and the next request tries again.
            drop(
                client
                    .exchange(&exchanger, Some(&seen), &base, deadline)
                    .await,
            );
        }));
    }

    /// Exchanges the ID token for a key, unless another request has done so since the caller has `seen` a key.
    async fn exchange(
        &self,
        exchanger: &Exchanger,
        seen: Option<&Arc<ExchangedKey>>,
        base: &str,
        deadline: Instant,
    ) -> Result<Arc<ExchangedKey>, SendError> {
        let no_key = |why: &str| {
            let reason = format!("the ID token was not exchanged for a key: {why}");
            SendError::NoKey(RetryableFailure::unreachable(base, reason))
        };
        let turn = timeout_at(deadline, exchanger.exchanging.lock()).await;
        let _turn = turn.map_err(|_elapsed| no_key("no answer in time"))?;
        if let Some(key) = exchanger.key()
            && seen.is_none_or(|seen| !Arc::ptr_eq(seen, &key))
        {
            return Ok(key);
        }
        let refused = |answer| Err(SendError::Refused(Box::new(answer)));
        let token = match exchanger.token.read() {
            Ok(token) => token,
            Err(error) => return refused(unread(base, &error)),
        };
        if let Some((status, body)) = exchanger.refusal(&token) {
            return refused(CallResponse::made(base, status, body));
        }
        let body = json!({"id_token": token, "name": exchanger.token.key_name});
        let body = without_nulls(body).to_string();
        let sent_at = Instant::now();
        let request = self
            .request(Method::POST, format!("{base}/session/token"))
            .timeout(deadline.saturating_duration_since(sent_at))
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let failed = |error| SendError::NoKey(RetryableFailure::of_error(&error, base, true));
        let mut response = request.send().await.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_ANSWER {
                return Err(no_key("the answer is too long"));
            }
            body.extend(chunk);
        }
        let mut answer = CallResponse::new(base, sent_at, &response, body);
        match (answer.status, answer.problem()) {
            (StatusCode::CREATED, _) => match Exchanged::read(&answer.body) {
                Some((key, due)) => Ok(exchanger.accept(key.header(), sent_at + due)),
                None => Err(no_key("the answer has no key")),
            },
            (
                StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE,
                Some(_),
            ) => refused(answer),
            (status, Some(_)) if status.is_client_error() => {
                answer.body = exchanger.refuse(token, status, answer.body);
                refused(answer)
            }
            (status, _) => Err(no_key(&format!("status {}", status.as_u16()))),
        }
    }
}

/// The answer to a call for which the client has no ID token.
fn unread(base: &str, error: &IdTokenError) -> CallResponse {
    let status = StatusCode::UNAUTHORIZED;
    let problem = json!({
        "status": status.as_u16(), "code": "no-id-token", "title": "There is no ID token", "detail": error.to_string(),
    });
    CallResponse::made(base, status, problem.to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader, Read, Write},
        net::{TcpListener, TcpStream},
        sync::{
            Mutex, PoisonError,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use serde_json::Value;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{ClientError, ClientOptions, IdToken, LockName};

    /// A request as the gateway of a test has received it.
    #[derive(Clone)]
    struct Seen {
        line: String,
        authorization: String,
        body: String,
    }

    /// A gateway that answers as functions say.
    struct Gateway {
        url: String,
        seen: Arc<Mutex<Vec<Seen>>>,
    }

    /// The status and the body of an answer. An answer with the status 0 never comes.
    type Answer = (u16, String);

    const FREE: &str = r#"{"name": "a", "state": "free", "holders": [], "holder_count": 0, "waiters": [], "waiter_count": 0}"#;

    impl Gateway {
        /// `exchange` answers the exchange with this number, and `other` a request with this key.
        fn start(
            exchange: impl Fn(usize) -> Answer + Send + Sync + 'static,
            other: impl Fn(&str) -> Answer + Send + Sync + 'static,
        ) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
            let log = Arc::clone(&seen);
            let (exchange, other) = (Arc::new(exchange), Arc::new(other));
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let (log, exchange, other) =
                        (Arc::clone(&log), Arc::clone(&exchange), Arc::clone(&other));
                    thread::spawn(move || {
                        let mut stream = stream.unwrap();
                        let request = receive(&stream);
                        let number = {
                            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                            log.push(request.clone());
                            log.iter().filter(|it| it.is_exchange()).count()
                        };
                        let answer = if request.is_exchange() {
                            exchange(number)
                        } else {
                            other(&request.authorization)
                        };
                        let (status, body) = answer;
                        if status == 0 {
                            // Until the client closes the connection.
                            drop(stream.read(&mut [0]));
                            return;
                        }
                        let length = body.len();
                        let head = format!(
                            "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                        );
                        drop(stream.write_all((head + &body).as_bytes()));
                    });
                }
            });
            Self { url, seen }
        }

        fn client(&self, token: IdToken) -> Client {
            let options = ClientOptions {
                url: self.url.clone(),
                id_token: Some(token),
                request_timeout: Duration::from_secs(5),
                ..ClientOptions::default()
            };
            Client::new(options).unwrap()
        }

        fn seen(&self) -> Vec<Seen> {
            self.seen.lock().unwrap().clone()
        }

        /// The tokens that were sent to be exchanged.
        fn tokens(&self) -> Vec<String> {
            let exchanges = self.seen().into_iter().filter(Seen::is_exchange);
            let token = |it: Seen| serde_json::from_str::<Value>(&it.body).unwrap();
            exchanges
                .map(|it| token(it)["id_token"].as_str().unwrap().to_owned())
                .collect()
        }

        /// The headers `Authorization` of all requests but exchanges.
        fn keys(&self) -> Vec<String> {
            let others = self.seen().into_iter().filter(|it| !it.is_exchange());
            others.map(|it| it.authorization).collect()
        }
    }

    impl Seen {
        fn is_exchange(&self) -> bool {
            self.line.starts_with("POST /session/token ")
        }
    }

    fn receive(stream: &TcpStream) -> Seen {
        let mut reader = BufReader::new(stream);
        let mut next = || {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let line = next();
        let (mut authorization, mut length) = (String::new(), 0);
        loop {
            let header = next();
            let Some((name, value)) = header.split_once(": ") else {
                break;
            };
            match name {
                "authorization" => value.clone_into(&mut authorization),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        Seen {
            line,
            authorization,
            body: String::from_utf8(body).unwrap(),
        }
    }

    fn key(number: usize, lives: u64) -> Answer {
        let body = json!({"key": format!("lgx_{number}"), "expires_in_ms": lives, "name": "ci"});
        (201, body.to_string())
    }

    fn problem(status: u16, code: &str, detail: &str) -> Answer {
        let body = json!({"status": status, "code": code, "title": code, "detail": detail});
        (status, body.to_string())
    }

    fn free(_key: &str) -> Answer {
        (200, FREE.to_owned())
    }

    fn lock() -> LockName {
        LockName::new("a").unwrap()
    }

    #[tokio::test]
    async fn one_exchange_serves_all_requests() {
        let gateway = Gateway::start(|number| key(number, 3_600_000), free);
        let client = gateway.client(IdToken::new("e.y.J\n").key_name("ci"));
        let name = lock();
        let (one, other) = tokio::join!(client.inspect(&name), client.inspect(&name));
        one.and(other).unwrap();
        client.inspect(&name).await.unwrap();
        assert_eq!(gateway.tokens(), ["e.y.J"]);
        assert_eq!(gateway.keys(), ["Bearer lgx_1"; 3]);
        let first = &gateway.seen()[0];
        assert_eq!(first.authorization, "");
        assert!(first.body.contains(r#""name":"ci""#), "{}", first.body);
        let shown = format!("{client:?}");
        assert!(
            !shown.contains("e.y.J") && !shown.contains("lgx"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_key_that_is_refused_is_exchanged_again_and_the_file_is_read_again() {
        let is_revoked = Arc::new(AtomicBool::new(false));
        let revoked = Arc::clone(&is_revoked);
        let gateway = Gateway::start(
            |number| key(number, 3_600_000),
            move |key| match key {
                "Bearer lgx_1" if revoked.load(Ordering::Relaxed) => {
                    problem(401, "unauthorized", "it has ended")
                }
                key => free(key),
            },
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "old\n").unwrap();
        let client = gateway.client(IdToken::file(&path));
        client.inspect(&lock()).await.unwrap();
        fs::write(&path, "new").unwrap();
        is_revoked.store(true, Ordering::Relaxed);
        client.inspect(&lock()).await.unwrap();
        assert_eq!(gateway.tokens(), ["old", "new"]);
        // The token is needed only for an exchange.
        fs::remove_file(&path).unwrap();
        client.inspect(&lock()).await.unwrap();
        let keys = [
            "Bearer lgx_1",
            "Bearer lgx_1",
            "Bearer lgx_2",
            "Bearer lgx_2",
        ];
        assert_eq!(gateway.keys(), keys);
    }

    #[tokio::test]
    async fn a_key_that_is_about_to_end_is_exchanged_while_requests_go_on() {
        // The second exchange is never answered, and no request waits for it.
        let exchange = |number| match number {
            2 => (0, String::new()),
            number => key(number, 1),
        };
        let gateway = Gateway::start(exchange, free);
        let client = gateway.client(IdToken::new("t"));
        for _ in 0..3 {
            let seen = timeout(Duration::from_secs(3), client.inspect(&lock())).await;
            seen.expect("it does not wait").unwrap();
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(gateway.keys(), ["Bearer lgx_1"; 3]);
        assert_eq!(gateway.tokens().len(), 2);
    }

    #[tokio::test]
    async fn a_refused_token_is_not_sent_twice_and_a_new_one_at_once() {
        let gateway = Gateway::start(
            |number| match number {
                1 => problem(
                    401,
                    "unauthorized",
                    "The ID token is refused (no key matches).",
                ),
                number => key(number, 3_600_000),
            },
            free,
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "first").unwrap();
        let client = gateway.client(IdToken::file(&path));
        for _ in 0..2 {
            let error = client.inspect(&lock()).await.unwrap_err();
            assert!(matches!(error, ClientError::Refused(_)), "{error}");
            assert!(error.to_string().contains("(no key matches)"), "{error}");
        }
        assert_eq!(gateway.tokens(), ["first"]);
        fs::write(&path, "second").unwrap();
        client.inspect(&lock()).await.unwrap();
        assert_eq!(gateway.tokens(), ["first", "second"]);
    }

    #[tokio::test]
    async fn an_expired_token_that_nothing_renews_says_what_to_do() {
        let expired = "The ID token is refused (time): it has expired.";
        let gateway = Gateway::start(move |_| problem(401, "unauthorized", expired), free);
        let error = gateway.client(IdToken::new("t")).inspect(&lock()).await;
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains(expired) && text.contains("LATCHGATE_ID_TOKEN_FILE"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn without_a_token_nothing_is_sent() {
        let gateway = Gateway::start(|number| key(number, 1), free);
        let missing = gateway.client(IdToken::file("/nowhere/token"));
        let error = missing.inspect(&lock()).await.unwrap_err().to_string();
        assert!(
            error.contains("cannot read the ID token from /nowhere/token"),
            "{error}"
        );
        let empty = gateway.client(IdToken::new(" ")).inspect(&lock()).await;
        assert!(empty.unwrap_err().to_string().contains("is empty"));
        assert!(gateway.seen().is_empty());
    }

    #[tokio::test]
    async fn an_issuer_that_is_away_is_asked_for_again_and_leaves_nothing_in_doubt() {
        let exchange = |number| match number {
            1 => problem(503, "issuer-unavailable", "away"),
            2 => (502, "<html>".to_owned()),
            number => key(number, 3_600_000),
        };
        let lost = |_: &str| problem(410, "lease-lost", "gone");
        let gateway = Gateway::start(exchange, lost);
        let client = gateway.client(IdToken::new("t"));
        let token = crate::Token::random();
        let lease = client.renew(&lock(), &token, None).await;
        let error = lease.unwrap_err();
        assert!(matches!(error, ClientError::Lost(_)), "{error}");
        assert_eq!(gateway.tokens().len(), 3);
    }
}
