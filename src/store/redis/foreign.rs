//! Finds out which key of a lock is not ours.

use bb8_redis::redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use crate::store::{StoreError, Unavailability};

use super::{client::dispatch::Dispatch, keys::Keys};

/// Names the key that made a script answer WRONGTYPE. Such a script has written nothing.
pub(super) async fn find(dispatch: &Dispatch, keys: &Keys, limit: Instant) -> StoreError {
    let expected = [
        (keys.lock(), "string"),
        (keys.info(), "hash"),
        (keys.ended(), "zset"),
        (keys.fence(), "string"),
        (keys.wait(), "list"),
        (Keys::NODE, "hash"),
    ];
    for (key, ours) in expected {
        let mut command = Cmd::new();
        command.arg("TYPE").arg(key);
        let found = timeout_at(limit, dispatch.plain(keys.slot(), &command)).await;
        if let Ok(Ok(Value::SimpleString(found))) = found
            && found != ours
            && found != "none"
        {
            return StoreError::ForeignData {
                key: key.to_owned(),
                found: format!("a {found}").into(),
            };
        }
    }
    let reason = "WRONGTYPE: a key of this lock had another type a moment ago".to_owned();
    Unavailability::Refused(reason).into()
}
