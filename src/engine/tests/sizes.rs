//! What those who wait cost: there may be ten thousand of them, and a future keeps twice what is moved
//! into it. `benches/README.md` has the whole of it.

use std::{future::pending, mem::size_of_val};

use tokio::sync::oneshot;

use super::scripted_store::*;
use crate::engine::attempt::Run;

#[tokio::test(start_paused = true)]
async fn an_attempt_is_in_its_futures_once() {
    let store = ScriptedStore::queueing();
    let (engine, _lifecycle) = engine(&store);
    let caller = engine.acquire_telling(waiting_request(None), || {});
    assert!(size_of_val(&caller) <= 640, "{}", size_of_val(&caller));
    let (say_queued, _) = oneshot::channel();
    let mut run = Run::new(&engine.0, waiting_request(None), Some(say_queued));
    assert!(size_of_val(&run) <= 640, "{}", size_of_val(&run));
    let attempt = run.in_queue(pending());
    assert!(size_of_val(&attempt) <= 1_024, "{}", size_of_val(&attempt));
}
