//! Acquire several locks, all or none.

use tokio::sync::oneshot;

use crate::engine::{Engine, acquire::failure_outcome, detach_on_drop::DetachOnDrop};

use super::{
    collect::Collector,
    hang_up::HangUp,
    request::{GrantedGroup, GroupAcquireError, GroupRequest},
};

// === impl Engine ===

impl Engine {
    /// Acquires several locks, all or none, and waits for them if the request says so. `queued` is called when it is
    /// known that there is a wait.
    ///
    /// If the caller drops this future while the locks are taken, a task of its own gives back what it has. Once all
    /// are taken they are given back as a lease of one lock is: with an idempotency key after the reconnect grace.
    pub fn acquire_group<Q: FnOnce() + Send>(
        &self,
        request: GroupRequest,
        queued: Q,
    ) -> impl Future<Output = Result<GrantedGroup, GroupAcquireError>> + Send + use<Q> {
        let first = request.keyed();
        let begun = self.may_begin(first);
        let begun = begun.inspect_err(|error| self.metrics().acquired(failure_outcome(error)));
        let slots = begun.and_then(|()| Ok(request.lease_slots()?));
        let (queued_sender, was_queued) = oneshot::channel();
        let collected = slots.map(|slots| {
            let engine = self.0.clone();
            DetachOnDrop::waiting(&self.0.lifecycle, move |caller| {
                let hung_up = HangUp::new(caller);
                Collector::new(engine, request, slots, hung_up, queued_sender).run()
            })
        });
        async move {
            let mut collected =
                collected.map_err(|error| GroupAcquireError { name: None, error })?;
            tokio::select! {
                biased;
                outcome = &mut collected => return outcome,
                Ok(()) = was_queued => queued(),
            }
            collected.await
        }
    }
}
