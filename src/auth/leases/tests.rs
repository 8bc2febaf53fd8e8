//! What counts as a lease of a key.

use super::*;
use crate::lock::Token;

const TTL: Duration = Duration::from_secs(30);

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

struct Book(Leases, Instant);

impl Book {
    fn new() -> Self {
        Self(Leases::default(), Instant::now())
    }

    fn ask(&self, lock: &str, idempotency: Option<u8>) -> Result<LeaseSlot, Excess> {
        let idempotency = idempotency.map(|byte| IdempotencyHash::from_bytes([byte; 32]));
        self.0
            .ask(&"ci".into(), 2, &name(lock), idempotency, self.1)
    }

    fn is_full(&self) -> bool {
        self.ask("x", None).is_err()
    }

    /// Two leases that were delivered.
    fn full() -> (Self, [TokenHash; 2]) {
        let book = Self::new();
        let tokens = [Token::random().hash(), Token::random().hash()];
        for token in tokens {
            let mut slot = book.ask("a", None).unwrap();
            slot.extend_until(token, book.1 + TTL);
            slot.keep();
        }
        assert!(book.is_full());
        (book, tokens)
    }
}

#[test]
fn who_asks_has_room_for_as_long_as_it_is_asked() {
    let book = Book::new();
    let first = book.ask("a", None).unwrap();
    let _second = book.ask("b", None).unwrap();
    assert!(book.is_full());
    drop(first);
    assert!(!book.is_full());
}

#[test]
fn a_lease_counts_until_it_is_released() {
    let (book, [a, _]) = Book::full();
    book.0.ended(&name("b"), a);
    assert!(book.is_full(), "another lock");
    book.0.ended(&name("a"), a);
    assert!(!book.is_full());
    book.0.ended(&name("a"), a);
}

#[test]
fn a_lease_counts_until_it_expires_and_a_renewal_moves_that() {
    let (mut book, [a, b]) = Book::full();
    let refused = book.ask("x", None).unwrap_err();
    assert_eq!(refused, Excess::Leases { retry_after: TTL });
    book.0.renewed(&name("a"), a, book.1 + 3 * TTL);
    book.1 += TTL;
    assert!(!book.is_full(), "one of them has expired");
    let mut third = book.ask("c", None).unwrap();
    assert!(book.is_full(), "the other one has not");
    third.extend_until(b, book.1 + TTL);
    third.keep();
    book.1 += 2 * TTL;
    let _all = [book.ask("d", None).unwrap(), book.ask("e", None).unwrap()];
}

#[test]
fn a_renewal_may_make_a_lease_shorter() {
    let (mut book, [a, _]) = Book::full();
    let soon = Duration::from_secs(1);
    book.0.renewed(&name("a"), a, book.1 + soon);
    book.1 += soon;
    assert!(!book.is_full());
}

#[test]
fn a_lease_that_was_not_delivered_does_not_count() {
    let book = Book::new();
    for _ in 0..3 {
        let mut slot = book.ask("a", None).unwrap();
        slot.extend_until(Token::random().hash(), book.1 + TTL);
        drop(slot);
    }
    let ledger = book.0.lock();
    assert!(ledger.keys.is_empty() && ledger.key_of.is_empty());
}

#[test]
fn who_asks_again_for_a_lease_needs_no_more_room() {
    let book = Book::new();
    let token = Token::random().hash();
    let mut slot = book.ask("a", Some(1)).unwrap();
    slot.extend_until(token, book.1 + TTL);
    slot.keep();
    let _other = book.ask("b", None).unwrap();
    assert!(book.ask("a", Some(2)).is_err());
    let mut again = book.ask("a", Some(1)).unwrap();
    again.extend_until(token, book.1 + TTL);
    again.keep();
    assert!(book.is_full());
    book.0.ended(&name("a"), token);
    assert!(!book.is_full());
}

#[test]
fn a_lease_that_is_handed_on_counts_for_the_one_who_goes_on_with_it() {
    let (book, [a, _]) = Book::full();
    let mut adopted = book.0.adopt(&"other".into(), &name("a"));
    adopted.extend_until(a, book.1 + TTL);
    assert!(!book.is_full());
    drop(adopted);
    assert!(!book.0.lock().keys.contains_key("other"));
}

#[test]
fn a_lease_that_was_adopted_outlives_the_stream_that_had_it() {
    let book = Book::new();
    let token = Token::random().hash();
    let mut old = book.ask("a", None).unwrap();
    old.extend_until(token, book.1 + TTL);
    let mut new = book.0.adopt(&old.0.as_ref().unwrap().key, &name("a"));
    new.extend_until(token, book.1 + TTL);
    drop(old);
    assert_eq!(book.0.lock().key_of.len(), 1);
    drop(new);
    assert!(book.0.lock().key_of.is_empty());
}

#[test]
fn what_has_ended_is_forgotten_whoever_had_it() {
    let (mut book, _) = Book::full();
    let other: Arc<str> = "gone".into();
    for number in 0..1_000 {
        let mut slot = book
            .0
            .ask(&other, 1_000, &name(&format!("b{number}")), None, book.1)
            .unwrap();
        slot.extend_until(Token::random().hash(), book.1 + TTL);
        slot.keep();
    }
    book.1 += TTL;
    // A key that never asks again, because it is gone: the next who asks clears up after it.
    drop(book.ask("c", None).unwrap());
    let ledger = book.0.lock();
    assert!(ledger.keys.is_empty() && ledger.key_of.is_empty() && ledger.by_end.is_empty());
}

#[test]
fn renewals_leave_nothing_behind() {
    let (book, [a, b]) = Book::full();
    for step in 0..100 {
        book.0.renewed(&name("a"), a, book.1 + TTL * step);
        book.0.renewed(&name("a"), b, book.1 + TTL);
    }
    let ledger = book.0.lock();
    assert_eq!(ledger.by_end.len(), 2);
    assert_eq!(ledger.keys["ci"].by_end.len(), 2);
}

#[test]
fn asking_costs_the_same_however_many_leases_there_are() {
    let book = Book::new();
    let key: Arc<str> = "ci".into();
    let ask = |number: u32| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let hash = Some(IdempotencyHash::from_bytes(bytes));
        book.0.ask(&key, 100_000, &name("a"), hash, book.1).unwrap()
    };
    // With a look at all others for each of them these would be 5 * 10^9 looks.
    for number in 0..100_000 {
        let mut slot = ask(number);
        slot.extend_until(Token::random().hash(), book.1 + TTL);
        slot.keep();
    }
    assert!(book.ask("b", None).is_err());
    drop(ask(77));
    assert!(book.1.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_later_lease_under_a_key_is_known_when_the_earlier_one_ends() {
    let book = Book::new();
    let [earlier, later] = [Token::random().hash(), Token::random().hash()];
    let [first, second] = [
        book.ask("a", Some(1)).unwrap(),
        book.ask("a", Some(1)).unwrap(),
    ];
    for (mut slot, token) in [(first, earlier), (second, later)] {
        slot.extend_until(token, book.1 + TTL);
        slot.keep();
    }
    book.0.ended(&name("a"), earlier);
    let _other = book.ask("b", None).unwrap();
    assert!(book.is_full());
    assert!(book.ask("a", Some(1)).is_ok());
}

#[test]
fn a_lease_that_its_own_key_adopts_is_still_known_when_it_is_asked_for_again() {
    let book = Book::new();
    let token = Token::random().hash();
    let mut slot = book.ask("a", Some(1)).unwrap();
    slot.extend_until(token, book.1 + TTL);
    slot.keep();
    let mut adopted = book.0.adopt(&"ci".into(), &name("a"));
    adopted.extend_until(token, book.1 + TTL);
    let _other = book.ask("b", None).unwrap();
    assert!(book.is_full());
    assert!(book.ask("a", Some(1)).is_ok());
}
