//! The program on the Redis store.

use crate::support::{
    RedisServer, eventually,
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
async fn that_redis_was_started_anew_is_said_when_it_was_and_not_when_the_gateway_was() {
    let mut server = RedisServer::start_with(&["--requirepass", "s3cret"]).await;
    let setup = on(server.port()).with("LATCHGATE_LOG_LEVEL", "debug");
    let gateway = Gateway::start_with(setup);
    let said = || gateway.log().matches("was started anew").count();
    eventually("the server is known", async || {
        gateway.log().contains("is known now").then_some(())
    })
    .await;
    server.kill();
    server.start_again().await;
    eventually("it is said", async || (said() > 0).then_some(())).await;
    assert_eq!(said(), 1, "{}", gateway.log());
}
