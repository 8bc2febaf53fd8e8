//! The Redis keys of a lock. The names of these keys are a public interface for foreign clients.

use std::time::Duration;

use crate::lock::{LockName, NamePrefix, Token, TokenHash};

use super::{Slot, SlotTags};

/// The random id of one run of a gateway. A client that knows the id and may publish can wake the waiters of the
/// gateway.
#[derive(Debug, Clone)]
pub(crate) struct GatewayId(Box<str>);

/// How many hexadecimal digits a gateway's id has: few, because the id is sent with every command.
const LENGTH: usize = 16;

/// How many slots share the key of their histories, where keys need not be in the slot of their lock: few keys for a
/// scan, and each small enough that Redis can delete it without a pause.
const SLOTS_PER_HISTORY: usize = 16;

/// The Redis keys of one lock, in one string.
#[derive(Debug)]
pub(super) struct Keys {
    name: LockName,
    text: String,
    ends: [usize; 4],
    slot: Slot,
}

// === impl Keys ===

impl Keys {
    /// A key that belongs to no lock, because no lock has an empty name; also a channel for probes.
    pub(super) const PROBE: &str = "lg:{}:probe";
    /// The key of the replication marker: a replica that has this key has all earlier writes.
    pub(super) const MARKER: &str = "lg:{}:marker";
    /// A key in a slot that belongs to no lock: the kinds `probe` and `marker` are [`Keys::PROBE`] and [`Keys::MARKER`]
    /// for the server of a cluster that has this slot.
    pub(super) fn in_slot(slot: Slot, tags: &SlotTags, kind: &str) -> String {
        format!("lg:{{{}}}:{kind}", tags.for_slot(slot))
    }

    pub(super) fn for_lock(name: &LockName, tags: &SlotTags, gateway: &GatewayId) -> Self {
        let tag = name.as_str();
        let slot = Slot::of_name(name);
        let slot_tag = tags.for_slot(slot);
        let parts = [
            (tag, "}:lock"),
            (slot_tag, "}:fence"),
            (tag, "}:wait"),
            (slot_tag, "}:gw:"),
        ];
        let mut text = String::with_capacity(2 * tag.len() + 64 + LENGTH);
        let mut ends = parts.map(|(tag, kind)| {
            for part in ["lg:{", tag, kind] {
                text.push_str(part);
            }
            text.len()
        });
        text.push_str(gateway.as_str());
        ends[3] = text.len();
        Self {
            name: name.clone(),
            text,
            ends,
            slot,
        }
    }

    /// A key in the slot of the lock that never exists. While the slot is being moved, a script that names this key and
    /// an existing key is refused, because no server has both.
    pub(super) fn absent(&self) -> String {
        let tag = self.fence().strip_suffix("}:fence");
        format!("{}}}:absent", tag.expect("a counter is called so"))
    }

    /// A pattern for the `:lock` keys of the locks whose names begin with a prefix. Names contain no character with a
    /// meaning in patterns.
    pub(super) fn pattern(prefix: &NamePrefix) -> String {
        format!("lg:{{{}*}}:lock", prefix.as_str())
    }

    /// The name of the lock to which a `:lock` key belongs; `None` for other keys, which a pattern also finds.
    pub(super) fn name_in(key: &[u8]) -> Option<LockName> {
        let name = key.strip_prefix(b"lg:{")?.strip_suffix(b"}:lock")?;
        LockName::new(std::str::from_utf8(name).ok()?).ok()
    }

    /// The liveness key of a gateway in a slot, which exists while the gateway is alive.
    pub(super) fn of_gateway(slot: Slot, tags: &SlotTags, gateway: &GatewayId) -> String {
        Self::in_slot(slot, tags, &format!("gw:{}", gateway.as_str()))
    }

    /// The name of the lock.
    pub(super) fn name(&self) -> &LockName {
        &self.name
    }

    /// The key of the lock's lease, or of the value of a foreign client.
    pub(super) fn lock(&self) -> &str {
        &self.text[..self.ends[0]]
    }

    /// The key of the fence counter of the lock's slot.
    pub(super) fn fence(&self) -> &str {
        &self.text[self.ends[0]..self.ends[1]]
    }

    /// The key of the lock's queue: the ids of the waiters in order.
    pub(super) fn wait(&self) -> &str {
        &self.text[self.ends[1]..self.ends[2]]
    }

    /// The liveness key of this gateway, which exists while the gateway is alive.
    pub(super) fn gateway(&self) -> &str {
        &self.text[self.ends[2]..self.ends[3]]
    }

    /// The key of the ticket of an attempt, or of the letter that says how the attempt ended.
    pub(super) fn of_attempt(&self, token: &TokenHash) -> String {
        self.of_id(&format!("2{token}"))
    }

    /// The key of a ticket or letter, by the id of the attempt or the nonce of a break.
    pub(super) fn of_id(&self, id: &str) -> String {
        format!("lg:{{{}}}:of:{id}", self.name)
    }

    /// Another key of the lock: `shared`, `leases` or `slots` of a shared lock; `info`, `ended` or `wanted` at a node
    /// of a quorum.
    pub(super) fn of_name(&self, kind: &str) -> String {
        format!("lg:{{{}}}:{kind}", self.name)
    }

    /// What the keys of the history of the lock begin with. Many locks share such a key, so that their histories do not
    /// slow down the scans of a list. Empty in a cluster, where the scripts use a key in the slot of the lock.
    pub(super) fn history(&self, is_cluster: bool) -> String {
        if is_cluster {
            return String::new();
        }
        let place = self.slot.index() / SLOTS_PER_HISTORY;
        format!("lg:{{}}:history:{place}:")
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }
}

// === impl GatewayId ===

impl GatewayId {
    /// Creates a random id of a gateway, which is unique and cannot be guessed.
    pub(crate) fn random() -> Self {
        let digits = Token::random().hash().to_string();
        Self(digits[..LENGTH].into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The message that asks all gateways for their news.
    pub(crate) fn news_request(&self, lasts: Duration) -> String {
        format!("listening {} {}", self.0, lasts.as_millis())
    }

    /// The channel for messages to this gateway only.
    pub(crate) fn channel(&self) -> String {
        format!("lg:gw:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_the_ones_that_foreign_clients_know() {
        let tags = SlotTags::compute();
        let gateway = GatewayId::random();
        let keys = Keys::for_lock(&LockName::new("deploy:eu").unwrap(), &tags, &gateway);
        assert_eq!(keys.lock(), "lg:{deploy:eu}:lock");
        let tag = tags.for_slot(Slot::of_tag(b"deploy:eu"));
        assert_eq!(keys.fence(), format!("lg:{{{tag}}}:fence"));
        assert_eq!(Slot::of_tag(tag.as_bytes()), keys.slot());
        assert_eq!(keys.wait(), "lg:{deploy:eu}:wait");
        let token = TokenHash::from_bytes([0xa1; 32]);
        let of_attempt = format!("lg:{{deploy:eu}}:of:2{}", "a1".repeat(32));
        assert_eq!(keys.of_attempt(&token), of_attempt);
        let alive = format!("lg:{{{tag}}}:gw:{}", gateway.as_str());
        assert_eq!(Keys::of_gateway(keys.slot(), &tags, &gateway), alive);
        assert_eq!(keys.gateway(), alive);
        assert_eq!(keys.absent(), format!("lg:{{{tag}}}:absent"));
    }

    #[test]
    fn of_a_lock_say_its_name_and_others_say_none() {
        let name = |key: &str| Keys::name_in(key.as_bytes()).map(|name| name.to_string());
        assert_eq!(name("lg:{deploy:eu}:lock").as_deref(), Some("deploy:eu"));
        for other in [
            "lg:{a}:x}:lock",
            "lg:{}:lock",
            "lg:{a b}:lock",
            "lg:{a}:info",
            "xlg:{a}:lock",
            "lg:{a}:lock ",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
        assert_eq!(Keys::name_in(b"lg:{\xff}:lock"), None);
    }
}
