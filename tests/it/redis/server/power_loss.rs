//! The machine of the server loses power, so that the end of its log is missing; or an old log is restored.

use std::{fs, path::PathBuf};

use crate::redis::prelude::*;

/// The file of the server's log of commands.
pub(crate) fn log(server: &RedisServer) -> PathBuf {
    let directory = server.directory().join("appendonlydir");
    directory.join("appendonly.aof.1.incr.aof")
}

pub(crate) fn length(server: &RedisServer) -> u64 {
    fs::metadata(log(server)).unwrap().len()
}

/// Kills the server, cuts its log at a position, and starts it again.
pub(crate) async fn lose_the_end(server: &mut RedisServer, at: u64) {
    server.kill();
    assert!(at < length(server), "the fault happens");
    let file = fs::File::options().write(true).open(log(server)).unwrap();
    file.set_len(at).unwrap();
    read_again(server).await;
}

/// Starts the server again and waits until it has read its log.
pub(crate) async fn read_again(server: &mut RedisServer) {
    server.start_again().await;
    // The server already answers while it reads its data.
    until("it has read what is left", async || {
        let pong = server.try_run(&["GET", "nothing"]).await;
        pong == Some(Value::Nil)
    })
    .await;
}

#[tokio::test]
async fn what_was_granted_in_the_end_that_is_missing_is_free_and_its_fence_is_passed() {
    let mut rig = Rig::on(RedisServer::start_logged().await);
    let (kept, lost) = (attempt("kept"), attempt("lost"));
    let first = rig.grant(&kept).await;
    let before = length(&rig.server);
    let forgotten = rig.grant(&lost).await;
    let after = length(&rig.server);
    // The cut is in the middle of what the grant has written, so none of it counts.
    lose_the_end(&mut rig.server, before + (after - before) / 2).await;
    let fresh = open(&rig.server.url());
    fresh.must_refuse(&attempt("kept")).await;
    let renewal = fresh.renew(&kept.name, &kept.token, None).await;
    assert!(matches!(&renewal, Ok(Renewal::Renewed(lease, _)) if lease.fence == first.fence));
    fresh.must_lose(&lost, Loss::Free).await;
    // The acquire uses a gateway that has never heard of the lost grant.
    let next = granted(fresh.acquire(&attempt("lost")).await);
    assert!(next.fence > forgotten.fence);
    rig.must_not_release(&lost, Loss::HeldByAnother).await;
}

#[tokio::test]
async fn a_release_that_is_missing_passes_the_lock_on_when_its_lease_ends() {
    let mut server = RedisServer::start_logged().await;
    let gate = TestGateway::on(&server).await;
    let lease = gate.take_for("release", 2_000).await;
    let asked = gate.queue(request("release")).await;
    let before = length(&server);
    let forgotten = gate.pass(&lease, asked).await;
    lose_the_end(&mut server, before + 1).await;
    // The lock was held by the lease before, which was released; the position of the attempt that was granted the lock
    // is back.
    let next = gate.ask(request("release")).lease().await;
    assert!(next.held.fence > forgotten.held.fence);
    let token = forgotten.token.hash();
    let release = gate.store.release(&forgotten.name, &token);
    assert_eq!(release.await, Ok(Release::Lost(Loss::HeldByAnother)));
    gate.release(&next).await;
}

#[tokio::test]
async fn a_backup_that_is_restored_brings_back_old_locks_and_no_old_fence() {
    let mut rig = Rig::on(RedisServer::start_logged().await);
    let (old, new) = (attempt("lock"), attempt("lock"));
    rig.grant(&old).await;
    let backup = fs::read(log(&rig.server)).unwrap();
    rig.must_release(&old).await;
    let current = rig.grant(&new).await;
    rig.server.kill();
    fs::write(log(&rig.server), backup).unwrap();
    rig.server.start_again().await;
    let fresh = open(&rig.server.url());
    eventually("it has read the backup", async || {
        fresh.inspect(&old.name).await.ok()
    })
    .await;
    // The lock is held as in the backup, and the current holder is told that its lease is lost.
    fresh.must_lose(&new, Loss::HeldByAnother).await;
    fresh.break_lock(&old.name, None).await.unwrap();
    let next = granted(fresh.acquire(&attempt("lock")).await);
    assert!(next.fence > current.fence);
}
