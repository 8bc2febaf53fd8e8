//! All scripts of the store, the parts that they import, and the keys that they read.

use crate::config::OrderLimits;

use super::super::{
    Slot,
    client::{KeyOfLock, Parts, REQUEST, Script},
    fields::inline,
    gateways::Channels,
    history::HistoryScripts,
    keys::Keys,
    records::{FLOOR, HIGHEST, ID, LEASE, NEWEST, OWNER, PACKED, PLACE, TICKET},
};

/// The composed scripts of the Redis store.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(super) acquire: Script,
    pub(super) renew: Script,
    pub(super) release: Script,
    pub(super) give_back: Script,
    pub(super) confirm: Script,
    pub(super) leave: Script,
    pub(super) lapse: Script,
    pub(super) advance: Script,
    pub(super) inspect: Script,
    pub(super) list: Script,
    pub(super) check_fence: Script,
    pub(super) break_lock: Script,
    pub(super) ask: Script,
    pub(super) set_order: Script,
    pub(in crate::store::redis) history: HistoryScripts,
}

/// The Lua parts that scripts share, by the name in their import lines. A part that only the rare paths of a script
/// need is imported after the frequent path, so that the frequent path costs nothing more.
const PARTS: Parts = Parts {
    texts: &[
        ("clock", include_str!("parts/clock.lua")),
        ("contention", include_str!("parts/contention.lua")),
        ("ended", include_str!("parts/ended.lua")),
        ("fence", include_str!("parts/fence.lua")),
        ("field", include_str!("parts/field.lua")),
        ("gateways", include_str!("parts/gateways.lua")),
        ("shared", include_str!("parts/shared.lua")),
        ("hand_over", include_str!("parts/hand_over.lua")),
        ("grant_ttl", include_str!("parts/grant_ttl.lua")),
        ("lease", include_str!("parts/lease.lua")),
        ("attempt_marks", include_str!("parts/attempt_marks.lua")),
        ("order", include_str!("parts/order.lua")),
        ("rest", include_str!("parts/rest.lua")),
        ("send", include_str!("parts/send.lua")),
        ("settle_lease", include_str!("parts/settle_lease.lua")),
        ("sweep", include_str!("parts/sweep.lua")),
    ],
    fields: &[
        &FLOOR, &HIGHEST, &ID, &LEASE, &NEWEST, &OWNER, &PACKED, &PLACE, &TICKET, &REQUEST,
    ],
    numbers: [("ORDER_KEEP", 0), ("MOST_ORDERS", 0)],
};

/// A text of Lua in which calls that name fields are replaced by the positions of the fields, for tests.
pub fn inline_fields(text: &str) -> String {
    inline(text, PARTS.fields)
}

// === impl Scripts ===

impl Scripts {
    pub(crate) fn new(channels: &Channels, orders: OrderLimits) -> Self {
        // The names are counted in each slot, and are not spread evenly.
        let most = 16 + orders.most.div_ceil(Slot::COUNT as u64) * 8;
        let parts = &Parts {
            numbers: [("ORDER_KEEP", orders.keep_ms), ("MOST_ORDERS", most)],
            ..PARTS
        };
        let of_queue = |text| {
            Script::publishing(text, 2, parts, &channels.all).naming(&[Keys::lock, Keys::fence])
        };
        let of_lock =
            |text, keys: &'static [KeyOfLock]| Script::new(text, keys.len(), parts).naming(keys);
        Self {
            acquire: of_queue(include_str!("acquire.lua")),
            renew: of_queue(include_str!("renew.lua")).running_during_slot_migration(),
            release: of_queue(include_str!("release.lua")).running_during_slot_migration(),
            give_back: of_queue(include_str!("give_back.lua")),
            confirm: of_lock(include_str!("confirm.lua"), &[Keys::lock, Keys::gateway])
                .running_during_slot_migration(),
            leave: of_queue(include_str!("leave.lua")),
            lapse: of_lock(include_str!("lapse.lua"), &[Keys::lock]),
            advance: of_queue(include_str!("advance.lua")),
            inspect: of_lock(include_str!("inspect.lua"), &[Keys::lock, Keys::wait]).read_only(),
            list: of_lock(include_str!("list.lua"), &[Keys::lock]).read_only(),
            check_fence: of_lock(include_str!("check_fence.lua"), &[Keys::lock]).read_only(),
            break_lock: of_queue(include_str!("break.lua")),
            ask: of_queue(include_str!("ask.lua")),
            set_order: of_lock(include_str!("set_order.lua"), &[Keys::lock]),
            history: HistoryScripts::new("PEXPIRE"),
        }
    }
}

/// The keys that scripts read for a lock, with their types. `echo` is the word after the kind of a reply: for a script
/// on an attempt the id of the attempt, which names its ticket.
///
/// The key of an idempotency key is not listed, because no script fails if that key has another type.
pub(crate) fn typed_keys(keys: &Keys, echo: &str) -> Vec<(String, &'static str)> {
    vec![
        (keys.lock().to_owned(), "string"),
        (keys.wait().to_owned(), "list"),
        (keys.fence().to_owned(), "string"),
        (keys.of_id(echo), "string"),
        (keys.of_name(&format!("asked:{echo}")), "string"),
        (keys.of_name("order"), "string"),
        (keys.of_name("shared"), "zset"),
        (keys.of_name("leases"), "hash"),
        (keys.of_name("slots"), "string"),
    ]
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::LockName,
        store::redis::{Slot, SlotTags, keys::GatewayId},
    };

    use super::*;

    #[test]
    fn the_types_of_keys_of_one_slot_are_asked_for() {
        let name = LockName::new("moved").unwrap();
        let keys = Keys::for_lock(&name, &SlotTags::compute(), &GatewayId::random());
        let slot = |key: &str| {
            let tag = key.strip_prefix("lg:{")?.split('}').next()?;
            (!tag.is_empty()).then(|| Slot::of_tag(tag.as_bytes()))
        };
        let id = format!("2{}", "0".repeat(64));
        let typed = typed_keys(&keys, &id);
        assert!(typed.contains(&(format!("lg:{{moved}}:of:{id}"), "string")));
        for (key, _) in typed {
            assert_eq!(slot(&key), Some(keys.slot()), "{key}");
        }
    }
}
