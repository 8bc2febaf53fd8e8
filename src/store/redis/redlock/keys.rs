//! The keys that only the nodes of a quorum have.

use super::super::keys::Keys;

// === impl Keys ===

impl Keys {
    /// What a node has learnt, and in which life of its data.
    pub(super) const NODE: &str = "lg:{}:node";

    /// The lease record.
    pub(super) fn info(&self) -> String {
        format!("lg:{{{}}}:info", self.name())
    }

    /// What is remembered of ended leases.
    pub(super) fn ended(&self) -> String {
        format!("lg:{{{}}}:ended", self.name())
    }

    /// There if a gateway was refused the lock that waits for it.
    pub(super) fn wanted(&self) -> String {
        format!("lg:{{{}}}:wanted", self.name())
    }

    /// The keys that the scripts read for a lock, with the types that they have, to find one that is not ours.
    pub(super) fn of_node(&self, _echo: &str) -> Vec<(String, &'static str)> {
        vec![
            (self.lock().to_owned(), "string"),
            (self.fence().to_owned(), "string"),
            (self.info(), "hash"),
            (self.ended(), "zset"),
            (Self::NODE.to_owned(), "hash"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::LockName,
        store::redis::{SlotTags, keys::GatewayId},
    };

    use super::*;

    #[test]
    fn are_the_ones_that_the_nodes_have() {
        let name = LockName::new("deploy:eu").unwrap();
        let keys = Keys::of(&name, &SlotTags::compute(), &GatewayId::random());
        assert_eq!(keys.info(), "lg:{deploy:eu}:info");
        assert_eq!(keys.ended(), "lg:{deploy:eu}:ended");
        assert_eq!(keys.wanted(), "lg:{deploy:eu}:wanted");
    }
}
