//! Inspect: look at a lock.

use reqwest::Method;
use serde::Deserialize;

use crate::lock::LockName;

use super::{Client, ClientError, Holder, answer::Answer, call::Call};

/// A lock as a gateway shows it.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// Whether somebody holds it.
    pub state: LockState,
    /// Who holds it.
    pub holder: Option<Holder>,
    json: String,
}

/// Whether somebody holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    /// Nobody does.
    Free,
    /// Somebody does.
    Held,
}

#[derive(Deserialize)]
struct Wire {
    state: LockState,
    #[serde(default)]
    holder: Option<Holder>,
}

// === impl Client ===

impl Client {
    /// Shows who holds a lock.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection, ClientError> {
        let answer = Call::new(Method::GET, self.lock_url(name, ""))
            .send(self)
            .await?;
        if answer.status.is_success() {
            Inspection::from_answer(answer)
        } else {
            Err(answer.refusal())
        }
    }
}

// === impl Inspection ===

impl Inspection {
    /// The answer as the gateway sent it.
    pub fn json(&self) -> &str {
        &self.json
    }

    fn from_answer(answer: Answer) -> Result<Self, ClientError> {
        match serde_json::from_str(&answer.body) {
            Ok(Wire { state, holder }) => Ok(Self {
                state,
                holder,
                json: answer.body,
            }),
            Err(_) => Err(answer.unexpected("not a lock")),
        }
    }
}
