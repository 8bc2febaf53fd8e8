//! A lease as the scripts tell it.

use std::time::Duration;

use crate::{
    lock::{HeldLease, Salt},
    store::{
        StoreError,
        contract::{Contention, Holder, SharedHolders},
    },
};

use super::super::{client::calls::Reply, keys::Keys, records::Record};

// === impl Reply ===

impl Reply {
    /// The lease in the fields that follow: its text, and the time. If it makes none, it was not written by us.
    pub(super) fn held(&mut self, keys: &Keys) -> Result<HeldLease, StoreError> {
        Ok(self.told(keys)?.0)
    }

    pub(super) fn read_held(&mut self) -> Option<HeldLease> {
        Some(self.read_told()?.0)
    }

    /// The same, with what the token was derived from, and the time.
    pub(super) fn told(
        &mut self,
        keys: &Keys,
    ) -> Result<(HeldLease, Option<Salt>, u64), StoreError> {
        self.read_told().ok_or_else(|| not_ours(keys))
    }

    fn read_told(&mut self) -> Option<(HeldLease, Option<Salt>, u64)> {
        let (text, now) = (self.text()?, self.micros()?);
        let record = Record::read(&text)?;
        Some((record.lease(now, self.sent())?, record.salt(), now))
    }

    /// A lease that was renewed, and how much time it had left before.
    pub(super) fn renewed(&mut self, keys: &Keys) -> Result<(HeldLease, Duration), StoreError> {
        let (held, _, now) = self.told(keys)?;
        let ended = self.micros().ok_or_else(|| self.unexpected())?;
        Ok((held, Duration::from_micros(ended.saturating_sub(now))))
    }

    /// Those who share a lock, in the fields that follow. What of them makes no sense is only counted.
    pub(super) fn shared(&mut self) -> Option<SharedHolders> {
        let (count, look) = (self.count()?, self.count()?);
        self.note_next_look(Duration::from_millis(look));
        let (mut shown, now) = (self.nested()?, self.micros()?);
        let mut leases = Vec::new();
        while !shown.is_over() {
            let text = shown.text()?;
            leases.extend(Record::read(&text).and_then(|record| record.lease(now, self.sent())));
        }
        Some(SharedHolders { leases, count })
    }

    /// What is left of something, in ms; -1: it does not expire.
    #[expect(clippy::option_option, reason = "without an expiry is an answer, too")]
    pub(super) fn rest(&mut self) -> Option<Option<Duration>> {
        let ms = self.integer()?;
        Some(u64::try_from(ms).ok().map(Duration::from_millis))
    }

    pub(super) fn count(&mut self) -> Option<u64> {
        u64::try_from(self.integer()?).ok()
    }

    /// A time of the store, in microseconds.
    pub(super) fn micros(&mut self) -> Option<u64> {
        self.str()?.parse().ok()
    }

    /// A holder that is no gateway's client.
    pub(super) fn foreign(&mut self) -> Option<Holder> {
        Some(Holder::Foreign {
            expires_in: self.rest()?,
            mark: Some(self.mark()?),
        })
    }
}

pub(super) fn not_ours(keys: &Keys) -> StoreError {
    StoreError::ForeignData {
        key: keys.lock().to_owned(),
        found: "a lease that makes no sense".into(),
    }
}

// === Contention ===
//
// What stands between an attempt and a lock, as the scripts tell it.

// === impl Reply ===

impl Reply {
    /// The contention in the fields that follow.
    pub(super) fn contention(&mut self, keys: &Keys) -> Result<Contention, StoreError> {
        let waiters = self.count().ok_or_else(|| self.unexpected())?;
        let holder = match self.text().as_deref() {
            Some("held") => Some(Holder::Lease(self.held(keys)?)),
            Some("shared") => Some(Holder::Shared(
                self.shared().ok_or_else(|| self.unexpected())?,
            )),
            Some("foreign") => Some(self.foreign().ok_or_else(|| self.unexpected())?),
            Some("passing") => None,
            _ => return Err(self.unexpected()),
        };
        Ok(Contention { holder, waiters })
    }
}
