//! Why a script that grants locks has done nothing.

use crate::store::{StoreError, Unavailability};

use super::{super::keys::Keys, Reply};

// === impl Reply ===

impl Reply {
    /// Why nothing was granted, whoever asked; or that the reply is none that the script gives.
    pub(in crate::store::redis) fn refusal(&mut self, keys: &Keys) -> StoreError {
        match self.kind() {
            "exhausted" => StoreError::FenceExhausted,
            "clock" => match self.integer() {
                Some(seconds) => Unavailability::Clock(format!("{seconds} s since 1970")).into(),
                None => self.unexpected(),
            },
            "counter" => StoreError::ForeignData {
                key: keys.fence().to_owned(),
                found: "a string that is no fence counter".into(),
            },
            "layout" => self.layout(keys),
            _ => self.unexpected(),
        }
    }
}
