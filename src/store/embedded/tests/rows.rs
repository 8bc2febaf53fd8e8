//! The encoding of rows: encoded rows decode to the same values, and no other bytes are accepted.

use std::time::Duration;

use crate::{
    clock::BootId,
    lock::{
        Ends, FencingToken, Group, HoldLimit, LockName, Metadata, MinHold, Mode, OrderNumber,
        Owner, Reason, ReleaseRequest, Reservation, Token, TokenHash,
    },
    store::contract::Attempt,
    store::embedded::{
        fuzzed_row,
        records::{self, Fields, Meta, RowError, RowKey, Rows, Tombstone},
        state::{HighestOrder, Lease, Memory, Moment, OrderedGrant, WallClock},
    },
};

use super::rig::{Random, key, keyed, limited, name, order, ttl, with};

#[test]
fn a_lease_comes_back_as_it_was_and_neither_a_part_nor_more_nor_another_version_does() {
    for (mut row, lease) in rows() {
        assert_eq!(records::decode(&row), Ok(lease));
        for len in 0..row.len() {
            let cut = records::decode(&row[..len]);
            assert!(cut.is_err(), "{len} of {}: {cut:?}", row.len());
        }
        row.push(0);
        assert_eq!(records::decode(&row), Err(RowError::TooLong));
        row[0] += 1;
        assert_eq!(records::decode(&row), Err(RowError::Version(row[0])));
    }
}

#[test]
fn the_length_of_a_row_is_known_before_it_is_written() {
    let lock = name("lock:of:some:length");
    for (_row, lease) in rows() {
        let mut rows = Rows::default();
        rows.lease(&lock, lease.row(), Some(&lease));
        let len = records::len_of_lease(&lock, &lease);
        assert_eq!(len, rows.as_bytes().len() as u64, "{lease:?}");
    }
    for tombstone in [
        RowKey::used_key(&key()),
        RowKey::given_back(&lock, &Token::random().hash()),
    ] {
        let (tombstone, memory) = (Tombstone::from(&tombstone), Moment::from_micros(1).into());
        assert_length_is_known(&tombstone, &memory);
    }
    for memory in orders() {
        assert_length_is_known(&Tombstone::from(&RowKey::order(&lock)), &memory);
    }
}

fn assert_length_is_known(tombstone: &Tombstone, memory: &Memory) {
    let mut rows = Rows::default();
    rows.tombstone(tombstone, Some(memory));
    let len = records::len_of_tombstone(tombstone, memory);
    assert_eq!(len, rows.as_bytes().len() as u64);
}

#[test]
fn an_order_comes_back_as_it_was_and_neither_a_part_nor_more_nor_another_version_does() {
    let of_order = Tombstone::from(&RowKey::order(&name("lock")));
    let of_key = Tombstone::from(&RowKey::used_key(&key()));
    for memory in orders() {
        let mut rows = Rows::default();
        rows.tombstone(&of_order, Some(&memory));
        let mut fields = Fields::new(rows.as_bytes());
        let (found, value) = fields.row().unwrap();
        assert_eq!(Tombstone::parse(found).as_ref(), Some(&of_order));
        let mut row = value.unwrap().to_vec();
        let decode = |row: &[u8]| records::decode_memory(&of_order, row);
        assert_eq!(decode(&row), Ok(memory));
        for len in 0..row.len() {
            assert_eq!(decode(&row[..len]), Err(RowError::CutShort), "{len}");
        }
        assert_eq!(
            records::decode_memory(&of_key, &row),
            Err(RowError::TooLong)
        );
        row.push(0);
        assert_eq!(decode(&row), Err(RowError::TooLong));
        // Behind the end of the tombstone: version, flags, number.
        for (at, value, error) in [
            (8, 2, RowError::Version(2)),
            (9, 4, RowError::Invalid("set of flags")),
            (17, 255, RowError::Invalid("order")),
        ] {
            let mut wrong = row.clone();
            wrong[at] = value;
            assert_eq!(decode(&wrong), Err(error));
        }
    }
}

/// What a lock may remember of orders.
fn orders() -> [Memory; 4] {
    let number = |number| OrderNumber::new(number).unwrap();
    let grant = |by: Option<&str>, owner: Option<&str>| OrderedGrant {
        token: TokenHash::from_bytes([7; 32]),
        at: 0x0102,
        by: by.map(Into::into),
        owner: owner.map(|owner| Owner::new(owner).unwrap()),
    };
    let set = HighestOrder::from(number(0x0304));
    let first = HighestOrder {
        grant: Some(grant(None, None)),
        ..HighestOrder::from(OrderNumber::MAX)
    };
    let next = HighestOrder {
        previous: Some(number(0)),
        grant: Some(grant(Some("ci"), Some("näher"))),
        ..set.clone()
    };
    let by_nobody = HighestOrder {
        previous: Some(number(0x0506)),
        ..next.clone()
    };
    [set, first, next, by_nobody].map(|order| Memory {
        until: Moment::from_micros(-5),
        order: Some(Box::new(order)),
    })
}

#[test]
fn a_mutated_row_never_panics_and_is_a_valid_lease_or_none() {
    let mut random = Random(0x9e37_79b9);
    let rows = rows();
    let of_order = Tombstone::from(&RowKey::order(&name("lock")));
    let orders = orders().map(|memory| {
        let mut rows = Rows::default();
        rows.tombstone(&of_order, Some(&memory));
        let row = Fields::new(rows.as_bytes()).row().unwrap();
        row.1.unwrap().to_vec()
    });
    let rows = rows.into_iter().map(|(row, _)| row).chain(orders);
    let rows: Vec<_> = rows.collect();
    for _ in 0..20_000 {
        let mut row = rows[random.below(rows.len())].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(row.len());
            row[at] = u8::try_from(random.below(256)).unwrap();
        }
        row.truncate(row.len() - random.below(2) * random.below(row.len()));
        // Panics if accepted bytes would be encoded differently.
        fuzzed_row(&row);
    }
}

#[test]
fn what_a_transaction_says_of_the_store_comes_back_as_it_was() {
    let mut bytes = Vec::new();
    meta().encode(&mut bytes);
    assert_eq!(Meta::read(&mut Fields::new(&bytes)), Ok(meta()));
    for len in 0..bytes.len() {
        assert!(Meta::read(&mut Fields::new(&bytes[..len])).is_err());
    }
}

#[test]
fn rows_of_a_record_come_back_in_their_order() {
    let (lock, now) = (name("lock"), Moment::from_micros(7));
    let tombstone = Tombstone::from(&RowKey::used_key(&key()));
    let lease = Lease::grant(
        &keyed("lock", 30_000, key()),
        Mode::Exclusive,
        FencingToken::MAX,
        now,
        WallClock::default(),
    );
    let mut rows = Rows::default();
    rows.lease(&lock, lease.row(), Some(&lease));
    rows.tombstone(&tombstone, Some(&now.into()));
    rows.lease(&lock, None, None);
    rows.tombstone(&tombstone, None);
    assert_eq!(rows.len(), 4);
    let mut fields = Fields::new(rows.as_bytes());
    let found: Vec<_> = (0..4).map(|_| fields.row().unwrap()).collect();
    let lock = RowKey::lease(&lock, None);
    let until = 7_i64.to_le_bytes();
    let expected = [
        (lock.as_bytes(), Some(encoded(&lease))),
        (tombstone.as_bytes(), Some(until.to_vec())),
        (lock.as_bytes(), None),
        (tombstone.as_bytes(), None),
    ];
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1.as_deref()));
    }
    assert_eq!(fields.end(), Ok(()));
}

#[test]
fn the_key_of_a_lease_says_whether_it_shares_its_lock_and_which_it_is() {
    let lock = name("lock");
    let fence = FencingToken::new(1_800_000_000_000_001).unwrap();
    for (key, shared) in [
        (RowKey::lease(&lock, None), None),
        (RowKey::lease(&lock, Some(fence)), Some(fence)),
    ] {
        let parsed = RowKey::parse_lease(key.as_bytes());
        assert_eq!(parsed, Some(Ok((lock.clone(), shared))));
        for len in 1..key.as_bytes().len() - 4 {
            // A key that is cut off may be valid, but names another lock.
            let cut = RowKey::parse_lease(&key.as_bytes()[..len]);
            assert_ne!(cut, parsed, "{len}");
        }
    }
    let nameless = [b"s".as_slice(), &fence.get().to_be_bytes()].concat();
    for wrong in [
        b"s".as_slice(),
        b"s1234567",
        b"l",
        &nameless,
        b"s\0\0\0\0\0\0\0\0lock",
    ] {
        let parsed = RowKey::parse_lease(wrong);
        assert!(matches!(parsed, Some(Err(_))), "{parsed:?}");
    }
}

#[test]
fn a_slot_needs_a_lock_that_is_shared_and_a_limit_above_it() {
    const SLOT: u8 = 1 << 7;
    // The bit is in the second byte of the flags.
    const UNKNOWN: u8 = 1 << 7;
    let fence = FencingToken::MAX;
    let asked = keyed("lock", 30_000, key());
    let (now, shared) = (Moment::from_micros(1), Mode::Shared { slot: Some(7) });
    let lease = |mode| {
        encoded(&Lease::grant(
            &asked,
            mode,
            fence,
            now,
            WallClock::default(),
        ))
    };
    let mut alone = lease(Mode::Exclusive);
    alone[1] |= SLOT;
    let mut unknown = lease(shared);
    unknown[2] |= UNKNOWN;
    for wrong in [alone, unknown] {
        let decoded = records::decode(&wrong);
        assert_eq!(decoded, Err(RowError::Invalid("set of flags")));
    }
    let mut beyond = lease(shared);
    // Offset in the row behind the version, flags, fencing token, token, TTL and two moments.
    let at = 3 + 8 + 32 + 3 * 8;
    assert_eq!(beyond[at..at + 2], 7_u16.to_le_bytes());
    beyond[at..at + 2].copy_from_slice(&9_999_u16.to_le_bytes());
    assert_eq!(records::decode(&beyond), Err(RowError::Invalid("slot")));
}

#[test]
fn only_keys_of_tombstones_are_tombstones() {
    let (lock, token, key) = (name("lock"), Token::random().hash(), key());
    for row in [
        RowKey::used_key(&key),
        RowKey::released(&lock, &token),
        RowKey::given_back(&lock, &token),
        RowKey::outdated(&lock, &token),
        RowKey::outdated_key(&key),
    ] {
        let bytes = row.as_bytes();
        let tombstone = Tombstone::parse(bytes).expect("it is one");
        assert_eq!(tombstone.as_bytes(), bytes);
        assert_eq!(Tombstone::parse(&bytes[..32]), None);
    }
    for key in [
        RowKey::lease(&lock, None),
        RowKey::lease(&lock, Some(FencingToken::MAX)),
    ] {
        assert_eq!(Tombstone::parse(key.as_bytes()), None);
    }
    assert_eq!(Tombstone::parse(&[b'x'; 40]), None);
}

fn rows() -> Vec<(Vec<u8>, Lease)> {
    let plain = keyed("lock", 30_000, key());
    let fence = FencingToken::new(1_800_000_000_000_001).unwrap();
    let now = Moment::from_micros(-5);
    let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let entries = [entry("a", ""), entry("straße", "ünter den linden")];
    let mut full = plain.clone();
    let limit = HoldLimit::from_millis(600_000, ttl(30_000)).unwrap();
    full.terms.set_hold_limit(limit);
    full.terms.said.owner = Some(Owner::new("näher").unwrap());
    let group = Group {
        first: LockName::new("first").unwrap(),
        count: 3,
        mark: None,
    };
    full.terms.said.metadata = Metadata::new(entries.into()).unwrap();
    full.terms.said.group = Some(Box::new(group));
    full.terms.said.order = order(7, Some("ci"), Some("bad release"));
    let reservation = Reservation {
        until_ms: 1_795_000_000_000,
        reason: Reason::new("load test").unwrap(),
        by: Some("ops".into()),
    };
    let reserved = with(plain.clone(), |it| {
        it.ends = Ends::At(Box::new(reservation));
    });
    let mut bare = plain.clone();
    bare.idempotency = None;
    let mut brief = full.clone();
    brief.terms.min_hold = Some(MinHold::from_millis(20_000, ttl(30_000)).unwrap());
    let grant = |asked: &Attempt, mode| Lease::grant(asked, mode, fence, now, WallClock::default());
    let brief = grant(&brief, Mode::Shared { slot: Some(3) });
    let granted = grant(&plain, Mode::Exclusive);
    let kept = granted
        .clone()
        .kept_until(now.after(Duration::from_secs(5)), None);
    let settled = granted.replayed(now);
    let asked = |lease: &Lease, by: Option<&str>| {
        let request = ReleaseRequest {
            by: by.map(Into::into),
            reason: Reason::new("it is näeded").unwrap(),
            within: Duration::from_secs(7),
        };
        lease.requested(&request, now).unwrap()
    };
    let leases = [
        asked(&settled, None),
        asked(&grant(&full, Mode::Shared { slot: Some(1) }), Some("ops")),
        grant(&bare, Mode::Exclusive),
        granted,
        kept,
        grant(&full, Mode::Exclusive),
        settled,
        grant(&bare, Mode::Shared { slot: None }),
        grant(&reserved, Mode::Exclusive),
        brief.rest(now).unwrap(),
        brief,
        grant(&full, Mode::Shared { slot: Some(0) }),
        grant(&plain, Mode::Shared { slot: Some(9_998) }),
    ];
    leases.map(|lease| (encoded(&lease), lease)).into()
}

fn encoded(lease: &Lease) -> Vec<u8> {
    let mut row = Vec::new();
    records::encode(lease, &mut row);
    row
}

fn meta() -> Meta {
    Meta {
        fence: 1_800_000_000_000_001,
        boot: BootId::new("2b8e0f55-3d8f-4f5e-9a51-2c3f0a6f9b1d"),
        written_at: Moment::from_micros(123_456_789),
        rows: 3,
    }
}

/// Compares the bytes of every record, so that a change of the layout is noticed.
#[test]
fn records_are_written_as_they_always_were() {
    let (lock, token) = (name("lock"), TokenHash::from_bytes([7; 32]));
    let now = Moment::from_micros(0x0102);
    let fence = FencingToken::new(0x0304).unwrap();
    let mut asked = limited("lock", 30_000, 60_000);
    asked.token = token;
    asked.terms.said.owner = Some(Owner::new("me").unwrap());
    let mode = Mode::Shared { slot: Some(5) };
    let lease = Lease::grant(&asked, mode, fence, now, WallClock::default());
    let lease = lease
        .requested(
            &ReleaseRequest {
                by: Some("you".into()),
                reason: Reason::new("why").unwrap(),
                within: Duration::from_secs(1),
            },
            now,
        )
        .unwrap();
    let mut rows = Rows::default();
    rows.lease(&lock, lease.row(), Some(&lease));
    rows.lease(&lock, None, None);
    let tombstone = Tombstone::from(&RowKey::released(&lock, &token));
    rows.tombstone(&tombstone, Some(&now.into()));
    let [.., order] = orders();
    rows.tombstone(&Tombstone::from(&RowKey::order(&lock)), Some(&order));
    let mut bytes = Vec::new();
    meta().encode(&mut bytes);
    let token = "07".repeat(32);
    let expected = [
        // Lengths of key and value, key.
        "0d00 63000000 73 0000000000000304 6c6f636b",
        // Version, flags, fencing token, token, TTL, since, ends.
        "01 c301 0403000000000000",
        &token,
        "3075000000000000 0201000000000000 82851e0000000000",
        // Slot, end of the hold limit, owner, and the request: by, reason and end.
        "0500 0288930300000000 0200 6d65 0300 796f75 0300 776879 42430f0000000000",
        "0500 ffffffff 6c 6c6f636b",
        "2500 08000000 72",
        &token,
        "6c6f636b 0201000000000000",
        // Until when, version, flags, number, the number before, and the grant: token, when, by and owner.
        "0500 4e000000 6f 6c6f636b fbffffffffffffff 01 03 0403000000000000 0605000000000000",
        &token,
        "0201000000000000 0200 6369 0600 6ec3a4686572",
    ];
    assert_eq!(hex(rows.as_bytes()), expected.concat().replace(' ', ""));
    let expected = [
        // Fencing token, when, how many rows, boot.
        "0180982817650600 15cd5b0700000000 0300000000000000 2400",
        &hex(b"2b8e0f55-3d8f-4f5e-9a51-2c3f0a6f9b1d"),
    ];
    assert_eq!(hex(&bytes), expected.concat().replace(' ', ""));
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
