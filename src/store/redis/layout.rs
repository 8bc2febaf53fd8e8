//! What stands where in the texts that the scripts write: a lease, and a ticket of the queue.
//!
//! Both begin with a head of fixed length, which the scripts read, and go on with what only gateways read.
//! Counted from 1, as Lua counts:
//!
//! | `:lock` | what | `:of:ID` | what |
//! |---|---|---|---|
//! | 1..65 | id: `2` and the hash of the token | 1 | `q` queued; `w` granted, not confirmed |
//! | 66 | state: `h` delivered, `u` undelivered, `p` provisional, `k` granted to a place that is kept | 2..17 | gateway; blank: kept for a caller who is away |
//! | 67 | mode: `x` exclusive, `s` shared, `n` shared with a slot | 18 | mode |
//! | 68 | whether it has an idempotency key | 19 | whether it has an idempotency key |
//! | 69 | whether it was answered again under its key: `2` if only to the first who heard of it | 20 | `0` |
//! | 70 | whether a copy of its acquire may arrive late | 21 | whether a copy of its acquire may arrive late |
//! | | | 22..25 | limit: of those that share the lock; else `0000` |
//! | 71..86 | fence | 26..41 | since when it is queued, in µs |
//! | 87..102 | since when it is held, in µs | 42..57 | until when it counts, in µs |
//! | 103..118 | until when it is held, in µs | | |
//! | 119..126 | TTL in ms | 58..65 | TTL in ms |
//! | 127..135 | hold limit in ms; 0: none | 66..74 | hold limit in ms |
//! | 136..151 | blank | 75..90 | blank |
//! | 152..215 | keeper; blank: the attempt | 91..154 | blank |
//! | 216.. | details | 155.. | details |
//!
//! The details are, with an idempotency key, its hash (64), the fingerprint (64) and the salt (32); then the
//! owner, a line feed, and the metadata as JSON; of a lease whose holder was asked
//! to release it, whose mode is then in capital letters, a line feed, `!`, until when in µs (16), and who asks and why
//! as a JSON array; of a lease with a slot, a line feed and the slot. A letter in the place of a ticket says what became of its
//! attempt: `g` given back, or granted while a copy of its acquire may arrive, `a` its lease was adopted, `s` its
//! place was taken over, `r` released, `b` broken (and of a break `x` carried out, `y` not).
//! Beside it `:asked:ID` says until when the holder of a lease was asked to release it, in µs (16), until it does.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    lock::{FencingToken, HeldLease, HoldLimit, Limit, Mode, Owner, Salt, Sharing, TokenHash, Ttl},
    store::contract::{Attempt, Waiter},
};

use super::client::calls::{hex, metadata_from_json, metadata_json, read_request};

/// By what the id of a lease begins; what begins otherwise is foreign.
const LAYOUT: u8 = b'2';
/// By what a ticket begins that stands in the queue.
pub(super) const QUEUED: u8 = b'q';
/// What stands in the place of a lease while several share the lock.
pub(super) const SHARED: &[u8] = b"2*";
/// How long the id is.
pub(super) const ID: usize = 65;
/// How long the head of a lease is, and that of a ticket.
const HEAD: usize = 215;
const TICKET_HEAD: usize = 154;
/// The unused bytes and the keeper of a lease that no stream has adopted: both are blank.
const BLANKS: &str =
    "                                                                                ";
/// How long what belongs to an idempotency key is: its hash, fingerprint and salt.
const KEYED: usize = 64 + 64 + 32;
/// Longer than any lease: an owner and metadata in the widest way to write them.
pub(super) const LONGEST: usize = 16_384;

/// What holds a lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    text: &'a str,
}

/// The name of an attempt, a lease and a ticket in the store.
pub(super) fn id(token: &TokenHash) -> String {
    let mut id = String::with_capacity(ID);
    id.push(char::from(LAYOUT));
    hex::append(&mut id, token.as_bytes());
    id
}

/// Whose id it is.
pub(super) fn token_in(id: &[u8]) -> Option<TokenHash> {
    let (&LAYOUT, hash) = id.get(..ID)?.split_first()? else {
        return None;
    };
    hex::token_hash(std::str::from_utf8(hash).ok()?)
}

/// What an attempt is granted a lease with, from the TTL on.
pub(super) fn pack(attempt: &Attempt) -> String {
    let hold = attempt.hold_limit.map_or(0, HoldLimit::as_millis);
    let mut text = String::with_capacity(512);
    hex::append_number::<8>(&mut text, attempt.ttl.as_millis());
    hex::append_number::<9>(&mut text, hold);
    text.push_str(BLANKS);
    if let Some(key) = &attempt.idempotency {
        for bytes in [
            key.hash.as_bytes().as_slice(),
            key.fingerprint.as_bytes().as_slice(),
            key.salt.as_bytes().as_slice(),
        ] {
            hex::append(&mut text, bytes);
        }
    }
    text.push_str(attempt.owner.as_ref().map_or("", Owner::as_str));
    text.push('\n');
    text.push_str(&metadata_json(&attempt.metadata));
    text
}

/// One who waits, by the ticket; `None` if it makes no sense.
pub(super) fn waiter(ticket: &str, now_us: u64) -> Option<Waiter> {
    let queued = number(ticket, 25, 16)?;
    let keyed = ticket.as_bytes().get(18)? == &b'1';
    let details = ticket.get(TICKET_HEAD + if keyed { KEYED } else { 0 }..)?;
    let owner = details.split('\n').next().unwrap_or_default();
    Some(Waiter {
        // Shown, never trusted: what another hand has written is left out.
        owner: Owner::new(owner).ok(),
        sharing: sharing(ticket)?,
        waited: Duration::from_micros(now_us.saturating_sub(queued)),
    })
}

/// How an attempt wants to share the lock, as a ticket and an acquire say it: a mode, and a limit.
pub(super) fn sharing_text(sharing: Option<Sharing>) -> (char, u16) {
    match sharing {
        None => ('x', 0),
        Some(Sharing { limit, has_slot }) => (if has_slot { 'n' } else { 's' }, limit.get()),
    }
}

/// How one who waits wants to share the lock; `None` if the ticket makes no sense.
#[expect(clippy::option_option, reason = "to be alone is an answer, too")]
fn sharing(ticket: &str) -> Option<Option<Sharing>> {
    let has_slot = match ticket.as_bytes().get(17)? {
        b'x' => return Some(None),
        b's' => false,
        b'n' => true,
        _ => return None,
    };
    let limit = Limit::new(number(ticket, 21, 4)?).ok()?;
    Some(Some(Sharing { limit, has_slot }))
}

fn number(text: &str, from: usize, length: usize) -> Option<u64> {
    let digits = text.get(from..from + length)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok()).flatten()
}

// === impl Record ===

impl<'a> Record<'a> {
    /// A lease, if that is what a text is.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let ours = text.len() >= HEAD && token_in(text.as_bytes()).is_some();
        ours.then_some(Self { text })
    }

    /// By whose id it is.
    pub(super) fn token(&self) -> TokenHash {
        token_in(self.text.as_bytes()).expect("it was read before")
    }

    /// The lease as it is at an instant of the store's clock, which was not before `as_of`. Redis counts in
    /// milliseconds.
    pub(super) fn lease(&self, now_us: u64, as_of: Instant) -> Option<HeldLease> {
        let now = now_us / 1_000;
        let since = number(self.text, 86, 16)? / 1_000;
        let ends = number(self.text, 102, 16)? / 1_000;
        let hold = number(self.text, 126, 9)?;
        let ttl = Ttl::from_millis(number(self.text, 118, 8)?).ok()?;
        let mut expires_in = Duration::from_millis(ends.saturating_sub(now));
        if let b'p' | b'k' = self.text.as_bytes()[65] {
            // That is until when it may be confirmed. From then on it lasts its TTL, which may be over sooner.
            expires_in = expires_in.min(ttl.duration());
        }
        let limit = (hold > 0).then(|| Duration::from_millis((since + hold).saturating_sub(now)));
        let mut details = self.details()?.split('\n');
        let (owner, metadata) = (details.next()?, details.next()?);
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
        let mode = match (self.text.as_bytes()[66].to_ascii_lowercase(), slot) {
            (b'x', None) => Mode::Exclusive,
            (b's', None) => Mode::Shared { slot: None },
            (b'n', Some(slot)) => Mode::Shared {
                slot: Some(slot.parse().ok()?),
            },
            _ => return None,
        };
        Some(HeldLease {
            fence: FencingToken::new(number(self.text, 70, 16)?).ok()?,
            mode,
            ttl,
            expires_in,
            held_for: Duration::from_millis(now.saturating_sub(since)),
            hold_expires_in: limit,
            owner: match owner {
                "" => None,
                owner => Some(Owner::new(owner).ok()?),
            },
            metadata: metadata_from_json(metadata)?,
            release_requested: request,
            as_of,
        })
    }

    /// What its token was derived with.
    pub(super) fn salt(&self) -> Option<Salt> {
        let salt = self
            .keyed()
            .then(|| self.text.get(HEAD + 128..HEAD + KEYED))??;
        hex::read(salt).map(Salt::from_bytes)
    }

    fn keyed(&self) -> bool {
        self.text.as_bytes()[67] == b'1'
    }

    fn details(&self) -> Option<&'a str> {
        self.text.get(HEAD + if self.keyed() { KEYED } else { 0 }..)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::{CallerId, Fingerprint, IdempotencyKey, LockName, Metadata, Token},
        store::contract::Idempotency,
    };

    use super::*;

    const NOW: u64 = 1_795_000_000_000_000;

    fn attempt(keyed: bool) -> Attempt {
        let name = LockName::new("a").unwrap();
        let metadata = [("a".to_owned(), "\"b\\".to_owned())];
        let metadata = Metadata::new(metadata.into()).unwrap();
        let key = keyed.then(|| Idempotency {
            hash: IdempotencyKey::random().hash(&CallerId::ANONYMOUS, &name),
            fingerprint: Fingerprint::of(None, None, None, None, &metadata),
            salt: Salt::from_bytes([7; 16]),
        });
        Attempt {
            name,
            token: Token::random().hash(),
            ttl: Ttl::from_millis(30_000).unwrap(),
            hold_limit: Some(HoldLimit::from_millis(600_000, Ttl::MIN).unwrap()),
            sharing: None,
            owner: Some(Owner::new("ci").unwrap()),
            metadata,
            idempotency: key,
            wait: None,
        }
    }

    /// As `acquire.lua` writes it.
    fn written(attempt: &Attempt) -> String {
        let keyed = u8::from(attempt.idempotency.is_some());
        let (since, ends) = (NOW - 1_000_000, NOW + 5_000_900);
        let id = id(&attempt.token);
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
            assert_eq!((lease.fence.get(), lease.ttl), (7, attempt.ttl));
            assert_eq!(lease.expires_in, Duration::from_secs(5));
            assert_eq!(lease.held_for, Duration::from_secs(1));
            assert_eq!(lease.hold_expires_in, Some(Duration::from_secs(599)));
            assert_eq!(lease.owner, attempt.owner);
            assert_eq!(lease.metadata, attempt.metadata);
            assert_eq!(record.salt(), keyed.then(|| Salt::from_bytes([7; 16])));
        }
    }

    #[test]
    fn a_grant_that_is_not_confirmed_shows_no_more_than_its_ttl() {
        let brief = Attempt {
            ttl: Ttl::from_millis(500).unwrap(),
            ..attempt(false)
        };
        let shown = |state: &str| {
            let mut text = written(&brief);
            text.replace_range(ID..=ID, state);
            let lease = Record::read(&text).unwrap().lease(NOW, Instant::now());
            lease.unwrap().expires_in.as_millis()
        };
        assert_eq!(["p", "k", "h"].map(shown), [500, 500, 5_000]);
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
        attempt.metadata = Metadata::new([(name, value)].into()).unwrap();
        attempt.owner = Some(Owner::new(&"\u{1f600}".repeat(Owner::MAX_CHARS)).unwrap());
        assert!(
            written(&attempt).len() < LONGEST,
            "{}",
            written(&attempt).len()
        );
    }

    #[test]
    fn one_who_waits_is_read_from_the_ticket() {
        for keyed in [false, true] {
            let attempt = attempt(keyed);
            let (gateway, flag) = ("0".repeat(16), u8::from(keyed));
            let (queued, ends) = (NOW - 2_000_000, NOW);
            let ticket = format!("q{gateway}x{flag}000000{queued}{ends}{}", pack(&attempt));
            let waiter = waiter(&ticket, NOW).unwrap();
            assert_eq!(waiter.owner, attempt.owner);
            assert_eq!(waiter.waited, Duration::from_secs(2));
        }
        assert_eq!(waiter("g", NOW), None);
    }
}
