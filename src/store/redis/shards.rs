//! Keeps something going for each server of the store, whichever they are.

use std::{collections::HashSet, sync::Arc};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};

use super::{dispatch::Dispatch, shard::Shard};

/// Keeps something going for each server of the store, until that is given up.
pub(super) async fn on_each(
    dispatch: &Dispatch,
    go: impl Fn(Arc<Shard>) -> BoxFuture<'static, ()> + Send,
) {
    let mut served = HashSet::new();
    let mut going = FuturesUnordered::new();
    let mut changed = dispatch.topology.changes();
    loop {
        let mut shards = dispatch.topology.shards();
        shards.retain(|shard| !shard.over.is_cancelled());
        for shard in shards {
            // No other one lies there as long as this one is served.
            let place = Arc::as_ptr(&shard).addr();
            if served.insert(place) {
                let going_on = go(Arc::clone(&shard));
                going.push(async move {
                    tokio::select! {
                        () = going_on => {}
                        () = shard.over.cancelled() => {}
                    }
                    place
                });
            }
        }
        tokio::select! {
            () = changed.next() => {}
            Some(over) = going.next(), if !going.is_empty() => {
                served.remove(&over);
            }
        }
    }
}
