//! Many waiters for one lock.

use latchgate::store::contract::INSPECTED_WAITERS;

use crate::conformance::prelude::*;

pub(crate) async fn two_hundred_are_each_served_once(fixture: &dyn Fixture) {
    const CALLERS: usize = 200;
    let gateways = Arc::new(Gateways::start(fixture));
    let holder = gateways.hold("lock").await;
    // These values belong to no gateway: they show what the holders themselves see.
    let inside = Arc::new(AtomicBool::new(false));
    let served: Arc<Mutex<Vec<FencingToken>>> = Arc::default();
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (gateways, inside) = (Arc::clone(&gateways), Arc::clone(&inside));
        let served = Arc::clone(&served);
        callers.spawn(async move {
            let caller = gateways.ask(request("lock", "one of many"));
            let lease = caller.granted().await;
            assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
            served.lock().unwrap().push(lease.held.fence);
            tokio::task::yield_now().await;
            inside.store(false, Ordering::SeqCst);
            gateways.release("lock", &lease.token).await;
        });
    }
    gateways.queued("lock", CALLERS as u64).await;
    assert!(served.lock().unwrap().is_empty());
    gateways.release("lock", &holder.token).await;
    callers.join_all().await;
    let served = std::mem::take(&mut *served.lock().unwrap());
    let expected = served.is_sorted_by(|before, after| before < after);
    assert!(expected, "{served:?}");
    assert_eq!(served.iter().collect::<HashSet<_>>().len(), CALLERS);
    assert!(served[0] > holder.held.fence);
    gateways.idle("lock").await;
}

pub(crate) async fn a_long_queue_is_shown_by_its_head(fixture: &dyn Fixture) {
    const FIRST: usize = INSPECTED_WAITERS;
    let gateways = Gateways::start(fixture);
    gateways.hold("lock").await;
    let many = FIRST as u64;
    let _first = gateways.crowd(many, &request("lock", "first")).await;
    let _last = gateways.queue(request("lock", "last"), many + 1).await;
    let shown = gateways.shown("lock").await;
    assert_eq!(shown.queue.len(), FIRST);
    let first = request("lock", "first").terms.said.owner;
    assert!(shown.queue.iter().all(|it| it.owner == first));
}
