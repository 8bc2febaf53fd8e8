//! Who has which slots, as one server of a cluster sees it.

use bb8_redis::redis::Value;

use crate::{
    config::RedisNode,
    store::{Unavailability, redis::Slot},
};

use super::super::{connection::answered, identity::info_field};

/// Who has which slots, as one server of a cluster sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterView {
    /// The server that sees it so, as it was asked.
    pub(super) by: RedisNode,
    /// How often the cluster had changed by then; the higher one is the later word.
    pub(super) epoch: u64,
    /// Whether the server sees enough of the cluster to be a part of it.
    pub(super) sound: bool,
    /// The masters, and what they have.
    pub(super) ranges: Vec<SlotRange>,
    /// Their replicas.
    pub(super) replicas: Vec<RedisNode>,
}

/// The slots of a master, from one to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: Slot,
    pub(super) last: Slot,
    pub(super) node: RedisNode,
}

/// Where a server is.
enum Address {
    At(RedisNode),
    /// By which name it is reached is not known, not even to itself.
    Unknown,
}

// === impl ClusterView ===

impl ClusterView {
    /// Reads the replies of this server to `CLUSTER INFO` and `CLUSTER SLOTS`.
    pub(super) fn read(replies: &[Value], by: &RedisNode) -> Result<Self, Unavailability> {
        let odd = || Unavailability::Refused("it answers what no cluster would".to_owned());
        if let Some(error) = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(error),
            _ => None,
        }) {
            let text = error.details().unwrap_or_default();
            if text.contains("cluster support disabled") {
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
        };
        for range in slots {
            view.add(range, by).ok_or_else(odd)?;
        }
        Ok(view)
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
        let mut nodes = nodes.iter().map(|node| Address::read(node, by));
        match nodes.next()?? {
            Address::At(node) => self.ranges.push(SlotRange { first, last, node }),
            // It has slots all the same; others may know where it is.
            Address::Unknown => {}
        }
        for replica in nodes {
            if let Address::At(node) = replica? {
                self.replicas.push(node);
            }
        }
        Some(())
    }
}

// === impl Address ===

impl Address {
    /// What this server says of where one is.
    fn read(node: &Value, by: &RedisNode) -> Option<Self> {
        let Value::Array(node) = node else {
            return None;
        };
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
            "?" => Self::Unknown,
            // The one that is asked, whatever its name is.
            "" => Self::At(RedisNode::new(by.host(), port)),
            host => Self::At(RedisNode::new(host, port)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
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
        let range = |first, last, nodes: Vec<Value>| {
            Value::Array([&[Value::Int(first), Value::Int(last)], nodes.as_slice()].concat())
        };
        let view = read(vec![
            range(
                0,
                99,
                vec![node(text("10.0.0.1"), 7), node(text("10.0.0.2"), 8)],
            ),
            range(100, 16_383, vec![node(text(""), 9), node(text("?"), 10)]),
            // Nobody knows where it is, not even itself.
            range(16_383, 16_383, vec![node(text("?"), 11)]),
        ]);
        let view = view.unwrap();
        assert_eq!((view.epoch, view.sound), (6, true));
        let ranges: Vec<_> = view
            .ranges
            .iter()
            .map(|it| (it.first.index(), it.last.index(), it.node.to_string()))
            .collect();
        assert_eq!(
            ranges,
            [
                (0, 99, "10.0.0.1:7".to_owned()),
                (100, 16_383, "asked:9".to_owned())
            ]
        );
        assert_eq!(view.replicas, [RedisNode::new("10.0.0.2", 8)]);
        let nameless = read(vec![range(0, 1, vec![node(Value::Nil, 7)])]).unwrap();
        assert_eq!(nameless.ranges[0].node, RedisNode::new("asked", 7));
    }

    #[test]
    fn is_nobodys_that_answers_something_else() {
        let odd = |slots: Vec<Value>| matches!(read(slots), Err(Unavailability::Refused(_)));
        assert!(odd(vec![Value::Nil]));
        assert!(odd(vec![Value::Array(vec![
            Value::Int(0),
            Value::Int(16_384)
        ])]));
        let beyond = vec![Value::Int(0), Value::Int(16_384), node(text("h"), 1)];
        assert!(odd(vec![Value::Array(beyond)]));
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
