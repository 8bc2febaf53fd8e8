//! How long a server that does not answer is asked again for what only reads.

use tokio::time::{Duration, Instant, sleep};

use crate::store::{StoreError, Uncertainty};

use super::{
    dispatch::Pauses,
    failure::{ACL_LINE, Failure, hint},
};

/// How a read is repeated: it changes nothing, so that repeating it is safe.
pub(crate) struct RetryPolicy {
    start: Instant,
    pauses: Pauses,
}

/// For how long it is asked again.
const LONGEST: Duration = Duration::from_secs(1);

// === impl RetryPolicy ===

impl RetryPolicy {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            pauses: Pauses::new(),
        }
    }

    /// Pauses if asking again may help; else says why there is no answer.
    pub(crate) async fn pause_or_fail(&mut self, failure: Failure) -> Result<(), StoreError> {
        let (error, again): (StoreError, _) = match failure {
            Failure::Transient(why) | Failure::WrongNode(why) | Failure::Moving(why) => {
                (why.into(), true)
            }
            Failure::Elsewhere(redirect) => (redirect.reason().into(), true),
            Failure::Refused(why) => (hint(why, ACL_LINE).into(), false),
            Failure::Unknown(why @ Uncertainty::UnexpectedReply(_)) => (why.into(), false),
            Failure::Unknown(why) => (why.into(), true),
            Failure::NoScript | Failure::WrongType => {
                let what = "a plain read answered what it cannot answer".to_owned();
                (Uncertainty::UnexpectedReply(what).into(), false)
            }
        };
        let pause = self.pauses.next();
        if !again || self.start.elapsed() + pause >= LONGEST {
            return Err(error);
        }
        sleep(pause).await;
        Ok(())
    }
}
