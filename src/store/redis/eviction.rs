//! Whether Redis may evict keys: a lock that is evicted is free while it is held.

/// What `INFO memory` says about eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Eviction {
    /// No key is ever evicted.
    Never,
    /// Keys are evicted by this policy when the memory is full.
    ByPolicy(String),
}

// === impl Eviction ===

impl Eviction {
    /// Reads `INFO memory`; `None` if it does not say.
    pub(super) fn from_info(info: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = |line: &str| {
                line.strip_prefix(name)?
                    .strip_prefix(':')
                    .map(str::to_owned)
            };
            info.lines().find_map(value)
        };
        let limit: u64 = field("maxmemory")?.parse().ok()?;
        let policy = field("maxmemory_policy")?;
        Some(if limit == 0 || policy == "noeviction" {
            Self::Never
        } else {
            Self::ByPolicy(policy)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happens_only_with_a_limit_and_a_policy() {
        let info = |limit: u64, policy: &str| {
            format!(
                "# Memory\r\nused_memory:900\r\nmaxmemory:{limit}\r\nmaxmemory_human:1\r\n\
                 maxmemory_policy:{policy}\r\n"
            )
        };
        let read = |limit, policy| Eviction::from_info(&info(limit, policy)).unwrap();
        assert_eq!(read(0, "allkeys-lru"), Eviction::Never);
        assert_eq!(read(1, "noeviction"), Eviction::Never);
        let policy = Eviction::ByPolicy("volatile-ttl".to_owned());
        assert_eq!(read(1, "volatile-ttl"), policy);
        assert_eq!(Eviction::from_info("# Memory\r\n"), None);
    }
}
