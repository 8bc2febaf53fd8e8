//! The marks of leases that were made shorter, as this gateway has left them, and how a renewal names them.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    lock::{LockName, TokenHash, Ttl},
    store::{StoreError, Unavailability, Uncertainty},
};

use super::{super::dispatch::DispatchReply, Reply};

/// The marks of leases that were made shorter, as this gateway has left them with its last renewal.
///
/// Whoever renews such a lease must name its mark, and would ask for it first. A renewal that knows the
/// mark of the one before it was sent after that one: it is no older than if it had asked.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Mutex<HashMap<MarkedLease, Mark>>,
}

/// With the name, because the leases of a group have one token.
type MarkedLease = (LockName, TokenHash);

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
    pub(crate) fn take(&self, lease: &MarkedLease) -> Option<String> {
        let mut marks = self.lock();
        if let Some(Mark { text: None, ends }) = marks.get(lease)
            && Instant::now() < *ends
        {
            return None;
        }
        marks.remove(lease).and_then(|mark| mark.text)
    }

    /// Somebody else has renewed the lease between question and renewal.
    pub(crate) fn contended(&self, lease: &MarkedLease) {
        self.insert(lease, None, CONTENDED);
    }

    /// Keeps the mark that a renewal has left, for as long as the lease lasts.
    pub(crate) fn keep(&self, lease: &MarkedLease, text: String, lasts: Duration) {
        self.insert(lease, Some(text), lasts);
    }

    fn insert(&self, lease: &MarkedLease, text: Option<String>, lasts: Duration) {
        let now = Instant::now();
        let mut marks = self.lock();
        if marks.len() >= MOST {
            marks.retain(|_, mark| now < mark.ends);
        }
        let contended = |mark: &Mark| mark.text.is_none() && now < mark.ends && text.is_some();
        if marks.len() < MOST && !marks.get(lease).is_some_and(contended) {
            let ends = now + lasts;
            marks.insert(lease.clone(), Mark { text, ends });
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MarkedLease, Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === Marked renewal ===
//
// A renewal that does not know the mark of its lease is answered with it, and sent again.

/// A renewal, until it has named the mark that its lease has.
#[derive(Debug)]
pub(crate) struct MarkedRenewal<'a> {
    marks: &'a Marks,
    lease: MarkedLease,
    /// The mark that the lease is known to have; empty if none is known.
    named: String,
    /// The mark that the lease has afterwards, if one was named. All copies of the command leave the same.
    left: String,
    /// How often it was answered with another mark.
    tries: usize,
    /// Why an earlier command may have been carried out, if one may.
    earlier: Option<Uncertainty>,
}

/// How often a renewal is sent: each time somebody else has renewed the lease in between.
const TRIES: usize = 16;

// === impl MarkedRenewal ===

impl<'a> MarkedRenewal<'a> {
    pub(crate) fn new(marks: &'a Marks, name: &LockName, token: &TokenHash) -> Self {
        let lease = (name.clone(), *token);
        let mut renewal = Self {
            marks,
            lease,
            named: String::new(),
            left: String::new(),
            tries: 0,
            earlier: None,
        };
        if let Some(mark) = marks.take(&renewal.lease) {
            renewal.name(mark);
        }
        renewal
    }

    fn name(&mut self, mark: String) {
        self.named = mark;
        // Without a mark none is left that anybody must know.
        if !self.named.is_empty() {
            self.left = random_mark();
        }
    }

    /// The mark that the next command names; empty if none is known.
    pub(crate) fn named(&self) -> &str {
        &self.named
    }

    /// The mark that a copy of the next command leaves, given the TTL that it asks for. A copy that names none has a mark
    /// of its own, so that the mark of a copy whose reply was lost is never named.
    pub(crate) fn leaves(&self, ttl: Option<Ttl>) -> Cow<'_, str> {
        match (self.named.is_empty(), ttl) {
            (false, _) => Cow::Borrowed(&self.left),
            (true, Some(_)) => Cow::Owned(random_mark()),
            (true, None) => Cow::Borrowed(""),
        }
    }

    /// Takes what a command was answered. `None`: the lease has another mark, which the next command names.
    pub(crate) fn answered(
        &mut self,
        answer: Result<DispatchReply, StoreError>,
    ) -> Result<Option<Reply>, StoreError> {
        let mut answer = answer.map_err(|error| self.known(error))?;
        self.earlier = answer.earlier.or(self.earlier.take());
        if answer.reply.kind() != "marked" {
            return Ok(Some(answer.reply));
        }
        let mark = answer.reply.text();
        self.name(mark.ok_or_else(|| answer.reply.unexpected())?);
        self.tries += 1;
        if self.tries == TRIES {
            return Err(self.known(Unavailability::Overloaded.into()));
        }
        if self.tries > 1 {
            self.marks.contended(&self.lease);
        }
        Ok(None)
    }

    /// Keeps the mark that was left, for as long as the lease lasts.
    pub(crate) fn keep(self, lasts: Duration) {
        if !self.named.is_empty() {
            self.marks.keep(&self.lease, self.left, lasts);
        }
    }

    /// What is known of a renewal of which an earlier command may have been carried out.
    fn known(&self, error: StoreError) -> StoreError {
        match (error, &self.earlier) {
            (StoreError::Unavailable(_), Some(unknown)) => unknown.clone().into(),
            (error, _) => error,
        }
    }
}

/// Tells commands, and copies of a command, apart. Two equal marks would let a late copy change a lease.
fn random_mark() -> String {
    let mark = getrandom::u64().expect("a running system has a source of random bytes");
    format!("{mark:016x}")
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use crate::lock::Token;

    use super::*;

    fn lease() -> MarkedLease {
        (LockName::new("job").unwrap(), Token::random().hash())
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_kept_and_those_of_ended_leases_make_room() {
        let marks = Marks::default();
        let lasts = Duration::from_secs(1);
        for _ in 0..MOST + 10 {
            marks.keep(&lease(), "mark".to_owned(), lasts);
        }
        let late = lease();
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
        let (lease, lasts) = (lease(), Duration::from_mins(1));
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
