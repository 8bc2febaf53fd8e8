//! The program on the Redis store.

use std::collections::HashSet;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    Connection, HttpRequest, RedisServer, eventually,
    gateway::{Gateway, Setup},
    program::latchgate,
};

fn on(port: u16) -> Setup {
    Setup::default().with(
        "LATCHGATE_STORE",
        &format!("redis://:s3cret@127.0.0.1:{port}/0"),
    )
}

#[tokio::test]
async fn two_gateways_on_one_redis_are_one() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let (a, b) = (
        Gateway::start_with(on(server.port())),
        Gateway::start_with(on(server.port())),
    );
    let token = latchgate(&["acquire", "deploy", "--url", &a.url()]).read();
    assert_eq!(token.code, Some(0), "{token:?} {}", a.log());
    let held = latchgate(&["acquire", "deploy", "--url", &b.url()]).read();
    assert_eq!(held.code, Some(100), "{held:?} {}", b.log());
    let release = ["release", "deploy", "--url", &b.url()];
    let released = latchgate(&release)
        .env("LATCHGATE_TOKEN", token.out.trim_end())
        .read();
    assert_eq!(released.code, Some(0), "{released:?} {}", b.log());
    assert!(
        a.greeting.contains("store: Redis at redis://:***@"),
        "{}",
        a.greeting
    );
    assert!(!a.log().contains("s3cret"), "{}", a.log());
}

#[test]
fn a_gateway_starts_without_its_redis_and_says_that_nothing_happened() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let gateway = Gateway::start_with(on(port));
    let ran = latchgate(&["acquire", "deploy", "--url", &gateway.url()]).read();
    assert_eq!(ran.code, Some(104), "{ran:?} {}", gateway.log());
    assert!(
        !format!("{ran:?} {}", gateway.log()).contains("s3cret"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_restart_of_redis_is_logged_once_and_a_start_of_the_gateway_is_not() {
    let mut server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let setup = on(server.port()).with("LATCHGATE_LOG_LEVEL", "debug");
    let gateway = Gateway::start_with(setup);
    let said = || {
        gateway
            .log()
            .matches("everybody who waits asks again")
            .count()
    };
    eventually("the server is known", async || {
        gateway.log().contains("is known now").then_some(())
    })
    .await;
    server.kill();
    server.start_again().await;
    eventually("it is said", async || (said() > 0).then_some(())).await;
    assert_eq!(said(), 1, "{}", gateway.log());
}

#[tokio::test]
async fn while_redis_stands_still_nothing_is_in_doubt_that_was_only_to_be_read() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let setup = on(server.port())
        .with("LATCHGATE_REDIS_DEADLINE_MS", "500")
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "250");
    let gateway = Gateway::start_with(setup);
    let mut caller = Connection::new(TcpStream::connect(gateway.address).await.unwrap());
    for path in ["/locks/a", "/locks"] {
        let look = HttpRequest::new("GET", path.to_owned());
        // The first question after it has stopped goes over a connection that was good.
        while caller.ask(&look).await.unwrap().0 != 200 {}
        server.freeze();
        let (status, problem) = caller.ask(&look).await.unwrap();
        assert_eq!(
            (status, &problem["code"]),
            (503, &"store-unavailable".into()),
            "{problem}"
        );
        server.thaw();
    }
}

#[tokio::test]
async fn each_thread_sends_over_a_connection_of_its_own() {
    let server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let gateway = Gateway::start_with(on(server.port()).with("LATCHGATE_THREADS", "3"));
    // Each is given to the thread that serves the fewest.
    let mut callers = Vec::new();
    for _ in 0..3 {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        callers.push(Connection::new(stream));
    }
    let mut monitor = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let monitoring = b"AUTH s3cret\r\nMONITOR\r\n";
    monitor.write_all(monitoring).await.unwrap();
    let mut round = 0;
    // Until each thread has connected, it uses the connections of the others.
    loop {
        round += 1;
        for (number, caller) in callers.iter_mut().enumerate() {
            for _ in 0..3 {
                let path = format!("/locks/by-{number}-in-{round}");
                let answer = caller.ask(&HttpRequest::new("GET", path)).await.unwrap();
                assert_eq!(answer.0, 200, "{answer:?}");
            }
        }
        let mut seen = String::new();
        let last = format!("by-2-in-{round}");
        while seen.matches(&last).count() < 3 {
            let mut bytes = [0; 16_384];
            let read = monitor.read(&mut bytes).await.unwrap();
            assert!(read > 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let used = |number: usize| -> HashSet<&str> {
            let name = format!("by-{number}-in-{round}");
            let lines = seen.lines().filter(|line| line.contains(&name));
            let from = lines.filter_map(|line| line.split(['[', ']']).nth(1));
            from.filter(|from| !from.ends_with("lua")).collect()
        };
        let each: Vec<_> = (0..3).map(used).collect();
        let all: HashSet<_> = each.iter().flatten().collect();
        if each.iter().all(|own| own.len() == 1) && all.len() == 3 {
            return;
        }
        assert!(round < 1_000, "{seen}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
