//! The terms of a lease: TTL, hold limit, idempotency key, owner and metadata. This text is an argument of acquire, and
//! the end of each ticket and each lease.

use crate::{
    lock::{HoldLimit, MinHold, Owner},
    store::contract::Attempt,
};

use super::super::{
    client::{append_hex, append_number, metadata_json},
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
    // A blank keeper: the attempt itself is the keeper of the lease.
    ("keeper", 64),
    // `key`, fingerprint and salt of the idempotency key are in hexadecimal digits.
    ("key", 64),
    ("fingerprint", 64),
    ("salt", 32),
];

/// The hold limit of a reservation, longer than any other. The reservation ends at the time in its metadata.
pub(super) const RESERVED: u64 = 999_999_999;

/// Length of the fields of an idempotency key in the terms of a lease.
pub(super) const KEYED: usize = PACKED.place("salt").end - PACKED.place("keeper").end;

const BLANKS: &str = match std::str::from_utf8(&[b' '; 64]) {
    Ok(blanks) => blanks,
    Err(_) => panic!("blanks are ASCII"),
};

/// Packs the terms of the lease that an attempt asks for into a text.
pub(in crate::store::redis) fn pack(attempt: &Attempt) -> String {
    let hold = match attempt.metadata.reservation() {
        Some(_) => RESERVED,
        None => attempt.hold_limit.map_or(0, HoldLimit::as_millis),
    };
    let mut text = String::with_capacity(512);
    append_number::<8>(&mut text, attempt.ttl.as_millis());
    append_number::<9>(&mut text, hold);
    append_number::<8>(&mut text, attempt.min_hold.map_or(0, MinHold::as_millis));
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
    text.push_str(attempt.owner.as_ref().map_or("", Owner::as_str));
    text.push('\n');
    text.push_str(&metadata_json(&attempt.metadata));
    text
}

#[cfg(test)]
pub(super) mod tests {
    use crate::{
        lock::{
            CallerId, Fingerprint, HoldLimit, IdempotencyKey, LockName, Metadata, Reason,
            Reservation, Salt, Token, Ttl,
        },
        store::contract::Idempotency,
    };

    use super::{super::super::client::hex, *};

    pub(crate) fn attempt(keyed: bool) -> Attempt {
        let name = LockName::new("a").unwrap();
        let metadata = [("a".to_owned(), "\"b\\".to_owned())];
        let metadata = Metadata::new(metadata.into()).unwrap();
        let key = keyed.then(|| Idempotency {
            hash: IdempotencyKey::random().hash(&CallerId::ANONYMOUS, &name),
            fingerprint: Fingerprint::compute(None, None, None, None, &metadata),
            salt: Salt::from_bytes([7; 16]),
        });
        Attempt {
            name,
            token: Token::random().hash(),
            ttl: Ttl::from_millis(30_000).unwrap(),
            hold_limit: Some(HoldLimit::from_millis(600_000, Ttl::MIN).unwrap()),
            min_hold: None,
            sharing: None,
            owner: Some(Owner::new("ci").unwrap()),
            metadata,
            idempotency: key,
            wait: None,
        }
    }

    #[test]
    fn each_part_is_written_in_its_place() {
        let blanks = " ".repeat(64);
        for (min_hold, digits) in [(None, "00000000"), (Some(20_000), "00020000")] {
            let min_hold = min_hold.map(|ms| MinHold::from_millis(ms, Ttl::MAX).unwrap());
            let packed = pack(&Attempt {
                min_hold,
                ..attempt(false)
            });
            assert_eq!(
                packed,
                format!("00030000000600000{digits}{blanks}ci\n{{\"a\":\"\\\"b\\\\\"}}")
            );
        }
        let until_ms = 1_796_400_000_000;
        let (reason, by) = (Reason::new("load test").unwrap(), Some("ops".into()));
        let reserved = attempt(false);
        let packed = pack(&Attempt {
            metadata: reserved.metadata.of_reservation(&Reservation {
                until_ms,
                reason,
                by,
            }),
            hold_limit: None,
            ..reserved
        });
        let metadata = r#"{"":"@1796400000000\tops\tload test","a":"\"b\\"}"#;
        let expected = format!("0003000099999999900000000{blanks}ci\n{metadata}");
        assert_eq!(packed, expected);
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
