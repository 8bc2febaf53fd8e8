//! A request that is charged to somebody, unless it turns out to be right.

use std::net::IpAddr;

use super::{Access, Gate};

/// A request with a token that may be wrong: charged to whoever sent it unless it is forgiven, also
/// when its sender hangs up before the answer.
#[derive(Debug, Default)]
#[must_use = "dropped at once, it is charged at once"]
pub struct Charge(Option<Payer>);

#[derive(Debug)]
enum Payer {
    /// A key. It pays at the end: a renewal that is right must not cost it anything meanwhile.
    Key(Access),
    /// An address. It has paid, so that it cannot have more under way than it may have wrong.
    Address(Gate, Option<IpAddr>),
}

// === impl Charge ===

impl Charge {
    pub(super) fn to_key(access: Access) -> Self {
        Self(Some(Payer::Key(access)))
    }

    pub(super) fn to_address(gate: Gate, from: Option<IpAddr>) -> Self {
        Self(Some(Payer::Address(gate, from)))
    }

    /// The token was right, or nobody knows: nothing is charged.
    pub fn forgive(mut self) {
        if let Some(Payer::Address(gate, from)) = self.0.take() {
            gate.refund(from);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(Payer::Key(access)) = self.0.take() {
            access.force_count_request();
        }
    }
}
