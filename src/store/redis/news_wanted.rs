//! For how long other gateways want to hear the news of this one.

use std::{sync::Mutex, time::Duration};

use tokio::sync::Notify;

use super::gateway::GatewayId;

/// What other gateways have asked, until somebody looks at it.
#[derive(Debug, Default)]
pub(super) struct NewsWanted {
    lasts: Mutex<Option<Duration>>,
    asked: Notify,
}

/// Nobody asks for longer, whatever a message says: whoever asks, asks again.
const LONGEST: Duration = Duration::from_mins(1);

// === impl NewsWanted ===

impl NewsWanted {
    /// Takes in what a gateway has asked: its id, and for how long in milliseconds. What this one
    /// has asked itself comes back to it, and is no reason to send anything.
    pub(super) fn hear(&self, asked: &str, me: &GatewayId) {
        let mut words = asked.split(' ');
        let (id, lasts) = (words.next(), words.next().map(str::parse));
        if let (Some(id), Some(Ok(ms))) = (id, lasts)
            && id != me.as_str()
        {
            *self.lock() = Some(Duration::from_millis(ms).min(LONGEST));
            self.asked.notify_one();
        }
    }

    /// Ends when something was asked since the last call.
    pub(super) async fn next(&self) -> Duration {
        loop {
            if let Some(lasts) = self.lock().take() {
                return lasts;
            }
            self.asked.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Duration>> {
        self.lasts
            .lock()
            .expect("no code panics while it holds what was asked")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_others_ask_is_heard_once_and_what_we_asked_ourselves_is_not() {
        let (wanted, me) = (NewsWanted::default(), GatewayId::random());
        wanted.hear(&format!("{} 5000", me.as_str()), &me);
        for odd in ["", "x", "x y", "x -1"] {
            wanted.hear(odd, &me);
        }
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.hear("another 5000", &me);
        assert_eq!(wanted.next().await, Duration::from_secs(5));
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.hear(&format!("another {}", u64::MAX), &me);
        assert_eq!(wanted.next().await, LONGEST);
    }
}
