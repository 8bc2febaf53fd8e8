//! The ticket of an attempt that waits (`:of:ID`).
//!
//! Later a letter replaces the ticket and says how the attempt ended: `g` given back, or granted while a late copy of
//! its acquire may arrive, `a` lease adopted, `s` position taken over, `r` released, `b` broken. Under the nonce of a
//! break, `x` says that the break was carried out, and `y` that it was not.

use std::{borrow::Cow, time::Duration};

use crate::{
    lock::{Limit, Metadata, Owner, Sharing},
    store::contract::{Attempt, Waiter},
};

use super::{
    super::{
        client::read_said,
        fields::{Field, Layout, number},
    },
    packed::{GRANT, KEYED},
};

/// The state of a ticket whose attempt is queued.
pub(in crate::store::redis) const QUEUED: u8 = b'q';

pub(in crate::store::redis) const TICKET: Layout = Layout {
    name: "ticket",
    groups: &[
        &[
            // State of the ticket: `q` queued; `w` granted but not confirmed.
            ("state", 1),
            // The gateway of the waiter; blank if the position is kept for a caller that is away.
            ("gateway", 16),
        ],
        MARKS,
        &[
            // How many leases may share the lock at most; 0 for an exclusive attempt.
            ("limit", 4),
            // Since when the attempt is queued, and until when the ticket counts, in µs.
            ("since", 16),
            ("ends", 16),
        ],
        GRANT,
    ],
};

/// An argument of acquire: the mode, marks and limit with which an attempt is queued.
pub(in crate::store::redis) const PLACE: Layout = Layout {
    name: "place",
    groups: &[MARKS, &[("limit", 4)]],
};

/// Marks of an attempt, which its ticket and its lease have.
pub(super) const MARKS: &[Field] = &[
    // Mode: `x` exclusive, `s` shared, `n` shared with a slot. A release request turns the letter of a lease into a
    // capital.
    ("mode", 1),
    // Whether the attempt has an idempotency key.
    ("keyed", 1),
    // Only in a lease: `1` if the lease was answered again under its idempotency key, `2` if only the request that
    // collected the lease was answered.
    ("answered", 1),
    // Whether a copy of the attempt's acquire may arrive late.
    ("late", 1),
];

/// The mode, marks and limit of an attempt, as an argument of acquire. `late`: an earlier copy of its acquire may
/// arrive.
pub(in crate::store::redis) fn place(attempt: &Attempt, late: bool) -> Cow<'static, str> {
    let keyed = attempt.idempotency.is_some();
    let Some(Sharing { limit, has_slot }) = attempt.terms.sharing else {
        return Cow::Borrowed(match (keyed, late) {
            (false, false) => "x0000000",
            (false, true) => "x0010000",
            (true, false) => "x1000000",
            (true, true) => "x1010000",
        });
    };
    let mode = if has_slot { 'n' } else { 's' };
    let (keyed, late, limit) = (u8::from(keyed), u8::from(late), limit.get());
    Cow::Owned(format!("{mode}{keyed}0{late}{limit:04}"))
}

/// The waiter to which a ticket belongs; `None` if the text is no ticket.
pub(in crate::store::redis) fn waiter(ticket: &str, now_us: u64) -> Option<Waiter> {
    let queued = number(ticket, const { TICKET.place("since") })?;
    let keyed = ticket.get(const { TICKET.place("keyed") })? == "1";
    let head = const { TICKET.place("recipient").end };
    let mut said = ticket
        .get(head + if keyed { KEYED } else { 0 }..)?
        .split('\n');
    // What another program wrote may be invalid, and is left out, because it is only shown. The ticket of the first
    // waiter has no metadata where a script cuts the ticket off.
    let owner = Owner::new(said.next()?).ok();
    let metadata = said.next().and_then(|json| read_said("", json));
    Some(Waiter {
        owner,
        metadata: metadata.map_or_else(Metadata::default, |(said, _)| said.metadata),
        sharing: sharing(ticket)?,
        waited: Duration::from_micros(now_us.saturating_sub(queued)),
    })
}

/// The sharing terms of a waiter, which an exclusive waiter does not have; `None` if the ticket is invalid.
#[expect(clippy::option_option, reason = "to be alone is an answer, too")]
fn sharing(ticket: &str) -> Option<Option<Sharing>> {
    let has_slot = match ticket.get(const { TICKET.place("mode") })? {
        "x" => return Some(None),
        "s" => false,
        "n" => true,
        _ => return None,
    };
    let limit = Limit::new(number(ticket, const { TICKET.place("limit") })?).ok()?;
    Some(Some(Sharing { limit, has_slot }))
}

#[cfg(test)]
mod tests {
    use crate::store::redis::records::{pack, packed::tests::attempt};

    use super::*;

    const NOW: u64 = 1_795_000_000_000_000;

    #[test]
    fn a_waiter_is_read_from_the_ticket_of_its_attempt() {
        let slotted = Sharing {
            limit: Limit::new(12).unwrap(),
            has_slot: true,
        };
        for (keyed, sharing, marks) in [
            (false, None, "x0010000"),
            (true, None, "x1010000"),
            (true, Some(slotted), "n1010012"),
        ] {
            let mut attempt = attempt(keyed);
            attempt.terms.sharing = sharing;
            let place = place(&attempt, true);
            assert_eq!(place, marks);
            let (gateway, queued) = ("0".repeat(16), NOW - 2_000_000);
            let ticket = format!("q{gateway}{place}{queued}{NOW}{}", pack(&attempt));
            let expected = Waiter {
                owner: attempt.terms.said.owner,
                metadata: attempt.terms.said.metadata,
                sharing,
                waited: Duration::from_secs(2),
            };
            assert_eq!(waiter(&ticket, NOW), Some(expected));
            // The first waiter of a contended lock is shown up to its owner.
            let shown = waiter(ticket.split('\n').next().unwrap(), NOW).unwrap();
            assert!(shown.owner.is_some() && shown.metadata == Metadata::default());
        }
        assert_eq!(waiter("g", NOW), None);
    }
}
