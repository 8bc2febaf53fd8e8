//! Maps each slot to the server that has it: as this gateway knows it, and as one server of a cluster reports it.

use std::sync::Arc;

use bb8_redis::redis::Value;

use crate::{
    config::RedisNode,
    store::{Unavailability, redis::Slot},
};

use super::{
    super::{connection::answered, identity::info_field, shard::Shard},
    roster::{NamedNode, Roster, lacks_cluster},
};

/// Maps each slot to the server that has it. A `Layout` is never changed, only replaced.
#[derive(Clone)]
pub(super) struct Layout {
    /// Index in `shards` of each slot's server.
    owners: Box<[u16]>,
    /// The servers that have slots of the cluster.
    pub(super) shards: Vec<Arc<Shard>>,
    /// Replicas in the cluster, which the gateway can ask for the layout if none of the masters answers.
    pub(super) replicas: Vec<RedisNode>,
    /// Epoch of the cluster to which this layout belongs.
    pub(super) epoch: u64,
}

/// Value in `owners` of a slot that no server is known to have.
const UNASSIGNED: u16 = u16::MAX;

// === impl Layout ===

impl Layout {
    /// A layout in which no slot has a known server.
    pub(super) fn unknown() -> Self {
        Self {
            owners: vec![UNASSIGNED; Slot::COUNT].into(),
            shards: Vec::new(),
            replicas: Vec::new(),
            epoch: 0,
        }
    }

    /// Creates the layout that one server of the cluster reports. `find`: returns the shard at an address.
    pub(super) fn from_view(
        view: &ClusterView,
        mut find: impl FnMut(&RedisNode) -> Arc<Shard>,
    ) -> Self {
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

    /// The same layout, except that the server `shard` has this slot.
    pub(super) fn with(&self, slot: Slot, shard: &Arc<Shard>) -> Self {
        let mut layout = self.clone();
        layout.owners[slot.index()] = layout.index_of(shard);
        layout
    }

    /// The server that has a slot, if one is known.
    pub(super) fn owner(&self, slot: Slot) -> Option<&Arc<Shard>> {
        self.shards.get(usize::from(self.owners[slot.index()]))
    }

    /// The server at this address, if the server has slots and is still in use.
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

    /// How many slots have no known server, and the first of these slots.
    pub(super) fn unassigned(&self) -> (usize, Option<usize>) {
        let mut without = (0..Slot::COUNT).filter(|&slot| self.owners[slot] == UNASSIGNED);
        let first = without.next();
        (usize::from(first.is_some()) + without.count(), first)
    }

    /// The slots that have another server in the layout `other`.
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

// === View ===

/// The servers and slots of a cluster as one of its servers reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterView {
    /// Address of the server that reports this view, by which the gateway asked it.
    pub(super) by: RedisNode,
    /// Epoch of the cluster as the server knows it; of two views, the view with the higher epoch is later.
    pub(super) epoch: u64,
    /// Whether the server sees enough of the cluster to be a part of it.
    pub(super) sound: bool,
    /// The masters of the cluster with their ranges of slots.
    pub(super) ranges: Vec<SlotRange>,
    /// The replicas of the cluster's masters.
    pub(super) replicas: Vec<RedisNode>,
    /// The ids of the masters and their replicas.
    pub(super) roster: Roster,
}

/// A range of slots that one master has, from `first` to `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: Slot,
    pub(super) last: Slot,
    pub(super) node: RedisNode,
}

// === impl ClusterView ===

impl ClusterView {
    /// Reads the replies of this server to `CLUSTER INFO` and `CLUSTER SLOTS`.
    pub(super) fn read(replies: &[Value], by: &RedisNode) -> Result<Self, Unavailability> {
        let odd = || {
            Unavailability::Refused(
                "the server gives an answer that no Redis cluster gives".to_owned(),
            )
        };
        if let Some(error) = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(error),
            _ => None,
        }) {
            if lacks_cluster(error.details()) {
                let why = "the server is not part of a cluster (its URL is redis://HOST:PORT)";
                return Err(Unavailability::Misconfigured(why.to_owned()));
            }
            return Err(answered(error).reason());
        }
        let [Value::BulkString(info), Value::Array(slots)] = replies else {
            return Err(odd());
        };
        let info = String::from_utf8_lossy(info);
        let epoch =
            info_field(&info, "cluster_current_epoch").and_then(|digits| digits.parse().ok());
        let mut view = Self {
            by: by.clone(),
            epoch: epoch.ok_or_else(odd)?,
            sound: info_field(&info, "cluster_state") == Some("ok"),
            ranges: Vec::new(),
            replicas: Vec::new(),
            roster: Roster::read(&replies[1], by).ok_or_else(odd)?,
        };
        for range in slots {
            view.add(range, by).ok_or_else(odd)?;
        }
        Ok(view)
    }

    /// How many slots the view assigns to a server. A server that has not heard yet how another server is called assigns
    /// fewer slots than a server that has.
    pub(super) fn slots(&self) -> usize {
        let slots = |range: &SlotRange| range.last.index() + 1 - range.first.index();
        self.ranges.iter().map(slots).sum()
    }

    fn add(&mut self, range: &Value, by: &RedisNode) -> Option<()> {
        let Value::Array(range) = range else {
            return None;
        };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = range.as_slice() else {
            return None;
        };
        let slot = |number: &i64| Slot::numbered(usize::try_from(*number).ok()?);
        let (first, last) = (slot(first)?, slot(last)?);
        if first.index() > last.index() {
            return None;
        }
        let mut nodes = nodes
            .iter()
            .map(|node| Some(NamedNode::read(node, by)?.address));
        // A master without an address still has its slots, but this view cannot assign the slots; another server may
        // know the address.
        let master = nodes.next()??;
        (self.ranges).extend(master.map(|node| SlotRange { first, last, node }));
        for replica in nodes {
            self.replicas.extend(replica?);
        }
        Some(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::{
        config::{RedisConfig, StoreUrl},
        lifecycle::Workers,
    };

    use super::{
        super::{
            super::{cluster::Cluster, resp::text},
            roster::tests::named,
        },
        *,
    };

    fn cluster() -> Cluster {
        let url: StoreUrl = "redis+cluster://127.0.0.1:1".parse().unwrap();
        let url = url.servers().unwrap();
        Cluster::new(url, &RedisConfig::default(), &Workers::default())
    }

    fn slot(number: usize) -> Slot {
        Slot::numbered(number).unwrap()
    }

    pub(crate) fn range(first: usize, last: usize, node: RedisNode) -> SlotRange {
        SlotRange {
            first: slot(first),
            last: slot(last),
            node,
        }
    }

    /// The view of a server that reports these masters, whose ids are their addresses.
    pub(crate) fn view_of(epoch: u64, ranges: Vec<SlotRange>) -> ClusterView {
        let mut roster = Roster::default();
        for range in &ranges {
            roster.add(vec![named(
                &range.node.to_string(),
                Some(range.node.clone()),
            )]);
        }
        ClusterView {
            by: ranges[0].node.clone(),
            epoch,
            sound: true,
            roster,
            ranges,
            replicas: Vec::new(),
        }
    }

    #[tokio::test]
    async fn knows_of_each_slot_who_has_it() {
        let cluster = cluster();
        let [a, b] = [1, 2].map(|port| cluster.shard_at(&RedisNode::new("h", port)));
        let range = |first, last, port| range(first, last, RedisNode::new("h", port));
        let view = view_of(3, vec![range(0, 9, 1), range(10, 19, 2), range(30, 39, 1)]);
        let find = |node: &RedisNode| Arc::clone(if node.port() == 1 { &a } else { &b });
        let layout = Layout::from_view(&view, find);
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

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![
            host,
            Value::Int(port),
            text("id"),
            Value::Array(Vec::new()),
        ])
    }

    fn read(slots: Vec<Value>) -> Result<ClusterView, Unavailability> {
        let info = "cluster_state:ok\r\ncluster_slots_ok:16384\r\ncluster_current_epoch:6\r\n";
        ClusterView::read(
            &[text(info), Value::Array(slots)],
            &RedisNode::new("asked", 1),
        )
    }

    #[test]
    fn names_the_masters_with_their_slots_and_the_replicas() {
        let told = |first, last, nodes: Vec<Value>| {
            Value::Array([&[Value::Int(first), Value::Int(last)], nodes.as_slice()].concat())
        };
        let view = read(vec![
            told(
                0,
                99,
                vec![node(text("10.0.0.1"), 7), node(text("10.0.0.2"), 8)],
            ),
            told(100, 16_383, vec![node(text(""), 9), node(text("?"), 10)]),
            // No server knows the address of this master, not even the master itself.
            told(16_383, 16_383, vec![node(text("?"), 11)]),
        ]);
        let view = view.unwrap();
        assert_eq!((view.epoch, view.sound), (6, true));
        let (first, asked) = (RedisNode::new("10.0.0.1", 7), RedisNode::new("asked", 9));
        assert_eq!(
            view.ranges,
            [range(0, 99, first), range(100, 16_383, asked)]
        );
        assert_eq!(view.replicas, [RedisNode::new("10.0.0.2", 8)]);
        let nameless = read(vec![told(0, 1, vec![node(Value::Nil, 7)])]).unwrap();
        assert_eq!(nameless.ranges[0].node, RedisNode::new("asked", 7));
    }

    #[test]
    fn is_nobodys_that_answers_something_else() {
        let range = [Value::Int(0), Value::Int(16_384), node(text("h"), 1)];
        for odd in [
            Value::Nil,
            Value::Array(range[..2].to_vec()),
            Value::Array(range.to_vec()),
        ] {
            let refused = read(vec![odd]);
            assert!(
                matches!(refused, Err(Unavailability::Refused(_))),
                "{refused:?}"
            );
        }
        let error = bb8_redis::redis::parse_redis_value(
            b"-ERR This instance has cluster support disabled\r\n",
        );
        let error = error.unwrap();
        let alone = ClusterView::read(&[error.clone(), error], &RedisNode::new("h", 1));
        assert!(
            matches!(alone, Err(Unavailability::Misconfigured(_))),
            "{alone:?}"
        );
    }
}
