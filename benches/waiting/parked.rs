//! Many that wait or hold, and what that costs while nothing happens.

use std::time::Duration;

use tokio::time::sleep;

use crate::rig::{Caller, Gateway, RedisServer};

const WAITERS: u64 = 10_000;
const HOLDS: u64 = 1_000;
/// How long nothing happens: several of the gateway's periods.
const IDLE: Duration = Duration::from_secs(8);
/// The most memory that one who waits may cost, in KiB.
const BAR_KIB: f64 = 20.0;

const LONG: &str = r#"{"ttl_ms":3600000}"#;
const WAIT: &str = r#"{"wait_ms":55000}"#;

/// All of them wait for the same lock.
pub(super) async fn on_one_name(redis: &RedisServer) -> bool {
    let gateway = Gateway::serving_a_crowd(&redis.url());
    let mut holder = Caller::connect(gateway.address()).await;
    let token = holder.acquire("parked", LONG).await;
    let names = (0..WAITERS).map(|_| "parked".to_owned());
    let small = idle(redis, &gateway, "on one name", names).await;
    holder.release("parked", &token).await;
    small
}

/// Each of them waits for a lock of its own.
pub(super) async fn on_a_name_each(redis: &RedisServer) -> bool {
    let gateway = Gateway::serving_a_crowd(&redis.url());
    let mut holder = Caller::connect(gateway.address()).await;
    for number in 0..WAITERS {
        holder.acquire(&format!("parked:{number}"), LONG).await;
    }
    let names = (0..WAITERS).map(|number| format!("parked:{number}"));
    idle(redis, &gateway, "on a name each", names).await
}

async fn idle(
    redis: &RedisServer,
    gateway: &Gateway,
    how: &str,
    names: impl Iterator<Item = String>,
) -> bool {
    let before = gateway.resident_kib();
    let mut waiters = Vec::new();
    for name in names {
        let mut waiter = Caller::connect(gateway.address()).await;
        waiter.start_acquire(&name, WAIT).await;
        waiters.push(waiter);
    }
    sleep(Duration::from_secs(2)).await;
    let each = (gateway.resident_kib() - before) as f64 / WAITERS as f64;
    let (commands, cpu) = (redis.commands().await, gateway.cpu());
    sleep(IDLE).await;
    let commands = (redis.commands().await - commands) as f64 / IDLE.as_secs_f64();
    let cpu = gateway.cpu().saturating_sub(cpu).as_secs_f64() / IDLE.as_secs_f64();
    println!(
        "  {how:<16} {each:>5.1} KiB each, {commands:>6.0} Redis commands/s, {:.1} % of a processor",
        100.0 * cpu
    );
    each <= BAR_KIB
}

/// Locks that are held by a stream each.
pub(super) async fn held(redis: &RedisServer) {
    let gateway = Gateway::serving_a_crowd(&redis.url());
    let before = gateway.resident_kib();
    let mut holds = Vec::new();
    for number in 0..HOLDS {
        let mut hold = Caller::connect(gateway.address()).await;
        hold.hold(&format!("held:{number}")).await;
        holds.push(hold);
    }
    let each = (gateway.resident_kib() - before) as f64 / HOLDS as f64;
    let (commands, cpu) = (redis.commands().await, gateway.cpu());
    // One third of the TTL: each is renewed once.
    let third = Duration::from_secs(10);
    sleep(third).await;
    let commands = (redis.commands().await - commands) as f64 / third.as_secs_f64();
    let cpu = gateway.cpu().saturating_sub(cpu).as_secs_f64() / third.as_secs_f64();
    println!(
        "  {each:.1} KiB each, {commands:.0} Redis commands/s, {:.1} % of a processor",
        100.0 * cpu
    );
}
