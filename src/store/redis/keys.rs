//! The keys of a lock. Their names are a public interface for foreign clients.

use std::time::Duration;

use crate::lock::{LockName, NamePrefix, Token, TokenHash};

use super::{Slot, SlotTags};

/// The id of one run of a gateway. Whoever knows it, and may publish, can wake its waiters.
#[derive(Debug, Clone)]
pub(crate) struct GatewayId(Box<str>);

/// How many hexadecimal digits an id has. It is sent with every command.
const LENGTH: usize = 16;

/// The keys of one lock, in one text.
#[derive(Debug)]
pub(super) struct Keys {
    name: LockName,
    text: String,
    ends: [usize; 4],
    slot: Slot,
}

// === impl Keys ===

impl Keys {
    /// A key of no lock, since no lock has an empty name; also a channel of no lock.
    pub(super) const PROBE: &str = "lg:{}:probe";
    /// What is written to find out which replicas have all that was written before.
    pub(super) const MARKER: &str = "lg:{}:marker";
    /// A key of a slot, and of no lock: `probe` and `marker` are [`Keys::PROBE`] and [`Keys::MARKER`] on the server of a
    /// cluster that has this slot.
    pub(super) fn in_slot(slot: Slot, tags: &SlotTags, kind: &str) -> String {
        format!("lg:{{{}}}:{kind}", tags.of(slot))
    }

    pub(super) fn of(name: &LockName, tags: &SlotTags, gateway: &GatewayId) -> Self {
        let tag = name.as_str();
        let slot = Slot::of_name(name);
        let slot_tag = tags.of(slot);
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

    /// A key of the slot that never exists. Whoever names it beside one that does is refused as long as
    /// the slot is being moved, because the two are not in one place then.
    pub(super) fn absent(&self) -> String {
        let tag = self.fence().strip_suffix("}:fence");
        format!("{}}}:absent", tag.expect("a counter is called so"))
    }

    /// A pattern for the locks whose names begin so. No name holds a character that means something
    /// in a pattern.
    pub(super) fn pattern(prefix: &NamePrefix) -> String {
        format!("lg:{{{}*}}:lock", prefix.as_str())
    }

    /// The name of the lock that this is the key of. A pattern also finds keys that are of no lock.
    pub(super) fn name_in(key: &[u8]) -> Option<LockName> {
        let name = key.strip_prefix(b"lg:{")?.strip_suffix(b"}:lock")?;
        LockName::new(std::str::from_utf8(name).ok()?).ok()
    }

    /// The key that says in a slot that a gateway is alive.
    pub(super) fn of_gateway(slot: Slot, tags: &SlotTags, gateway: &GatewayId) -> String {
        Self::in_slot(slot, tags, &format!("gw:{}", gateway.as_str()))
    }

    /// The lock whose keys these are.
    pub(super) fn name(&self) -> &LockName {
        &self.name
    }

    /// The lease, or what a foreign client has written.
    pub(super) fn lock(&self) -> &str {
        &self.text[..self.ends[0]]
    }

    /// The fence counter of the slot.
    pub(super) fn fence(&self) -> &str {
        &self.text[self.ends[0]..self.ends[1]]
    }

    /// The ids of those who wait, in their order.
    pub(super) fn wait(&self) -> &str {
        &self.text[self.ends[1]..self.ends[2]]
    }

    /// There as long as this gateway is alive.
    pub(super) fn gateway(&self) -> &str {
        &self.text[self.ends[2]..self.ends[3]]
    }

    /// The ticket of an attempt, or what became of it.
    pub(super) fn of_attempt(&self, token: &TokenHash) -> String {
        self.of_id(&format!("2{token}"))
    }

    /// The same, by the id of the attempt or the nonce of a break.
    pub(super) fn of_id(&self, id: &str) -> String {
        format!("lg:{{{}}}:of:{id}", self.name)
    }

    /// One of the other keys of the name: `shared`, `leases` or `slots` of a lock that is shared, `info`, `ended` or
    /// `wanted` at a node of a quorum.
    pub(super) fn of_name(&self, kind: &str) -> String {
        format!("lg:{{{}}}:{kind}", self.name)
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }
}

// === impl GatewayId ===

impl GatewayId {
    /// An id that no other gateway has, and that nobody guesses.
    pub(crate) fn random() -> Self {
        let digits = Token::random().hash().to_string();
        Self(digits[..LENGTH].into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Asks all gateways for their news.
    pub(crate) fn news_request(&self, lasts: Duration) -> String {
        format!("listening {} {}", self.0, lasts.as_millis())
    }

    /// Where messages for this gateway are published.
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
        let keys = Keys::of(&LockName::new("deploy:eu").unwrap(), &tags, &gateway);
        assert_eq!(keys.lock(), "lg:{deploy:eu}:lock");
        let tag = tags.of(Slot::of(b"deploy:eu"));
        assert_eq!(keys.fence(), format!("lg:{{{tag}}}:fence"));
        assert_eq!(Slot::of(tag.as_bytes()), keys.slot());
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
