//! What a Redis never answers: of the wrong kind, too long, nested, cut, out of order, unasked.

use std::time::Duration;

use latchgate::lifecycle::Lifecycle;
use tokio::io::AsyncWriteExt;
use tokio::{net::TcpStream, time::timeout};

use crate::support::{RedisServer, eventually, gateway::Setup};

use super::{
    answer::Answer,
    bench::Bench,
    resp_server::{Lie, RespServer, VICTIM},
    sample::sample,
};

/// Replies that are none of ours, or no RESP.
const REPLIES: [&str; 46] = [
    "+OK\r\n",
    "+\r\n",
    ":1\r\n",
    ":9223372036854775808\r\n",
    ":-\r\n",
    ":\r\n",
    "$-1\r\n",
    "$-2\r\n",
    "$0\r\n\r\n",
    "$3\r\nabcd\r\n",
    "$x\r\n",
    "$536870912\r\nabc",
    "$99999999999999999999\r\n",
    "$9223372036854775807\r\n",
    "*-1\r\n",
    "*-2\r\n",
    "*0\r\n",
    "*1\r\n$-1\r\n",
    "*x\r\n",
    "*2147483647\r\n",
    "*9223372036854775807\r\n",
    "*1000000\r\n:1\r\n",
    "-\r\n",
    "-ERR\r\n",
    "-NOSCRIPT No matching script\r\n",
    "-WRONGTYPE x\r\n",
    "-x\u{1b}[31m\u{9b}1m\u{202e}\r\n",
    "-ERR unknown command 'EVALSHA', with args beginning with: 's3cret-planted-7c0d9d0a2b514f0e'\r\n",
    "-MOVED\r\n",
    "-MOVED 99999 x:y\r\n",
    "-ASK 1\r\n",
    "-MOVED 1 127.0.0.1:1\r\n",
    "_\r\n",
    "#t\r\n",
    ",nan\r\n",
    ",inf\r\n",
    "(99999999999999999999999999999999\r\n",
    "~1\r\n:1\r\n",
    "%1\r\n+a\r\n:1\r\n",
    "=3\r\ntxt\r\n",
    "!3\r\nERR\r\n",
    ">2\r\n+message\r\n+x\r\n",
    "|1\r\n+a\r\n:1\r\n:2\r\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "\r\n\r\n",
    "\u{0}\u{0}\u{0}\u{0}",
];
/// Replies in the form of our own, with fields that none of our scripts gives. They stand for lists of
/// texts (`t:`), numbers (`i:`) and empty lists (`l`).
const FIELDS: [&str; 40] = [
    "t:granted",
    "t:granted t:{echo}",
    "t:granted t:{echo} l",
    "t:granted t:{echo} l i:0 i:-1",
    "t:granted t:{echo} l i:-1 i:-1",
    "t:granted t:{echo} l i:9007199254740992 i:-1",
    "t:granted t:{echo} l i:9223372036854775807 i:-1",
    "t:granted t:{echo} l t:5 i:-1",
    "t:granted t:{echo} i:5 i:5 i:-1",
    "t:granted t:x l i:5 i:-1",
    "t:granted t:0000000000000000000000000000000000000000000000000000000000000000 l i:5 i:-1",
    "i:1 t:{echo} l i:5 i:-1",
    "t:GRANTED t:{echo} l i:5 i:-1",
    "t: t:{echo} l",
    "l l l l",
    "t:again t:{echo} l i:5 i:0 i:1000 i:0 i:-1 t: t:",
    "t:again t:{echo} l i:5 i:1000 i:-5 i:0 i:-1 t: t:",
    "t:again t:{echo} l i:5 i:1000 i:1000 i:-1 i:-1 t: t:",
    "t:again t:{echo} l i:5 i:1000 i:1000 i:0 i:-2 t: t:",
    "t:again t:{echo} l i:5 i:1000 i:1000 i:0 i:-1 t:\u{7f} t:",
    "t:again t:{echo} l i:5 i:1000 i:1000 i:0 i:-1 t: t:{",
    "t:again t:{echo} l i:5 i:1000 i:1000 i:0 i:-1 t: t:[]",
    "t:again t:{echo} l i:5 i:1000 i:1000 i:0 i:-1 t: t:{\"a\":1}",
    "t:replayed t:{echo} l i:5 i:1000 i:1000 i:0 i:-1 t: t: t:x",
    "t:held t:{echo} l i:-1 t:foreign i:5",
    "t:held t:{echo} l i:0 t:nobody",
    "t:held t:{echo} l i:0 t:held i:5",
    "t:queued t:{echo} l i:-1 i:0 t:passing",
    "t:clock t:{echo} l",
    "t:clock t:{echo} l t:x",
    "t:layout t:{echo} l",
    "t:released t:{echo}",
    "t:broken t:{echo} l i:2",
    "t:left t:{echo} l",
    "t:superseded t:{echo}",
    "t:granted t:{echo} l5",
    "t:held t:{echo} l i:0 t:foreign i:9223372036854775807",
    "t:held t:{echo} l i:9223372036854775807 t:foreign i:1000",
    "t:again t:{echo} l i:5 i:86400000 i:9223372036854775807 i:9223372036854775807 i:9223372036854775807 t: t:",
    "t:again t:{echo} l i:5 i:86400000 i:300000000000000 i:0 i:300000000000000 t: t:",
];

/// The reply that a line of [`FIELDS`] stands for.
fn reply(line: &str) -> Vec<u8> {
    let words: Vec<_> = line.split(' ').collect();
    let mut reply = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let text = match word.split_at(1) {
            ("l", "") => "*0\r\n".to_owned(),
            ("l", _) => "*1\r\n*1\r\n$4\r\nmore\r\n".to_owned(),
            ("i", number) => format!("{number}\r\n"),
            (_, ":{echo}") => "$64\r\n{echo}\r\n".to_owned(),
            (_, text) => format!("${}\r\n{}\r\n", text.len() - 1, &text[1..]),
        };
        reply.extend_from_slice(text.as_bytes());
    }
    reply
}

fn lies() -> Vec<Lie> {
    let nested = |depth: usize| "*1\r\n".repeat(depth).into_bytes();
    let instead = REPLIES.iter().map(|reply| reply.as_bytes().to_vec());
    let fields = FIELDS.iter().map(|line| reply(line));
    let mut lies: Vec<_> = instead
        .chain(fields)
        .chain([nested(10), nested(100), nested(10_000)])
        .chain([b"x".repeat(1 << 20), b":1\r\n".repeat(10_000)])
        .map(Lie::Instead)
        .collect();
    for unasked in ["+OK\r\n", "*0\r\n", ">1\r\n+x\r\n", "-ERR x\r\n"] {
        lies.push(Lie::Before(unasked.into()));
        lies.push(Lie::Behind(unasked.into()));
    }
    lies.extend([0, 1, 4, 20, 80].map(Lie::Cut));
    lies
}

/// What is asked while the server lies; the lock may be anybody's.
const ASKED: [(&str, &str); 4] = [
    ("POST /locks/victim", ""),
    ("GET /locks/victim", ""),
    (
        "PUT /locks/victim/renew",
        "Lock-Token: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
    ),
    (
        "DELETE /locks/victim",
        "Lock-Token: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n",
    ),
];

async fn ask(bench: &Bench, line: &str, header: &str) -> Answer {
    let mut stream = TcpStream::connect(bench.gateway.address).await.unwrap();
    // Where a release is not answered, the gateway counts the lease until it is over.
    let body = if line.starts_with("POST") {
        "{\"ttl_ms\": 1000}"
    } else {
        ""
    };
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{header}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    // The deadline of the store, and what its reaper does.
    let answer = timeout(Duration::from_mins(1), Answer::read_whole(&mut stream)).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer to {line}"));
    answer.unwrap_or_else(|error| panic!("{line}: {error}"))
}

async fn lied_to(number: usize, told: &Lie, bench: &Bench, server: &RespServer) {
    let (line, header) = ASKED[number % ASKED.len()];
    server.lie(Some(told.clone()));
    let answer = ask(bench, line, header).await;
    assert!(server.told() > 0, "{line}: it was not asked");
    server.lie(None);
    let shown = format!("{line} {told:?}");
    assert!(!answer.body.contains("s3cret"), "{shown}: {answer:?}");
    if answer.status >= 400 {
        let code = answer.problem();
        assert_ne!(code, "internal", "{shown}: {answer:?}");
    }
    if answer.status == 201 {
        // The truth was told as well, or a lie that nobody can tell from it.
        let token = format!(
            "Lock-Token: {}\r\n",
            answer.json()["token"].as_str().unwrap()
        );
        let released = eventually("the release is answered", || async {
            let released = ask(bench, &format!("DELETE /locks/{VICTIM}"), &token).await;
            // The store has but half a second here, which may be too little for a busy machine.
            (!matches!(released.status, 503 | 504)).then_some(released)
        })
        .await;
        assert!(
            matches!(released.status, 204 | 410),
            "{shown}: {released:?}"
        );
    }
    // The truth is believed again, and a lock that was perhaps granted is given back.
    let again = format!("after {shown}: the lock can be taken again");
    eventually(&again, || async {
        let acquired = ask(bench, &format!("POST /locks/{VICTIM}"), "").await;
        if acquired.status != 201 {
            return None;
        }
        let lease = acquired.json();
        let token = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
        let released = ask(bench, &format!("DELETE /locks/{VICTIM}"), &token).await;
        (released.status == 204).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reply_of_the_store_ends_the_gateway_or_grants_a_lock() {
    let redis = RedisServer::start().await;
    let lifecycle = Lifecycle::new();
    let server = RespServer::before(redis.port(), &lifecycle).await;
    let setup = Setup::default()
        .with("LATCHGATE_STORE", &server.url())
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "300")
        .with("LATCHGATE_REDIS_DEADLINE_MS", "500");
    let bench = Bench::start_with(setup, "").await;
    let lies = lies().into_iter().enumerate().collect();
    for (number, lie) in &sample(lies, 12) {
        // Each is told to one who acquires, and to one of the others.
        lied_to(0, lie, &bench, &server).await;
        lied_to(1 + number % 3, lie, &bench, &server).await;
    }
    bench.unharmed().await;
}
