//! A real gateway with a held lock: the cases, how they are sent, and what must be true after them.

use std::{collections::BTreeMap, io};

use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Duration, Instant, error::Elapsed, sleep, timeout},
};

use crate::support::{
    Random, eventually, full,
    gateway::{Gateway, Setup},
};

/// A gateway under attack.
pub(super) struct Bench {
    pub(super) gateway: Gateway,
    /// Texts that must not be in the log.
    secrets: Vec<String>,
    /// The lease of the lock that is held during the test.
    held: Value,
    /// The authorization header of the bench's own requests.
    authorization: String,
    gauges: BTreeMap<String, String>,
    began: usize,
}

/// The name of the lock that is held during the test.
pub(super) const HELD: &str = "witness";
/// A text that stands for a secret, wherever it is sent.
pub(super) const PLANTED: &str = "s3cret-planted-7c0d9d0a2b514f0e";
/// One in this many cases is tried, except with `--full`.
const EVERY: usize = 3;
/// How soon a request must be refused: a hundred times the usual time, for a busy machine, and less than any time-out
/// of the gateway.
const PROMPTLY: Duration = Duration::from_secs(1);
/// For how long no answer may come before a request counts as incomplete.
const A_WHILE: Duration = Duration::from_secs(1);
/// The gauges that callers can change.
const GAUGES: [&str; 5] = [
    "latchgate_waiters",
    "latchgate_held_streams",
    "latchgate_event_streams",
    "latchgate_leases",
    "latchgate_shared_leases",
];

// === impl Bench ===

impl Bench {
    pub(super) async fn start() -> Self {
        Self::start_with(Setup::default(), "").await
    }

    /// A gateway whose bench sends these headers with its own requests, each with its line end.
    pub(super) async fn start_with(setup: Setup, authorization: &str) -> Self {
        let setup = setup
            // The limit of refused requests must not hide the other refusals.
            .with("LATCHGATE_AUTH_MAX_REFUSED_PER_MINUTE", "1000000")
            .with("LATCHGATE_LOG_LEVEL", "debug");
        let mut bench = Self {
            gateway: Gateway::start_with(setup),
            secrets: vec![PLANTED.to_owned()],
            held: Value::Null,
            authorization: authorization.to_owned(),
            gauges: BTreeMap::new(),
            began: 0,
        };
        let body = "{\"ttl_ms\":3600000}";
        let line = format!("POST /locks/{HELD}");
        let granted = bench
            .ask(&line, "Content-Type: application/json\r\n", body)
            .await;
        assert_eq!(granted.status, 201, "{granted:?}");
        bench.held = granted.json();
        let token = bench.token().to_owned();
        bench.keep_secret(&token);
        bench.gauges = bench.read_gauges().await;
        bench.began = bench.gateway.open_files();
        bench
    }

    /// The token of the held lock.
    pub(super) fn token(&self) -> &str {
        self.held["token"].as_str().unwrap()
    }

    pub(super) fn keep_secret(&mut self, text: &str) {
        self.secrets.push(text.to_owned());
    }

    /// Sends a sample of the cases, one after the other, each on a new connection.
    pub(super) async fn run(&self, cases: Vec<Case>) {
        let mut times = Vec::new();
        // The valid cases are always in the sample: otherwise a gateway that refuses everything would pass.
        let is_right = |case: &Case| case.expected == Expected::Granted;
        for case in &sample_and(cases, EVERY, is_right) {
            let began = Instant::now();
            let answer = match case.expected {
                Expected::Declined | Expected::Sane => self.send_in_part(&case.bytes).await,
                _ => self.send(&case.bytes).await,
            };
            times.push(began.elapsed());
            self.judge(case, answer).await;
        }
        times.sort_unstable();
        // The median, because single times depend on the machine and its disk.
        let median = times[times.len() / 2];
        assert!(
            median < PROMPTLY,
            "half of them take longer than {median:?}"
        );
        self.unharmed().await;
    }

    /// Sends some bytes and reads the answer.
    pub(super) async fn send(&self, bytes: &[u8]) -> Option<RawResponse> {
        RawResponse::read(&mut self.sent(bytes).await).await
    }

    /// Sends bytes that may be an incomplete request, and nothing after them.
    async fn send_in_part(&self, bytes: &[u8]) -> Option<RawResponse> {
        let mut stream = self.sent(bytes).await;
        match RawResponse::read_within(A_WHILE, &mut stream).await {
            Ok(answer) => answer,
            Err(_it_waits_for_more) => {
                drop(stream.shutdown().await);
                RawResponse::read(&mut stream).await
            }
        }
    }

    async fn sent(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        // The gateway may answer and close the connection before it has read everything.
        drop(stream.write_all(bytes).await);
        stream
    }

    /// Sends a request of the bench itself.
    pub(super) async fn ask(&self, line: &str, headers: &str, body: &str) -> RawResponse {
        let who = &self.authorization;
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{who}{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = self.send(request.as_bytes()).await;
        answer.unwrap_or_else(|| panic!("no answer to {line}"))
    }

    async fn judge(&self, case: &Case, answer: Option<RawResponse>) {
        let Case { what, expected, .. } = case;
        let Some(answer) = answer else {
            let may_close = matches!(expected, Expected::Declined | Expected::Sane);
            assert!(may_close, "no answer: {what}");
            return self.nothing_granted(what).await;
        };
        assert!(answer.status < 500, "{what}: {answer:?}");
        for secret in &self.secrets {
            assert!(!answer.body.contains(secret.as_str()), "{what}: {answer:?}");
        }
        if answer.status >= 400 && !what.starts_with("HEAD ") && !is_bare(case, &answer) {
            let code = answer.problem();
            if let Expected::Refused(status, expected) = *expected {
                assert_eq!((answer.status, code.as_str()), (status, expected), "{what}");
            }
        }
        match *expected {
            Expected::Refused(status, _) | Expected::Answered(status) => {
                assert_eq!(answer.status, status, "{what}: {answer:?}");
            }
            Expected::Declined => assert!(answer.status >= 400, "{what}: {answer:?}"),
            Expected::Granted => {
                assert_eq!(answer.status, 201, "{what}: {answer:?}");
                self.release(&answer.json()).await;
            }
            Expected::Sane => {
                if answer.status == 201 {
                    self.release(&answer.json()).await;
                }
            }
        }
        self.nothing_granted(what).await;
    }

    pub(super) async fn release(&self, lease: &Value) {
        let name = lease["name"].as_str().unwrap().replace('/', "%2F");
        let line = format!("DELETE /locks/{name}");
        let token = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
        let released = self.ask(&line, &token, "").await;
        assert_eq!(released.status, 204, "{released:?}");
    }

    /// Asserts that the held lock has its lease, and that no other lock is held. A lock that was just released may rest
    /// for a millisecond.
    async fn nothing_granted(&self, after: &str) {
        let mut listed = self.list().await;
        if !self.is_held_alone(&listed) {
            sleep(Duration::from_millis(5)).await;
            listed = self.list().await;
        }
        assert!(self.is_held_alone(&listed), "{after}: {listed}");
    }

    async fn list(&self) -> Value {
        self.ask("GET /locks", "", "").await.json()
    }

    fn is_held_alone(&self, listed: &Value) -> bool {
        let locks = listed["locks"].as_array().unwrap();
        let is_held = |lock: &Value| {
            let (holder, fence) = (&lock["holders"][0], &self.held["fencing_token"]);
            lock["name"] == HELD && holder["fencing_token"] == *fence && holder["owner"].is_null()
        };
        locks.len() == 1 && locks.iter().all(is_held)
    }

    /// Asserts that the lease still belongs to the bench, and that no other caller has left anything.
    pub(super) async fn unharmed(&self) {
        // Requests of closed connections may still be on their way.
        eventually("one lock is held, as it was", || async {
            self.is_held_alone(&self.list().await).then_some(())
        })
        .await;
        for (gauge, value) in &self.gauges {
            let what = format!("{gauge} is {value} again");
            eventually(&what, || async {
                (self.read_gauges().await[gauge] == *value).then_some(())
            })
            .await;
        }
        eventually("every file is closed", || async {
            (self.gateway.open_files() <= self.began).then_some(())
        })
        .await;
        let header = format!("Lock-Token: {}\r\n", self.token());
        let line = format!("PUT /locks/{HELD}/renew");
        let renewed = self.ask(&line, &header, "").await;
        assert_eq!(renewed.status, 200, "{renewed:?}");
        let log = self.gateway.log();
        assert!(!log.contains("panicked"), "{log}");
        for line in log.lines() {
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
            for secret in &self.secrets {
                assert!(!line.contains(secret.as_str()), "{line}");
            }
        }
    }

    async fn read_gauges(&self) -> BTreeMap<String, String> {
        let mut stream = TcpStream::connect(self.gateway.address).await.unwrap();
        let who = &self.authorization;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{who}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let scraped = RawResponse::read(&mut stream).await.unwrap();
        assert_eq!(scraped.status, 200, "{scraped:?}");
        let samples = scraped.body.lines().filter_map(|line| line.split_once(' '));
        let ours = samples.filter(|(name, _)| GAUGES.contains(name));
        let gauges: BTreeMap<_, _> = ours
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(gauges.len(), GAUGES.len(), "{}", scraped.body);
        gauges
    }
}

/// Whether a connection without valid HTTP was refused with an empty answer.
fn is_bare(case: &Case, answer: &RawResponse) -> bool {
    let may_be = matches!(case.expected, Expected::Declined | Expected::Sane);
    may_be && answer.body.is_empty() && answer.header("connection") == Some("close")
}

/// A request as bytes for the connection.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// What a failure of the case prints.
    pub(super) what: String,
    pub(super) bytes: Vec<u8>,
    pub(super) expected: Expected,
}

/// The answer that a case must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// A problem with this status and code.
    Refused(u16, &'static str),
    /// Any problem with a status below 500, or a connection that is closed without an answer.
    Declined,
    /// This status.
    Answered(u16),
    /// A lease, which the bench releases again.
    Granted,
    /// Any of the above: the input may be valid by chance.
    Sane,
}

/// The answer to a request that can be read but is wrong.
pub(super) const INVALID: Expected = Expected::Refused(400, "invalid-request");

// === impl Case ===

impl Case {
    /// A request with a JSON body, or without a body if it is empty.
    pub(super) fn new(
        line: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        expected: Expected,
    ) -> Self {
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let mut bytes = format!("{line} HTTP/1.1\r\n").into_bytes();
        let has = |wanted: &str| {
            headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        if !has("host") {
            bytes.extend_from_slice(b"Host: localhost\r\n");
        }
        if !body.is_empty() && !has("content-type") {
            bytes.extend_from_slice(b"Content-Type: application/json\r\n");
        }
        for (name, value) in headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        Self {
            what: format!("{line} {headers:?} {shown}"),
            bytes,
            expected,
        }
    }

    /// A request with only its line.
    pub(super) fn bare(line: impl AsRef<str>, expected: Expected) -> Self {
        Self::new(line.as_ref(), &[], b"", expected)
    }

    /// A request with one header.
    pub(super) fn with(line: impl AsRef<str>, header: (&str, &str), expected: Expected) -> Self {
        Self::new(line.as_ref(), &[header], b"", expected)
    }

    /// A request with a body.
    pub(super) fn body(line: impl AsRef<str>, body: impl AsRef<[u8]>, expected: Expected) -> Self {
        Self::new(line.as_ref(), &[], body.as_ref(), expected)
    }

    /// Bytes that may not be a request.
    pub(super) fn raw(bytes: impl Into<Vec<u8>>, expected: Expected) -> Self {
        let bytes = bytes.into();
        Self {
            what: bytes[..bytes.len().min(400)].escape_ascii().to_string(),
            bytes,
            expected,
        }
    }

    /// An acquire of `a` with a body.
    pub(super) fn acquire(body: impl AsRef<[u8]>, expected: Expected) -> Self {
        Self::new("POST /locks/a", &[], body.as_ref(), expected)
    }
}

/// An answer, as it was received.
#[derive(Debug)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    /// The head, in lower case.
    head: String,
    pub(super) body: String,
}

/// More time than a machine needs that does other work.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

// === impl RawResponse ===

impl RawResponse {
    /// Reads an answer; none if the connection is closed before the answer begins.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let answer = Self::read_within(TIMEOUT, from).await;
        answer.expect("it is answered or closed")
    }

    /// Reads an answer within this time.
    pub(super) async fn read_within(
        time: Duration,
        from: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Self>, Elapsed> {
        let answer = timeout(time, Self::read_whole(from)).await?;
        // The connection may be closed in any way.
        Ok(answer.ok())
    }

    pub(super) async fn read_whole(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        loop {
            let head = head(from).await?;
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            let mut answer = Self {
                status: status.unwrap_or_else(|| panic!("no status: {head}")),
                head,
                body: String::new(),
            };
            if answer.status == 100 {
                continue;
            }
            if let Some(length) = answer.header("content-length") {
                let mut body = vec![0; length.parse().unwrap()];
                // The answer to HEAD states a length and has no body; then the connection is closed.
                if from.read_exact(&mut body).await.is_ok() {
                    answer.body = String::from_utf8(body).unwrap();
                }
            }
            return Ok(answer);
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(field, value)| (field == name).then_some(value))
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a well-formed problem document.
    pub(super) fn problem(&self) -> String {
        let media = self.header("content-type");
        assert_eq!(media, Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{self:?}");
        let id = body["request_id"].as_str().unwrap();
        let sent = self.header("x-request-id");
        assert_eq!(Some(id.to_ascii_lowercase().as_str()), sent, "{self:?}");
        for member in ["title", "detail"] {
            let text = body[member].as_str().unwrap();
            assert!(
                !text.is_empty() && !text.contains(char::is_control),
                "{self:?}"
            );
        }
        let code = body["code"].as_str().unwrap().to_owned();
        let of_list = latchgate::http::ProblemCode::from_slug(&code);
        assert_eq!(
            of_list.map(|code| code.status().as_u16()),
            Some(self.status)
        );
        assert_eq!(body["type"], format!("/problems/{code}"));
        code
    }
}

async fn head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(from.read_u8().await?);
    }
    Ok(String::from_utf8(bytes).unwrap().to_ascii_lowercase())
}

/// One in `every` cases, starting at a random case. Prints their number, and how to repeat the sample.
pub(super) fn sample<T>(cases: Vec<T>, every: usize) -> Vec<T> {
    sample_and(cases, every, |_| false)
}

/// A sample of the cases, and all cases for which `always` is true.
#[expect(clippy::print_stdout, reason = "this is not the program but its tests")]
pub(super) fn sample_and<T>(cases: Vec<T>, every: usize, always: impl Fn(&T) -> bool) -> Vec<T> {
    let all = cases.len();
    if full() {
        println!("all {all} cases");
        return cases;
    }
    let mut random = Random::seeded();
    let from = random.below(every);
    let chosen = |&(at, ref case): &(usize, T)| at % every == from || always(case);
    let numbered = cases.into_iter().enumerate().filter(chosen);
    let chosen: Vec<_> = numbered.map(|(_, case)| case).collect();
    println!(
        "{} of {all} cases, {}",
        chosen.len(),
        random.how_to_repeat()
    );
    chosen
}
