//! What a key may be permitted to do.

/// What a key may be permitted to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Acquire, hold and renew locks, per name.
    Acquire,
    /// Inspect and list locks, and listen to events, per name.
    View,
    /// Break locks, per name.
    Break,
    /// Read metrics.
    Metrics,
}

/// A permission as a type: what a handler asks of its caller stands in its signature.
pub trait Scope: Send + Sync + 'static {
    /// The permission; `None` if any key will do.
    const PERMISSION: Option<Permission>;
    /// Whether each request is counted against the rate of the key.
    const IS_COUNTED: bool = true;
}

/// The permissions as types.
pub mod scope {
    use super::{Permission, Scope};

    /// [`Permission::Acquire`].
    #[derive(Debug)]
    pub enum Acquire {}
    /// [`Permission::Acquire`], for calls that may be about a lease that somebody has: not counted,
    /// because a limit must never cost a holder its lock.
    #[derive(Debug)]
    pub enum Keep {}
    /// [`Permission::View`].
    #[derive(Debug)]
    pub enum View {}
    /// [`Permission::Break`].
    #[derive(Debug)]
    pub enum Break {}
    /// [`Permission::Metrics`].
    #[derive(Debug)]
    pub enum Metrics {}
    /// None: whoever has a key. The handler decides what that key may see.
    #[derive(Debug)]
    pub enum AnyKey {}

    impl Scope for Acquire {
        const PERMISSION: Option<Permission> = Some(Permission::Acquire);
    }
    impl Scope for Keep {
        const PERMISSION: Option<Permission> = Some(Permission::Acquire);
        const IS_COUNTED: bool = false;
    }
    impl Scope for View {
        const PERMISSION: Option<Permission> = Some(Permission::View);
    }
    impl Scope for Break {
        const PERMISSION: Option<Permission> = Some(Permission::Break);
    }
    impl Scope for Metrics {
        const PERMISSION: Option<Permission> = Some(Permission::Metrics);
    }
    impl Scope for AnyKey {
        const PERMISSION: Option<Permission> = None;
    }
}

// === impl Permission ===

impl Permission {
    /// What it is called in a keys file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::View => "view",
            Self::Break => "break",
            Self::Metrics => "metrics",
        }
    }
}
