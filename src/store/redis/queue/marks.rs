//! The marks of leases that were made shorter, as this gateway has left them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::lock::TokenHash;

/// The marks of leases that were made shorter, as this gateway has left them with its last renewal.
///
/// Whoever renews such a lease must name its mark, and would ask for it first. A renewal that knows the
/// mark of the one before it was sent after that one: it is no older than if it had asked.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Mutex<HashMap<TokenHash, Mark>>,
}

#[derive(Debug)]
struct Mark {
    /// None while several renew the lease at once: all of them ask first then, or who knows the mark would
    /// keep out the others.
    text: Option<String>,
    /// When its lease ends, if it is not renewed; or when it may be known again.
    ends: Instant,
}

/// How many are kept. Beyond these a renewal asks first.
const MOST: usize = 16_384;
/// For how long all ask first where several renew a lease at once.
const CONTENDED: Duration = Duration::from_secs(1);

// === impl Marks ===

impl Marks {
    /// The mark of a lease, for one renewal: the next one that is sent before this has been answered, or
    /// after it was not, asks first.
    pub(crate) fn take(&self, token: &TokenHash) -> Option<String> {
        let mut marks = self.lock();
        if let Some(Mark { text: None, ends }) = marks.get(token)
            && Instant::now() < *ends
        {
            return None;
        }
        marks.remove(token).and_then(|mark| mark.text)
    }

    /// Somebody else has renewed the lease between question and renewal.
    pub(crate) fn contended(&self, token: &TokenHash) {
        self.insert(token, None, CONTENDED);
    }

    /// Keeps the mark that a renewal has left, for as long as the lease lasts.
    pub(crate) fn keep(&self, token: &TokenHash, text: String, lasts: Duration) {
        self.insert(token, Some(text), lasts);
    }

    fn insert(&self, token: &TokenHash, text: Option<String>, lasts: Duration) {
        let now = Instant::now();
        let mut marks = self.lock();
        if marks.len() >= MOST {
            marks.retain(|_, mark| now < mark.ends);
        }
        let contended = |mark: &Mark| mark.text.is_none() && now < mark.ends && text.is_some();
        if marks.len() < MOST && !marks.get(token).is_some_and(contended) {
            let ends = now + lasts;
            marks.insert(*token, Mark { text, ends });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use crate::lock::Token;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_kept_and_those_of_ended_leases_make_room() {
        let marks = Marks::default();
        let lasts = Duration::from_secs(1);
        for _ in 0..MOST + 10 {
            marks.keep(&Token::random().hash(), "mark".to_owned(), lasts);
        }
        let late = Token::random().hash();
        assert_eq!(marks.lock().len(), MOST);
        advance(lasts).await;
        marks.keep(&late, "late".to_owned(), lasts);
        assert_eq!(marks.lock().len(), 1);
        assert_eq!(marks.take(&late).as_deref(), Some("late"));
        assert_eq!(marks.take(&late), None);
    }

    #[tokio::test(start_paused = true)]
    async fn where_several_renew_at_once_nobody_knows_the_mark() {
        let marks = Marks::default();
        let (lease, lasts) = (Token::random().hash(), Duration::from_mins(1));
        marks.keep(&lease, "known".to_owned(), lasts);
        marks.contended(&lease);
        assert_eq!(marks.take(&lease), None);
        marks.keep(&lease, "of the fastest".to_owned(), lasts);
        assert_eq!(marks.take(&lease), None);
        advance(CONTENDED).await;
        marks.keep(&lease, "again".to_owned(), lasts);
        assert_eq!(marks.take(&lease).as_deref(), Some("again"));
    }
}
