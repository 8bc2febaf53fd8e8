//! Calls `withdraw.lua`.

use bb8_redis::redis::Cmd;

use crate::{lock::TokenHash, store::StoreError};

use super::super::{
    super::{keys::Keys, scripts::TOMBSTONE_MS},
    node::Node,
    nonce::Nonce,
};

/// What became of what is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Withdrawal {
    /// It had the lock there.
    GivenBack,
    /// Its lease was adopted, or answered again under its idempotency key.
    Kept,
    /// It has nothing there, and never will.
    Nothing,
}

// === impl Node ===

impl Node {
    /// Withdraws a try of which nobody has heard; without a nonce the whole attempt, of which somebody
    /// may have heard.
    pub(in super::super) async fn withdraw(
        &self,
        keys: &Keys,
        token: &TokenHash,
        nonce: Option<&Nonce>,
    ) -> Result<Withdrawal, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(keys.wanted()).arg(&token);
            command.arg(nonce.map(Nonce::as_str).unwrap_or_default());
            command.arg(TOMBSTONE_MS).arg(u8::from(nonce.is_none()));
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
