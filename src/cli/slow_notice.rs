//! Says it if something that is owed to others takes so long that somebody may wonder.

use std::pin::pin;

use tokio::time::timeout;

use crate::lock::LockName;

use super::{output, signals::CLEANUP_GRACE};

/// Does it, and says so if there is no answer for more than a moment.
pub(super) async fn notify_if_slow<T>(
    name: &LockName,
    what: &str,
    cleanup: impl Future<Output = T>,
) -> T {
    let mut cleanup = pin!(cleanup);
    if let Ok(done) = timeout(CLEANUP_GRACE, &mut cleanup).await {
        return done;
    }
    output::note(&format!("latchgate: {name}: {what}"));
    cleanup.await
}
