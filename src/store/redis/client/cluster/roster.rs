//! The nodes of a cluster by their ids, and whether a server is one of them.
//!
//! After a master has died, its address may lead to a plain Redis or to a node of another cluster, which knows no lock
//! of the master. No address and no epoch tells these servers from a node of the cluster, but the ids of the nodes do:
//! a new node chooses its id at random, and keeps it for as long as it is part of the cluster. So each server must
//! itself name the ids that the gateway knows, before the gateway uses the server or believes its view.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bb8_redis::redis::Value;
use parking_lot::Mutex;

use crate::{config::RedisNode, store::Unavailability};

use super::super::connection::answered;

/// The nodes of a cluster that have slots, and their replicas, as one server names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Roster {
    /// The ids of each master and its replicas, by the id of the master. If a replica takes over, its id stands for the
    /// master.
    masters: HashMap<NodeId, HashSet<NodeId>>,
    /// The ids of the nodes at each address.
    at: HashMap<RedisNode, HashSet<NodeId>>,
}

/// The roster of the view that was believed last, which each new server is compared with.
#[derive(Debug, Default)]
pub(crate) struct BelievedRoster(Mutex<Arc<Roster>>);

/// Id of a node of a cluster; no other node of any cluster has the same id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodeId(Arc<str>);

/// A node as a reply to `CLUSTER SLOTS` names it.
pub(super) struct NamedNode {
    pub(super) id: NodeId,
    /// Address of the node; `None` if the server that names the node does not know its address.
    pub(super) address: Option<RedisNode>,
}

// === impl Roster ===

impl Roster {
    /// Reads the reply of the server `by` to `CLUSTER SLOTS`.
    pub(super) fn read(reply: &Value, by: &RedisNode) -> Option<Self> {
        let Value::Array(ranges) = reply else {
            return None;
        };
        let mut roster = Self::default();
        for range in ranges {
            let Value::Array(range) = range else {
                return None;
            };
            let [_first, _last, nodes @ ..] = range.as_slice() else {
                return None;
            };
            let nodes = nodes.iter().map(|node| NamedNode::read(node, by));
            roster.add(nodes.collect::<Option<_>>()?);
        }
        Some(roster)
    }

    /// Adds the master of some slots and then its replicas.
    pub(super) fn add(&mut self, nodes: Vec<NamedNode>) {
        let Some(master) = nodes.first().map(|node| node.id.clone()) else {
            return;
        };
        let ids = self.masters.entry(master).or_default();
        for node in nodes {
            if let Some(address) = node.address {
                let here = self.at.entry(address).or_default();
                here.insert(node.id.clone());
            }
            ids.insert(node.id);
        }
    }

    /// Whether no node is named.
    pub(super) fn is_empty(&self) -> bool {
        self.masters.is_empty()
    }

    /// Checks that the server at the address `by`, which names the nodes `said`, is one of these nodes or has joined
    /// them. An empty roster admits every server.
    pub(super) fn admit(&self, said: &Self, by: &RedisNode) -> Result<(), Unavailability> {
        if !self.is_named_by(said) {
            let why = "the server at this address is not a node of the cluster: it does not name the \
                       masters that the gateway knows";
            return Err(Unavailability::Connect(why.to_owned()));
        }
        let (known, named) = (self.at.get(by), said.at.get(by));
        if let (Some(known), Some(named)) = (known, named)
            && !named.is_subset(known)
        {
            let why = "the server at this address is not the node of the cluster that the other \
                       nodes name there";
            return Err(Unavailability::Connect(why.to_owned()));
        }
        Ok(())
    }

    /// Whether `said` names at least half of the masters, or a replica in place of a master. Half is enough: the
    /// cluster may have had two masters and have one now, while another cluster names none.
    fn is_named_by(&self, said: &Self) -> bool {
        let named: HashSet<&NodeId> = said.masters.values().flatten().collect();
        let is_named = |ids: &&HashSet<NodeId>| ids.iter().any(|id| named.contains(id));
        2 * self.masters.values().filter(is_named).count() >= self.masters.len()
    }

    /// Whether both rosters are of the same cluster.
    pub(super) fn is_of_same_cluster(&self, other: &Self) -> bool {
        self.is_named_by(other) || other.is_named_by(self)
    }
}

// === impl BelievedRoster ===

impl BelievedRoster {
    pub(super) fn get(&self) -> Arc<Roster> {
        Arc::clone(&self.0.lock())
    }

    pub(super) fn set(&self, roster: &Roster) {
        *self.0.lock() = Arc::new(roster.clone());
    }

    /// Checks by the reply of the server `by` to `CLUSTER SLOTS` that the server is a node of the cluster.
    pub(crate) fn admit(&self, reply: &Value, by: &RedisNode) -> Result<(), Unavailability> {
        if let Value::ServerError(error) = reply {
            if lacks_cluster(error.details()) {
                let why = "the server at this address is not a node of the cluster: it is a Redis \
                           without a cluster";
                return Err(Unavailability::Connect(why.to_owned()));
            }
            return Err(answered(error).reason());
        }
        let odd = || Unavailability::Refused("an answer that no Redis cluster gives".to_owned());
        let said = Roster::read(reply, by).ok_or_else(odd)?;
        self.get().admit(&said, by)
    }
}

/// Whether the text of an error says that the server is part of no cluster.
pub(super) fn lacks_cluster(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.contains("cluster support disabled"))
}

// === impl NamedNode ===

impl NamedNode {
    /// Reads a node from a reply of the server `by`.
    pub(super) fn read(node: &Value, by: &RedisNode) -> Option<Self> {
        let Value::Array(fields) = node else {
            return None;
        };
        let id = match fields.get(2)? {
            Value::BulkString(id) => std::str::from_utf8(id).ok()?,
            Value::SimpleString(id) => id,
            _ => return None,
        };
        Some(Self {
            id: NodeId(id.into()),
            address: read_address(fields, by)?,
        })
    }
}

/// Reads the address of a node from its fields in a reply of the server `by`; `None` inside if the server knows no
/// address of the node.
#[expect(clippy::option_option, reason = "without an address is an answer, too")]
fn read_address(node: &[Value], by: &RedisNode) -> Option<Option<RedisNode>> {
    let port = match node.get(1)? {
        Value::Int(port) => u16::try_from(*port).ok()?,
        _ => return None,
    };
    let host = match node.first()? {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    Some(match host {
        "?" => None,
        // If another server answers at the address of a node, the other nodes forget the address.
        _ if port == 0 => None,
        // An empty host means the host of the server that was asked.
        "" => Some(RedisNode::new(by.host(), port)),
        host => Some(RedisNode::new(host, port)),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn named(id: &str, address: Option<RedisNode>) -> NamedNode {
        let id = NodeId(id.into());
        NamedNode { id, address }
    }

    /// The roster of a server that names these shards: each a master and its replicas, as `ID@PORT`, or as `ID` without
    /// an address.
    pub(crate) fn roster(shards: &[&str]) -> Roster {
        let mut roster = Roster::default();
        for shard in shards {
            let nodes = shard.split(' ').map(|node| {
                let (id, port) = node.split_once('@').unwrap_or((node, ""));
                let address = port.parse().ok().map(|port| RedisNode::new("h", port));
                named(id, address)
            });
            roster.add(nodes.collect());
        }
        roster
    }

    #[test]
    fn a_server_is_admitted_that_names_half_of_the_masters_and_no_other_id_for_its_address() {
        let three: &[&str] = &["a@1 x@11", "b@2 y@12", "c@3"];
        for (known, said, by, is_admitted) in [
            // The first map, and servers that name the same nodes.
            (&[][..], &["a@1"][..], 1, true),
            (&[], &[], 1, true),
            (three, three, 1, true),
            // A replica has taken over, the master is not named any more, or is named without an address.
            (three, &["x@11", "b@2 y@12", "c@3"], 11, true),
            (three, &["a", "b@2 y@12", "c@3"], 2, true),
            // Each replica has taken over.
            (&["a@1 x@11", "b@2 y@12"], &["x@11", "y@12"], 11, true),
            // A node without slots has joined, also at the address of a known node.
            (three, &["a@1 x@11", "b@2 y@12", "c@3"], 9, true),
            (three, &["x@11", "b@2", "c@3"], 1, true),
            // The cluster has one master less, and only one is left.
            (&["a@1", "b@2"], &["a@1"], 1, true),
            (three, &["b@2", "c@3"], 2, true),
            // A plain node, a node that was reset, and a node that is alone or among strangers with its old id.
            (three, &[], 1, false),
            (three, &["k@1"], 1, false),
            (three, &["k@1", "l@2", "m@3"], 1, false),
            (three, &["a@1"], 1, false),
            (three, &["a@1", "l@2", "m@3"], 1, false),
            (&["a@1"], &["k@1"], 1, false),
            // Another node of the cluster at the address of a master.
            (three, &["k@1", "b@2", "c@3"], 1, false),
            (three, &["a@4", "b@2", "c@3", "k@1"], 1, false),
            (three, &["b@1", "c@3"], 1, false),
            // The others say the same by now.
            (&["a@4", "b@2", "c@3", "k@1"], &["a@4", "k@1"], 1, true),
            // The address of a dead master is the address of another node as well.
            (&["a@1", "b@2 k@1"], &["a@1", "b@2 k@1"], 1, true),
        ] {
            let (known, said) = (roster(known), roster(said));
            let admitted = known.admit(&said, &RedisNode::new("h", by));
            assert_eq!(
                admitted.is_ok(),
                is_admitted,
                "{known:?} {said:?} {admitted:?}"
            );
        }
    }

    #[test]
    fn a_plain_redis_and_an_answer_without_ids_are_not_admitted() {
        let by = RedisNode::new("h", 1);
        let believed = BelievedRoster::default();
        for (reply, why) in [
            (
                "-ERR This instance has cluster support disabled\r\n",
                "not a node",
            ),
            ("-LOADING the data\r\n", "loading"),
            ("+OK\r\n", "no Redis cluster"),
            (
                "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                "no Redis cluster",
            ),
        ] {
            let reply = bb8_redis::redis::parse_redis_value(reply.as_bytes()).unwrap();
            let refused = believed.admit(&reply, &by).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let nobody = bb8_redis::redis::parse_redis_value(b"*0\r\n").unwrap();
        assert_eq!(believed.admit(&nobody, &by), Ok(()));
    }
}
