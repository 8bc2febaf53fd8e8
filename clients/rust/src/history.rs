//! Reads the history of a lock: who held it, from when to when, and how that ended.

use reqwest::Method;

use crate::{
    Client, ClientError,
    http::Call,
    lock::{History, LockName},
};

/// The maximum size of a history in bytes: 500 entries of 1 KiB, with notes.
const MAX_ANSWER: usize = 4 * 1024 * 1024;

// === impl Client ===

impl Client {
    /// Reads the history of a lock: who held it, from when to when, and how that ended.
    pub async fn history(&self, name: &LockName) -> Result<History, ClientError> {
        let call = Call::new(Method::GET, name, "/history").longest_answer(MAX_ANSWER);
        let answer = call.send(self).await?;
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        if let Some(why) = answer.names_other(name) {
            return Err(answer.unexpected(&why));
        }
        match serde_json::from_str::<History>(&answer.body) {
            Ok(history) => Ok(History {
                json: answer.body,
                ..history
            }),
            Err(_) => Err(answer.unexpected("not a history")),
        }
    }
}
