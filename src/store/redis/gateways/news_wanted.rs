//! For how long other gateways want to hear the news of this one.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::super::keys::GatewayId;

/// What other gateways have asked, until somebody looks at it.
#[derive(Debug, Default)]
pub(crate) struct NewsWanted {
    lasts: Mutex<Option<Duration>>,
    asked: Notify,
    /// Until when this gateway has asked itself.
    ours: Mutex<Option<Instant>>,
    newcomer: Notify,
}

/// Nobody asks for longer, whatever a message says: whoever asks, asks again.
const LONGEST: Duration = Duration::from_mins(1);

// === impl NewsWanted ===

impl NewsWanted {
    /// Takes in what a gateway has asked: its id, and for how long in milliseconds. What this one
    /// has asked itself comes back to it, and is no reason to send anything.
    pub(crate) fn note_request(&self, asked: &str, me: &GatewayId) {
        let mut words = asked.split(' ');
        let (id, lasts) = (words.next(), words.next().map(str::parse));
        if let (Some(id), Some(Ok(ms))) = (id, lasts)
            && id != me.as_str()
        {
            *self.lasts.lock() = Some(Duration::from_millis(ms).min(LONGEST));
            self.asked.notify_one();
        }
    }

    /// Takes in that a gateway with this id has come. It was not there when this one asked.
    pub(crate) fn note_newcomer(&self, id: &str, me: &GatewayId) {
        if id != me.as_str() {
            self.newcomer.notify_one();
        }
    }

    /// This gateway asks all others for so long.
    pub(crate) fn ask(&self, lasts: Duration) {
        let until = Instant::now() + lasts.min(LONGEST);
        *self.ours.lock() = Some(until);
    }

    /// Ends when a gateway has come that does not know yet that this one wants news, with for how long.
    pub(crate) async fn newcomer(&self) -> Duration {
        loop {
            self.newcomer.notified().await;
            let ours = *self.ours.lock();
            let left = ours.map(|until| until.saturating_duration_since(Instant::now()));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                return left;
            }
        }
    }

    /// Ends when something was asked since the last call.
    pub(crate) async fn next(&self) -> Duration {
        loop {
            if let Some(lasts) = self.lasts.lock().take() {
                return lasts;
            }
            self.asked.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test]
    async fn what_others_ask_is_answered_once_and_what_we_asked_ourselves_is_not() {
        let (wanted, me) = (NewsWanted::default(), GatewayId::random());
        wanted.note_request(&format!("{} 5000", me.as_str()), &me);
        for odd in ["", "x", "x y", "x -1"] {
            wanted.note_request(odd, &me);
        }
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.note_request("another 5000", &me);
        assert_eq!(wanted.next().await, Duration::from_secs(5));
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.note_request(&format!("another {}", u64::MAX), &me);
        assert_eq!(wanted.next().await, LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_is_asked_as_long_as_we_want_news() {
        let (wanted, me) = (NewsWanted::default(), GatewayId::random());
        let lasts = Duration::from_secs(10);
        wanted.note_newcomer("another", &me);
        assert_eq!(wanted.newcomer().now_or_never(), None, "we want none");
        wanted.ask(lasts);
        wanted.note_newcomer(me.as_str(), &me);
        assert_eq!(wanted.newcomer().now_or_never(), None, "it is ourselves");
        wanted.note_newcomer("another", &me);
        assert_eq!(wanted.newcomer().now_or_never(), Some(lasts));
        advance(lasts).await;
        wanted.note_newcomer("another", &me);
        assert_eq!(wanted.newcomer().now_or_never(), None, "no longer");
    }
}
