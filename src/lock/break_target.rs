//! What is to be broken, and nothing else.

use super::{FencingToken, ForeignMark};

/// Who holds a lock that is to be broken: somebody else by then keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakTarget {
    /// The lease with this fencing token.
    Lease(FencingToken),
    /// A client that uses no gateway, by the mark of what it has written.
    Foreign(ForeignMark),
}

// === impl BreakTarget ===

impl From<FencingToken> for BreakTarget {
    fn from(fence: FencingToken) -> Self {
        Self::Lease(fence)
    }
}

impl From<ForeignMark> for BreakTarget {
    fn from(mark: ForeignMark) -> Self {
        Self::Foreign(mark)
    }
}
