//! The terms of a lease: TTL, hold limit, idempotency key, owner and metadata. This text is an argument of acquire, and
//! the end of each ticket and each lease.

use crate::{
    lock::{Ends, HoldLimit, MinHold, Terms, Ttl},
    store::contract::Attempt,
};

use super::super::{
    client::{append_hex, append_number, append_said},
    fields::{Field, Layout},
};

pub(in crate::store::redis) const PACKED: Layout = Layout {
    name: "packed",
    groups: &[GRANT],
};

/// The fields of the terms of a lease, which are followed by the owner, a line feed, and the metadata as JSON. The last
/// three fields exist only if the attempt has an idempotency key.
pub(super) const GRANT: &[Field] = &[
    // `ttl` and `hold_limit` of the lease in ms. A hold limit of 0 means no limit, and `RESERVED` a reservation.
    ("ttl", 8),
    ("hold_limit", 9),
    // How long the lock rests after the grant, in ms, if the lease is released earlier; 0 for no rest.
    ("min_hold", 8),
    // A blank recipient: the attempt itself is the recipient of the lease.
    ("recipient", 64),
    // `key`, fingerprint and salt of the idempotency key are in hexadecimal digits.
    ("key", 64),
    ("fingerprint", 64),
    ("salt", 32),
];

/// The hold limit of a reservation, longer than any other. The reservation ends at the time in its metadata.
pub(super) const RESERVED: u64 = 999_999_999;

/// Length of the fields of an idempotency key in the terms of a lease.
pub(super) const KEYED: usize = PACKED.place("salt").end - PACKED.place("recipient").end;

const BLANKS: &str = match std::str::from_utf8(&[b' '; 64]) {
    Ok(blanks) => blanks,
    Err(_) => panic!("blanks are ASCII"),
};

/// How long a lease lasts if it is granted now, in ms; for a reservation its end, as a time in ms. Scripts take a
/// number above the longest TTL for a time.
pub(in crate::store::redis) fn lasts(terms: &Terms) -> u64 {
    match &terms.ends {
        Ends::Ttl { ttl, hold_limit } => {
            let ttl = ttl.as_millis();
            hold_limit.map_or(ttl, |limit| ttl.min(limit.as_millis()))
        }
        Ends::At(reservation) => reservation.until_ms.max(Ttl::MAX.as_millis() + 1),
    }
}

/// Packs the terms of the lease that an attempt asks for into a text.
pub(in crate::store::redis) fn pack(attempt: &Attempt) -> String {
    let terms = &attempt.terms;
    let hold = match terms.ends {
        Ends::Ttl { hold_limit, .. } => hold_limit.map_or(0, HoldLimit::as_millis),
        Ends::At(_) => RESERVED,
    };
    let mut text = String::with_capacity(512);
    append_number::<8>(&mut text, terms.ttl().as_millis());
    append_number::<9>(&mut text, hold);
    append_number::<8>(&mut text, terms.min_hold.map_or(0, MinHold::as_millis));
    text.push_str(BLANKS);
    if let Some(key) = &attempt.idempotency {
        for bytes in [
            key.hash.as_bytes().as_slice(),
            key.fingerprint.as_bytes().as_slice(),
            key.salt.as_bytes().as_slice(),
        ] {
            append_hex(&mut text, bytes);
        }
    }
    append_said(&mut text, terms);
    text
}

#[cfg(test)]
pub(super) mod tests {
    use crate::{
        lock::{
            CallerId, IdempotencyKey, LockName, Metadata, Owner, Reason, Reservation, Said, Salt,
            Token,
        },
        store::contract::Idempotency,
    };

    use super::{super::super::client::hex, *};

    pub(crate) fn attempt(keyed: bool) -> Attempt {
        let name = LockName::new("a").unwrap();
        let metadata = [("a".to_owned(), "\"b\\".to_owned())];
        let ttl = Ttl::from_millis(30_000).unwrap();
        let mut terms = Terms::lasting(ttl);
        terms.ends = Ends::Ttl {
            ttl,
            hold_limit: HoldLimit::from_millis(600_000, ttl).ok(),
        };
        terms.said = Said {
            owner: Owner::new("ci").ok(),
            metadata: Metadata::new(metadata.into()).unwrap(),
            group: None,
            order: None,
        };
        let key = keyed.then(|| Idempotency {
            hash: IdempotencyKey::random().hash(&CallerId::ANONYMOUS, &name),
            fingerprint: terms.fingerprint(),
            salt: Salt::from_bytes([7; 16]),
        });
        Attempt {
            name,
            token: Token::random().hash(),
            terms,
            idempotency: key,
            wait: None,
        }
    }

    #[test]
    fn each_part_is_written_in_its_place() {
        let blanks = " ".repeat(64);
        for (min_hold, digits) in [(None, "00000000"), (Some(20_000), "00020000")] {
            let mut asked = attempt(false);
            asked.terms.min_hold = min_hold.map(|ms| MinHold::from_millis(ms, Ttl::MAX).unwrap());
            assert_eq!(
                pack(&asked),
                format!("00030000000600000{digits}{blanks}ci\n{{\"a\":\"\\\"b\\\\\"}}")
            );
        }
        let until_ms = 1_796_400_000_000;
        let (reason, by) = (Reason::new("load test").unwrap(), Some("ops".into()));
        let mut reserved = attempt(false);
        reserved.terms.ends = Ends::At(Box::new(Reservation {
            until_ms,
            reason,
            by,
        }));
        let metadata = r#"{"":"@1796400000000\tops\tload test","a":"\"b\\"}"#;
        let expected = format!("8640000099999999900000000{blanks}ci\n{metadata}");
        assert_eq!(pack(&reserved), expected);
        let attempt = attempt(true);
        let packed = pack(&attempt);
        let key = attempt.idempotency.unwrap();
        for (field, bytes) in [
            ("key", key.hash.as_bytes().as_slice()),
            ("fingerprint", key.fingerprint.as_bytes().as_slice()),
            ("salt", &[7; 16]),
        ] {
            assert_eq!(packed[PACKED.place(field)], hex(bytes), "{field}");
        }
        assert!(packed[PACKED.place("salt").end..].starts_with("ci\n"));
    }
}
