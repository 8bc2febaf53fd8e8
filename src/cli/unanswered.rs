//! Says it if something that is owed to others takes so long that somebody may wonder.

use std::pin::pin;

use tokio::time::timeout;

use crate::lock::LockName;

use super::{output, signals::OWED};

/// Does it, and says so if there is no answer for more than a moment.
pub(super) async fn aloud<T>(name: &LockName, what: &str, owed: impl Future<Output = T>) -> T {
    let mut owed = pin!(owed);
    if let Ok(done) = timeout(OWED, &mut owed).await {
        return done;
    }
    output::note(&format!("latchgate: {name}: {what}"));
    owed.await
}
