//! Calls `quorum_release.lua`.

use crate::{
    lock::{ForeignMark, KeeperId, ReleaseRequest, TokenHash},
    store::{
        StoreError,
        contract::Loss,
        redis::{
            client::{
                calls::{ScriptCall, TOMBSTONE_MS, request_text},
                dispatch::{DispatchReply, Sending},
            },
            keys::Keys,
        },
    },
};

use super::super::{claim::Nonce, node::Node, scripts::fill_lease_keys};

/// What became of a lease at one node that was to release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum NodeRelease {
    /// It was there, and this has ended it.
    Released,
    /// It was there, and a break has ended it. Whether somebody else has the lock there now.
    Broken { held: bool },
    /// It was not there.
    Lost(Loss),
    /// Another keeper goes on with it.
    Adopted,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn release(
        &self,
        keys: &Keys,
        keeper: Option<KeeperId>,
        token: &TokenHash,
    ) -> Result<NodeRelease, StoreError> {
        let token = token.to_string();
        let keeper = keeper.map(|keeper| keeper.to_string()).unwrap_or_default();
        let fill = |command: &mut ScriptCall, _| {
            fill_lease_keys(command, keys).arg(keys.wanted());
            command.arg(&token).arg(TOMBSTONE_MS).arg(&keeper);
        };
        let run = self.run(&self.scripts.release, keys, &token, fill);
        let DispatchReply { mut reply, earlier } = run.await?;
        let loss = match reply.kind() {
            "released" => return Ok(NodeRelease::Released),
            "adopted" => return Ok(NodeRelease::Adopted),
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            // Not by a copy of this command: that would have released it.
            "broken" => match (reply.integer(), reply.integer()) {
                (Some(held @ (0 | 1)), Some(1)) => {
                    return Ok(NodeRelease::Broken { held: held == 1 });
                }
                (Some(held @ (0 | 1)), Some(0)) => {
                    return Ok(NodeRelease::Lost(Loss::Broken { held: held == 1 }));
                }
                _ => return Err(reply.unexpected()),
            },
            "overdue" => reply.broken()?,
            "layout" => return Err(reply.layout(keys)),
            _ => return Err(reply.unexpected()),
        };
        match earlier {
            None => Ok(NodeRelease::Lost(loss)),
            // Whether it was lost before, or released by the copy whose reply was lost, nobody can
            // tell.
            Some(unknown) => Err(unknown.into()),
        }
    }
}

// === Withdraw ===
//
// Calls `withdraw.lua`.

/// What became of what is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis::redlock) enum Withdrawal {
    /// It had the lock there.
    GivenBack,
    /// Its lease was adopted, or answered again under its idempotency key.
    Kept,
    /// It has nothing there, and never will.
    Nothing,
}

// === impl Node ===

impl Node {
    /// Withdraws a try that was not delivered; without a nonce the whole attempt, which may have been
    /// delivered.
    pub(in crate::store::redis::redlock) async fn withdraw(
        &self,
        keys: &Keys,
        token: &TokenHash,
        nonce: Option<&Nonce>,
    ) -> Result<Withdrawal, StoreError> {
        self.run_withdraw(keys, token, nonce, None).await
    }

    /// Withdraws a whole attempt whose lease was answered to nobody: its idempotency key stays usable.
    pub(in crate::store::redis::redlock) async fn withdraw_unanswered(
        &self,
        keys: &Keys,
        token: &TokenHash,
        keeper: KeeperId,
    ) -> Result<Withdrawal, StoreError> {
        self.run_withdraw(keys, token, None, Some(keeper)).await
    }

    async fn run_withdraw(
        &self,
        keys: &Keys,
        token: &TokenHash,
        nonce: Option<&Nonce>,
        unanswered: Option<KeeperId>,
    ) -> Result<Withdrawal, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut ScriptCall, _| {
            fill_lease_keys(command, keys)
                .arg(keys.wanted())
                .arg(&token);
            command.arg(nonce.map(Nonce::as_str).unwrap_or_default());
            let uses_key = nonce.is_none() && unanswered.is_none();
            command.arg(TOMBSTONE_MS).arg(u8::from(uses_key));
            if let Some(keeper) = unanswered {
                command.arg(keeper.to_string());
            }
        };
        let run = self.run(&self.scripts.withdraw, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "given_back" => Ok(Withdrawal::GivenBack),
            "kept" => Ok(Withdrawal::Kept),
            "nothing" => Ok(Withdrawal::Nothing),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}

// === Break lock ===
//
// Calls `quorum_break.lua`.

/// What is to be broken. Nothing else is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis::redlock) enum NodeTarget {
    /// The lease of this token.
    Lease(TokenHash),
    /// What a foreign client has written, by its mark.
    Foreign(ForeignMark),
}

/// What became of it at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis::redlock) enum NodeBreak {
    /// It was broken.
    Broken,
    /// Another break has ended it there.
    Ended,
    /// It does not have the lock there (any more).
    Changed,
}

// === impl Node ===

impl Node {
    pub(in crate::store::redis::redlock) async fn break_lock(
        &self,
        keys: &Keys,
        nonce: &Nonce,
        node_target: &NodeTarget,
    ) -> Result<NodeBreak, StoreError> {
        let (token, mark) = match node_target {
            NodeTarget::Lease(token) => (token.to_string(), String::new()),
            NodeTarget::Foreign(mark) => (String::new(), mark.to_string()),
        };
        let fill = |command: &mut ScriptCall, sending| {
            fill_lease_keys(command, keys).arg(keys.wanted());
            command.arg(nonce.as_str()).arg(TOMBSTONE_MS);
            let late = u8::from(sending == Sending::Again);
            command.arg(&token).arg(&mark).arg(late);
        };
        let run = self.run(&self.scripts.break_lock, keys, nonce.as_str(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "broken" => Ok(NodeBreak::Broken),
            "ended" => Ok(NodeBreak::Ended),
            "changed" => Ok(NodeBreak::Changed),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}

// === Ask ===
//
// Calls `quorum_ask.lua`.

// === impl Node ===

impl Node {
    /// Asks the holder of a lease to release it. Answers whether it holds the lock there.
    pub(in crate::store::redis::redlock) async fn ask(
        &self,
        keys: &Keys,
        token: &TokenHash,
        request: &ReleaseRequest,
    ) -> Result<bool, StoreError> {
        let token = token.to_string();
        let within = u64::try_from(request.within.as_millis()).unwrap_or(u64::MAX);
        let text = request_text(request);
        let fill = |command: &mut ScriptCall, _| {
            fill_lease_keys(command, keys).arg(&token).arg(within);
            command.arg(&text).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.ask, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "asked" => Ok(true),
            "changed" => Ok(false),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
