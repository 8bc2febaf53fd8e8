//! The record of a lease, which is the value of `:lock`, or a value in the hash `:leases` of a shared lock.
//!
//! The fields are followed by the owner, a line feed and the metadata as JSON; after a release request also by a line
//! feed, `!` and the request; in a lease with a slot also by a line feed and the slot.

use std::{ops::Range, time::Duration};

use tokio::time::Instant;

use crate::lock::{FencingToken, HeldLease, Mode, Salt, TokenHash, Ttl};

use super::{
    super::{
        client::{read_hex, read_request, read_said},
        fields::{Layout, number},
    },
    id::token_in,
    packed::{GRANT, KEYED, RESERVED},
    ticket::MARKS,
};

pub(in crate::store::redis) const LEASE: Layout = Layout {
    name: "lease",
    groups: &[
        &[
            ("id", 65),
            // State of the lease: `h` delivered, `u` undelivered, `p` provisional, `k` granted to a kept position;
            // `r` released, and the lock or the slot rests until the end. The id of a rest is that of no attempt, and
            // a rest has no idempotency key, owner or metadata (`parts/rest.lua`).
            ("state", 1),
        ],
        MARKS,
        &[
            ("fence", 16),
            // `since` and `ends`: since when the lease is held, and when it ends, in µs.
            ("since", 16),
            ("ends", 16),
        ],
        GRANT,
    ],
};

/// Value of `:lock` while several leases share the lock.
pub(in crate::store::redis) const SHARED: &[u8] = b"2*";
/// How much of a lease is read: more than the longest lease, whose owner and metadata are escaped in the longest way.
pub(in crate::store::redis) const MAX_LEASE_BYTES: usize = 16_384;
/// Length of the fields at the beginning of a record that every lease has.
const HEAD: usize = LEASE.place("recipient").end;

/// The record of a lease, as a text.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct Record<'a> {
    text: &'a str,
}

// === impl Record ===

impl<'a> Record<'a> {
    /// Reads the record of a lease from a text; `None` if the text does not begin as a lease.
    pub(in crate::store::redis) fn read(text: &'a str) -> Option<Self> {
        let ours = text.len() >= HEAD && token_in(text.as_bytes()).is_some();
        ours.then_some(Self { text })
    }

    /// The hash of the lease's token, which the id of the lease contains.
    pub(in crate::store::redis) fn token(&self) -> TokenHash {
        token_in(self.text.as_bytes()).expect("it was read before")
    }

    /// The lease at an instant of the store's clock, which was not before `as_of`; `None` if the record cannot be read.
    /// Times are cut to milliseconds, because Redis counts in them.
    pub(in crate::store::redis) fn lease(&self, now_us: u64, as_of: Instant) -> Option<HeldLease> {
        let now = now_us / 1_000;
        let since = number(self.text, const { LEASE.place("since") })? / 1_000;
        let ends = number(self.text, const { LEASE.place("ends") })? / 1_000;
        let hold = number(self.text, const { LEASE.place("hold_limit") })?;
        let ttl = Ttl::from_millis(number(self.text, const { LEASE.place("ttl") })?).ok()?;
        let mut expires_in = Duration::from_millis(ends.saturating_sub(now));
        if let b'p' | b'k' = self.byte(const { LEASE.place("state") }) {
            // The end of a provisional lease is the end of its time to be confirmed. After the confirmation the lease
            // lasts its TTL, so the shorter time is shown.
            expires_in = expires_in.min(ttl.duration());
        }
        let is_resting = self.byte(const { LEASE.place("state") }) == b'r';
        let mut details = self.details()?.split('\n');
        let (said, reservation) = read_said(details.next()?, details.next()?)?;
        let reservation = reservation.filter(|_| hold == RESERVED);
        let hold_ends = match hold {
            0 => None,
            // The rest of a reservation lasts no longer than its minimum hold, and has no metadata.
            RESERVED if is_resting => None,
            RESERVED => Some(reservation.as_ref()?.until_ms),
            limit => Some(since + limit),
        };
        let (mut slot, mut request) = (None, None);
        for line in details {
            match line.strip_prefix('!') {
                Some(line) => {
                    let within = |ends: u64| Duration::from_micros(ends.saturating_sub(now_us));
                    request = Some(Box::new(read_request(line, within)?));
                }
                None => slot = Some(line),
            }
        }
        let mode = match (
            self.byte(const { LEASE.place("mode") })
                .to_ascii_lowercase(),
            slot,
        ) {
            (b'x', None) => Mode::Exclusive,
            (b's', None) => Mode::Shared { slot: None },
            (b'n', Some(slot)) => Mode::Shared {
                slot: Some(slot.parse().ok()?),
            },
            _ => return None,
        };
        Some(HeldLease {
            fence: FencingToken::new(number(self.text, const { LEASE.place("fence") })?).ok()?,
            mode,
            is_resting,
            ttl,
            expires_in,
            held_for: Duration::from_millis(now.saturating_sub(since)),
            hold_expires_in: hold_ends.map(|ends| Duration::from_millis(ends.saturating_sub(now))),
            reservation: reservation.map(Box::new),
            said,
            release_requested: request,
            as_of,
        })
    }

    /// The salt from which the token was derived, if the lease has an idempotency key.
    pub(in crate::store::redis) fn salt(&self) -> Option<Salt> {
        let salt = self
            .keyed()
            .then(|| self.text.get(const { LEASE.place("salt") }))??;
        read_hex(salt).map(Salt::from_bytes)
    }

    fn byte(&self, place: Range<usize>) -> u8 {
        self.text.as_bytes()[place.start]
    }

    fn keyed(&self) -> bool {
        self.byte(const { LEASE.place("keyed") }) == b'1'
    }

    fn details(&self) -> Option<&'a str> {
        self.text.get(HEAD + if self.keyed() { KEYED } else { 0 }..)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::{Metadata, Owner, Terms},
        store::{
            contract::Attempt,
            redis::records::{ID, pack, packed::tests::attempt},
        },
    };

    use super::*;

    const NOW: u64 = 1_795_000_000_000_000;

    /// The lease of an attempt, as `acquire.lua` writes it.
    fn written(attempt: &Attempt) -> String {
        let keyed = u8::from(attempt.idempotency.is_some());
        let (since, ends) = (NOW - 1_000_000, NOW + 5_000_900);
        let id = crate::store::redis::records::id(&attempt.token);
        let rest = pack(attempt);
        format!("{id}hx{keyed}00{:016}{since}{ends}{rest}", 7)
    }

    #[test]
    fn a_lease_comes_back_from_its_own_text() {
        for keyed in [false, true] {
            let attempt = attempt(keyed);
            let text = written(&attempt);
            let record = Record::read(&text).unwrap();
            assert_eq!(record.token(), attempt.token);
            let lease = record.lease(NOW, Instant::now()).unwrap();
            assert_eq!((lease.fence.get(), lease.ttl), (7, attempt.terms.ttl()));
            assert_eq!(lease.expires_in, Duration::from_secs(5));
            assert_eq!(lease.held_for, Duration::from_secs(1));
            assert_eq!(lease.hold_expires_in, Some(Duration::from_secs(599)));
            assert_eq!(lease.said, attempt.terms.said);
            assert_eq!(record.salt(), keyed.then(|| Salt::from_bytes([7; 16])));
        }
    }

    #[test]
    fn a_lease_is_read_from_the_bytes_that_other_gateways_have_written() {
        let token = "5".repeat(64);
        let text = format!(
            "2{token}hN000{}{}{}0003000000060000000000000{}ci\n{{\"a\":\"b\"}}\n!{}[null,\"deploy\"]\n12",
            "0000000000000007",
            "1794999999000000",
            "1795000005000900",
            " ".repeat(64),
            "1795000004000000",
        );
        let record = Record::read(&text).unwrap();
        assert_eq!(record.token().to_string(), token);
        let lease = record.lease(NOW, Instant::now()).unwrap();
        assert_eq!(lease.mode, Mode::Shared { slot: Some(12) });
        assert_eq!((lease.fence.get(), lease.ttl.as_millis()), (7, 30_000));
        assert_eq!(lease.hold_expires_in, Some(Duration::from_secs(599)));
        assert_eq!(lease.said.owner, Some(Owner::new("ci").unwrap()));
        assert_eq!(lease.said.metadata.iter().collect::<Vec<_>>(), [("a", "b")]);
        let request = lease.release_requested.unwrap();
        assert_eq!(request.within, Duration::from_secs(4));
    }

    #[test]
    fn a_reservation_lasts_until_the_time_in_its_metadata() {
        let token = "5".repeat(64);
        let written = |entry: &str| {
            let (since, ends) = (NOW - 1_000_000, NOW + 5_000_000);
            let recipient = " ".repeat(64);
            format!(
                "2{token}hx000{:016}{since}{ends}0003000099999999900000000{recipient}ci\n{entry}",
                7
            )
        };
        let text = written(r#"{"":"@1795000006000\tops\tload test","a":"b"}"#);
        let lease = Record::read(&text)
            .unwrap()
            .lease(NOW, Instant::now())
            .unwrap();
        assert_eq!(lease.expires_in, Duration::from_secs(5));
        assert_eq!(lease.hold_expires_in, Some(Duration::from_secs(6)));
        assert_eq!(lease.said.metadata.iter().count(), 1);
        let reservation = lease.reservation.unwrap();
        assert_eq!(
            (reservation.until_ms, reservation.reason.as_str()),
            (1_795_000_006_000, "load test")
        );
        // Without its time, a reservation is no lease.
        let text = written(r#"{"a":"b"}"#);
        assert_eq!(
            Record::read(&text).unwrap().lease(NOW, Instant::now()),
            None
        );
    }

    #[test]
    fn a_grant_that_is_not_confirmed_shows_no_more_than_its_ttl() {
        let mut brief = attempt(false);
        brief.terms = Terms::lasting(Ttl::from_millis(500).unwrap());
        let shown = |state: &str| {
            let mut text = written(&brief);
            text.replace_range(LEASE.place("state"), state);
            let lease = Record::read(&text).unwrap().lease(NOW, Instant::now());
            lease.unwrap().expires_in.as_millis()
        };
        assert_eq!(["p", "k", "h"].map(shown), [500, 500, 5_000]);
    }

    #[test]
    fn an_id_begins_a_lease() {
        assert_eq!(ID.place("token").end, LEASE.place("id").end);
    }

    #[test]
    fn what_is_no_lease_makes_none() {
        let text = written(&attempt(true));
        assert!(Record::read(&text[..HEAD - 1]).is_none());
        assert!(Record::read(&text.replacen('2', "1", 1)).is_none());
        assert!(Record::read(&text.replacen('2', "2*", 1)).is_none());
        assert!(Record::read("theirs").is_none());
        let cut = Record::read(&text[..HEAD]).unwrap();
        assert_eq!((cut.lease(NOW, Instant::now()), cut.salt()), (None, None));
        let odd = text.replace("00030000", "+0030000");
        assert_eq!(Record::read(&odd).unwrap().lease(NOW, Instant::now()), None);
        assert!(
            Record::read(&format!("{}ä", &text[..HEAD - 1]))
                .is_some_and(|it| it.lease(NOW, Instant::now()).is_none())
        );
    }

    #[test]
    fn no_lease_is_longer_than_what_is_read_of_one() {
        let (name, value) = ("a".to_owned(), "\"".repeat(Metadata::MAX_BYTES - 1));
        let mut attempt = attempt(true);
        attempt.terms.said.metadata = Metadata::new([(name, value)].into()).unwrap();
        attempt.terms.said.owner = Some(Owner::new(&"\u{1f600}".repeat(Owner::MAX_CHARS)).unwrap());
        assert!(
            written(&attempt).len() < MAX_LEASE_BYTES,
            "{}",
            written(&attempt).len()
        );
    }
}
