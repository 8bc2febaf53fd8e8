//! Calls `learn.lua`, `teach.lua` and `admit.lua`, by which a node gets its vote.

use std::time::Duration;

use bb8_redis::redis::Cmd;
use tokio::time::Instant;

use crate::{lock::FencingToken, store::StoreError};

use super::super::{
    super::{
        failure::Failure,
        keys::Keys,
        scripts::{Reply, Script},
    },
    node::Node,
    nonce::Nonce,
};

/// Whether a node has learnt how far fences have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum LearnState {
    /// It has; for so long since it was found without its data, if it ever was.
    Learnt(Option<Duration>),
    /// It has not in this life of its data. It is empty if none has begun, and was not to.
    Unlearnt(String),
}

/// What a node says to one that learns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum TeachReply {
    /// The largest fence that it has accepted, or has learnt of.
    Taught(u64),
    /// It has not learnt itself, and had come to this when it last had; and in which life of its data. That
    /// is empty if none has begun.
    Unlearnt(u64, String),
}

// === impl Node ===

impl Node {
    /// Whether the node has learnt; if not, `begin` has its life begin, under this name if it is new.
    pub(in super::super) async fn learn_state(
        &self,
        new: &Nonce,
        begin: bool,
    ) -> Result<LearnState, StoreError> {
        let script = &self.scripts.learn;
        let asked = self.of_node(script, new.as_str(), |command, run| {
            let begins = u8::from(begin);
            command.arg(new.as_str()).arg(run).arg(begins);
        });
        let mut reply = asked.await?;
        match reply.kind() {
            "learnt" => {
                let ms = reply.integer().ok_or_else(|| reply.unexpected())?;
                let since = u64::try_from(ms).ok().map(Duration::from_millis);
                Ok(LearnState::Learnt(since))
            }
            "unlearnt" => {
                let life = reply.text().ok_or_else(|| reply.unexpected())?;
                Ok(LearnState::Unlearnt(life))
            }
            _ => Err(reply.unexpected()),
        }
    }

    /// Asks the node how far fences have come, for another that learns in this life.
    pub(in super::super) async fn teach(&self, life: &str) -> Result<TeachReply, StoreError> {
        let script = &self.scripts.teach;
        let asked = self.of_node(script, life, |command, run| {
            command.arg(life).arg(run);
        });
        let mut reply = asked.await?;
        match reply.kind() {
            "taught" => Ok(TeachReply::Taught(fence(&mut reply)?)),
            "unlearnt" => {
                let top = fence(&mut reply)?;
                let life = reply.text().ok_or_else(|| reply.unexpected())?;
                Ok(TeachReply::Unlearnt(top, life))
            }
            _ => Err(reply.unexpected()),
        }
    }

    /// Gives the node its vote, if this life of its data is not over. Answers whether it has one.
    pub(in super::super) async fn admit(&self, life: &str, top: u64) -> Result<bool, StoreError> {
        let script = &self.scripts.admit;
        let asked = self.of_node(script, life, |command, _run| {
            command.arg(life).arg(top);
        });
        let reply = asked.await?;
        match reply.kind() {
            "admitted" => Ok(true),
            "over" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }

    /// Runs a script on what the node has learnt, once.
    async fn of_node(
        &self,
        script: &Script,
        echo: &str,
        fill: impl Fn(&mut Cmd, &str) + Send + Sync,
    ) -> Result<Reply, StoreError> {
        let limit = Instant::now() + self.timeout;
        let connection = self.pool().connection(limit).await?;
        let run = self.run_of(&connection)?.to_owned();
        let fill = |command: &mut Cmd| {
            command.arg(Keys::NODE);
            fill(command, &run);
        };
        let on = (&self.shard, connection);
        let sent = self.dispatch.once_on(on, script, echo, limit, fill).await;
        sent.map_err(|failure| match failure {
            Failure::WrongType => StoreError::ForeignData {
                key: Keys::NODE.to_owned(),
                found: "no hash".into(),
            },
            Failure::Unknown(why) => why.into(),
            known => known.reason().into(),
        })
    }
}

fn fence(reply: &mut Reply) -> Result<u64, StoreError> {
    let fence: Option<u64> = reply.text().and_then(|fence| fence.parse().ok());
    let fence = fence.filter(|fence| *fence <= FencingToken::MAX.get());
    fence.ok_or_else(|| reply.unexpected())
}
