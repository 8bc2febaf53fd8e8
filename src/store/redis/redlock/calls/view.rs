//! Calls `view.lua`.

use std::time::Duration;

use bb8_redis::redis::Cmd;

use crate::{lock::ForeignMark, store::StoreError};

use super::super::{super::keys::Keys, claim::Claim, node::Node};

/// Who has a lock at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum NodeView {
    /// A lease, or somebody's try.
    Claim(Claim),
    /// A foreign client, with what is left, and a mark of what it has written.
    Foreign(Option<Duration>, ForeignMark),
    /// Nobody.
    Nobody,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn view(&self, keys: &Keys) -> Result<NodeView, StoreError> {
        let fill = |command: &mut Cmd, _| {
            command.arg(keys.lock()).arg(keys.info());
        };
        let run = self.run(&self.scripts.view, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "held" => Ok(NodeView::Claim(Claim::read(&mut reply, keys)?)),
            "foreign" => {
                let left = reply.integer().ok_or_else(|| reply.unexpected())?;
                let mark = reply.mark().ok_or_else(|| reply.unexpected())?;
                let left = u64::try_from(left).ok().map(Duration::from_millis);
                Ok(NodeView::Foreign(left, mark))
            }
            "free" => Ok(NodeView::Nobody),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
