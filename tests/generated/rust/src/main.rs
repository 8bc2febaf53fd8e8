//! Takes a lock through its life with the client that oas3-gen makes: `generated URL`.

// What the generator writes is its own matter.
#[allow(warnings)]
mod client;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use client::*;

const NAME: &str = "generated/rust";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).expect("the URL of a gateway");
    let client = LatchgateClient::with_base_url(url)?;
    // A body may be left out, and so may each field of it.
    let ask = async |body| {
        let request = AcquireLockRequest::builder().name(NAME.to_owned());
        client.acquire_lock(request.maybe_body(body).build()?).await
    };
    let AcquireLockResponse::Created(lease) = ask(None).await? else {
        bail!("not granted");
    };
    ensure!(lease.fencing_token > 0);
    match ask(Some(AcquireBody::default())).await? {
        AcquireLockResponse::Locked(problem) => {
            ensure!(problem.code == ProblemCode::Locked && problem.status == 423);
            ensure!(problem.holders.as_ref().is_some_and(|it| !it.is_empty()));
        }
        other => bail!("not refused: {other:?}"),
    }
    let renew = async |token: &str| {
        let body = RenewBody {
            ttl_ms: Some(60_000),
            ..RenewBody::default()
        };
        let request = RenewLockRequest::builder()
            .name(NAME.to_owned())
            .lock_token(token.to_owned())
            .body(body);
        client.renew_lock(request.build()?).await
    };
    match renew(&lease.token).await? {
        RenewLockResponse::Ok(renewed) => ensure!(renewed.ttl_ms == 60_000),
        other => bail!("not renewed: {other:?}"),
    }
    let list = ListLocksRequest::builder().prefix("generated/".to_owned());
    match client.list_locks(list.build()?).await? {
        ListLocksResponse::Ok(page) => ensure!(page.locks.iter().any(|lock| lock.name == NAME)),
        other => bail!("not listed: {other:?}"),
    }
    let body = AcquireBody {
        wait_ms: Some(25_000),
        ..AcquireBody::default()
    };
    let release = async |token: &str| {
        let request = ReleaseLockRequest::builder()
            .name(NAME.to_owned())
            .lock_token(token.to_owned());
        match client.release_lock(request.build()?).await? {
            ReleaseLockResponse::NoContent => Ok(()),
            other => bail!("not released: {other:?}"),
        }
    };
    let hand_over = async {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let request = InspectLockRequest::builder().name(NAME.to_owned());
            match client.inspect_lock(request.build()?).await? {
                InspectLockResponse::Ok(lock) if lock.waiter_count == 1 => break,
                other => ensure!(Instant::now() < deadline, "nobody waits: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        release(&lease.token).await
    };
    let (waited, released) = tokio::join!(ask(Some(body)), hand_over);
    released?;
    let AcquireLockResponse::Created(next) = waited? else {
        bail!("the wait did not end with a lease");
    };
    ensure!(next.fencing_token > lease.fencing_token);
    match renew(&lease.token).await? {
        RenewLockResponse::Gone(problem) => ensure!(problem.code == ProblemCode::LeaseLost),
        other => bail!("not lost: {other:?}"),
    }
    release(&next.token).await
}
