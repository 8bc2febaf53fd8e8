//! What the nodes of a quorum have answered.

/// The answers of the nodes, by their index; `None` where there is none (yet), or none was asked for.
#[derive(Debug)]
pub(super) struct NodeReplies<T> {
    by_node: Vec<Option<T>>,
}

// === impl NodeReplies ===

impl<T> NodeReplies<T> {
    pub(super) fn none(nodes: usize) -> Self {
        let by_node = std::iter::repeat_with(|| None).take(nodes).collect();
        Self { by_node }
    }

    pub(super) fn put(&mut self, node: usize, answer: T) {
        self.by_node[node] = Some(answer);
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.by_node.len()
    }

    /// What the nodes have answered that did.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.by_node.iter().flatten()
    }

    /// The same, by node.
    pub(super) fn by_node(&self) -> impl Iterator<Item = (usize, Option<&T>)> {
        self.by_node.iter().map(Option::as_ref).enumerate()
    }

    /// How many have answered so.
    pub(super) fn count(&self, so: impl Fn(&T) -> bool) -> usize {
        self.iter().filter(|answer| so(answer)).count()
    }

    /// The nodes that have not answered so.
    pub(super) fn others(&self, so: impl Fn(&T) -> bool) -> Vec<usize> {
        let others = self
            .by_node()
            .filter(|(_, answer)| !answer.is_some_and(&so));
        others.map(|(node, _)| node).collect()
    }
}
