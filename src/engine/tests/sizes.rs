//! The memory that waiters take: there may be ten thousand of them, and a future stores twice what is moved into it.
//! See `benches/README.md`.

use std::{future::pending, mem::size_of_val};

use tokio::sync::oneshot;

use crate::engine::acquire::AcquireAttempt;

use super::scripted_store::*;

#[tokio::test(start_paused = true)]
async fn an_attempt_is_in_its_futures_once() {
    let (_, engine) = engine_on(ScriptedStore::queueing());
    let caller = engine.acquire_with_queued_hook(waiting_request(None), || {});
    assert!(size_of_val(&caller) <= 640, "{}", size_of_val(&caller));
    let (queued_sender, _) = oneshot::channel();
    let run = AcquireAttempt::new(&engine.0, waiting_request(None), Some(queued_sender));
    let mut run = run.unwrap();
    assert!(size_of_val(&run) <= 640, "{}", size_of_val(&run));
    let attempt = run.run_queued(pending());
    assert!(size_of_val(&attempt) <= 1_088, "{}", size_of_val(&attempt));
}
