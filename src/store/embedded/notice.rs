//! What an attempt that stood in the queue is to be told.

use std::time::Duration;

use crate::{
    lock::{LockName, TokenHash},
    store::parking::{News, Parking},
};

use super::lease::aged;

/// News for one attempt. They wait until what they say is durable.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
    pub(super) news: News,
}

/// A grant by hand-off of which nobody could be told.
#[derive(Debug, Clone)]
pub(super) struct UndeliveredGrant {
    pub(super) name: LockName,
    pub(super) token: TokenHash,
}

// === impl Notice ===

impl Notice {
    /// Tells the attempt, so much later than the news came about. Answers a grant that nobody was
    /// there to hear of.
    pub(super) fn deliver(self, parking: &Parking, later: Duration) -> Option<UndeliveredGrant> {
        let Self { name, token, news } = self;
        let news = match news {
            News::Granted(held) => News::Granted(aged(held, later)),
            other @ (News::GrantedProvisionally | News::Superseded | News::Forgotten) => other,
        };
        match news {
            // It took so long that the lease is over, and its holder would act on it.
            News::Granted(held) if held.expires_in.is_zero() => {
                let _delivered = parking.deliver(&token, News::Forgotten);
                None
            }
            granted @ News::Granted(_) => {
                let delivered = parking.deliver(&token, granted);
                (!delivered).then_some(UndeliveredGrant { name, token })
            }
            other => {
                // Whoever has gone needs no news of this kind.
                let _delivered = parking.deliver(&token, other);
                None
            }
        }
    }
}
