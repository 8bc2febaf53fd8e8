//! Which server has which slot, as far as is known.

use std::sync::Arc;

use crate::{config::RedisNode, store::redis::Slot};

use super::{super::shard::Shard, view::ClusterView};

/// Which server has which slot. It is never changed but replaced.
#[derive(Clone)]
pub(super) struct Layout {
    /// The place of each slot's server in `shards`.
    owners: Box<[u16]>,
    /// The servers that have slots.
    pub(super) shards: Vec<Arc<Shard>>,
    /// Others that take part in the cluster, and can be asked if none of those answers.
    pub(super) replicas: Vec<RedisNode>,
    /// How often the cluster had changed by then.
    pub(super) epoch: u64,
}

/// Of a slot that no server is known to have.
const UNASSIGNED: u16 = u16::MAX;

// === impl Layout ===

impl Layout {
    /// Nobody is known.
    pub(super) fn unknown() -> Self {
        Self {
            owners: vec![UNASSIGNED; Slot::COUNT].into(),
            shards: Vec::new(),
            replicas: Vec::new(),
            epoch: 0,
        }
    }

    /// As one of the servers sees it.
    pub(super) fn of(view: &ClusterView, mut find: impl FnMut(&RedisNode) -> Arc<Shard>) -> Self {
        let mut layout = Self {
            replicas: view.replicas.clone(),
            epoch: view.epoch,
            ..Self::unknown()
        };
        for range in &view.ranges {
            let index = layout.index_of(&find(&range.node));
            for owner in &mut layout.owners[range.first.index()..=range.last.index()] {
                *owner = index;
            }
        }
        layout
    }

    /// The same, but for one slot.
    pub(super) fn with(&self, slot: Slot, shard: &Arc<Shard>) -> Self {
        let mut layout = self.clone();
        layout.owners[slot.index()] = layout.index_of(shard);
        layout
    }

    /// The server that has a slot, if one is known to.
    pub(super) fn owner(&self, slot: Slot) -> Option<&Arc<Shard>> {
        self.shards.get(usize::from(self.owners[slot.index()]))
    }

    /// The server at this address, if it is one that has slots and was not given up.
    pub(super) fn at(&self, node: &RedisNode) -> Option<&Arc<Shard>> {
        let mut used = self
            .shards
            .iter()
            .filter(|it| !it.disconnected.is_cancelled());
        used.find(|shard| shard.node() == Some(node))
    }

    pub(super) fn has(&self, shard: &Arc<Shard>) -> bool {
        self.shards.iter().any(|it| Arc::ptr_eq(it, shard))
    }

    /// How many slots no server is known to have, and the first of them.
    pub(super) fn unassigned(&self) -> (usize, Option<usize>) {
        let mut without = (0..Slot::COUNT).filter(|&slot| self.owners[slot] == UNASSIGNED);
        let first = without.next();
        (usize::from(first.is_some()) + without.count(), first)
    }

    /// The slots that have another server than there.
    pub(super) fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Slot> + 'a {
        let slots = (0..Slot::COUNT).filter_map(Slot::numbered);
        slots.filter(|&slot| match (self.owner(slot), other.owner(slot)) {
            (Some(here), Some(there)) => !Arc::ptr_eq(here, there),
            (here, there) => here.is_some() != there.is_some(),
        })
    }

    fn index_of(&mut self, shard: &Arc<Shard>) -> u16 {
        let known = self.shards.iter().position(|it| Arc::ptr_eq(it, shard));
        let index = known.unwrap_or_else(|| {
            self.shards.push(Arc::clone(shard));
            self.shards.len() - 1
        });
        u16::try_from(index).expect("there are fewer servers than slots")
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        config::{ClusterUrl, RedisConfig, StoreUrl},
        lifecycle::Workers,
    };

    use super::{
        super::{super::cluster::Cluster, view::SlotRange},
        *,
    };

    fn cluster() -> Cluster {
        let url: StoreUrl = "redis+cluster://127.0.0.1:1".parse().unwrap();
        let StoreUrl::Cluster(url): StoreUrl = url else {
            panic!("it is a cluster");
        };
        let url: ClusterUrl = url;
        Cluster::new(&url, &RedisConfig::default(), &Workers::default())
    }

    fn slot(number: usize) -> Slot {
        Slot::numbered(number).unwrap()
    }

    #[tokio::test]
    async fn knows_of_each_slot_who_has_it() {
        let cluster = cluster();
        let [a, b] = [1, 2].map(|port| cluster.shard_at(&RedisNode::new("h", port)));
        let range = |first, last, port| SlotRange {
            first: slot(first),
            last: slot(last),
            node: RedisNode::new("h", port),
        };
        let view = ClusterView {
            by: RedisNode::new("h", 1),
            epoch: 3,
            sound: true,
            ranges: vec![range(0, 9, 1), range(10, 19, 2), range(30, 39, 1)],
            replicas: Vec::new(),
        };
        let find = |node: &RedisNode| Arc::clone(if node.port() == 1 { &a } else { &b });
        let layout = Layout::of(&view, find);
        let owner = |layout: &Layout, number: usize| {
            layout
                .owner(slot(number))
                .map(|it| it.node().unwrap().port())
        };
        assert_eq!(
            [0, 9, 10, 19, 20, 35].map(|number| owner(&layout, number)),
            [Some(1), Some(1), Some(2), Some(2), None, Some(1)]
        );
        assert_eq!(layout.unassigned(), (Slot::COUNT - 30, Some(20)));
        let moved = layout.with(slot(9), &b);
        assert_eq!(owner(&moved, 9), Some(2));
        let differing: Vec<_> = layout.differing(&moved).map(Slot::index).collect();
        assert_eq!(differing, [9]);
        assert_eq!(
            layout.at(&RedisNode::new("h", 2)).map(Arc::as_ptr),
            Some(Arc::as_ptr(&b))
        );
        assert_eq!(Layout::unknown().unassigned(), (Slot::COUNT, Some(0)));
    }
}
