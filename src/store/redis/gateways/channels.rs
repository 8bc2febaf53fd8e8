//! The channels by which all gateways of one database send messages to each other.

/// The channels by which all gateways of one database send messages to each other.
///
/// Channels belong to a server and not to a database, so each database has names of its own: whoever uses
/// another one has other locks, and is told nothing of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channels {
    /// For messages to all gateways. In scripts stands that of the first database, and is replaced.
    pub(crate) all: String,
    /// For events, to those gateways at which somebody listens.
    pub(crate) news: String,
}

// === impl Channels ===

impl Channels {
    /// Those of a database, by its number.
    pub(crate) fn of(database: u16) -> Self {
        let of_it = match database {
            0 => String::new(),
            number => format!(":{number}"),
        };
        Self {
            all: format!("lg:gw:all{of_it}"),
            news: format!("lg:events{of_it}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_has_its_own() {
        let (first, second) = (Channels::of(0), Channels::of(1));
        assert_eq!((&*first.all, &*first.news), ("lg:gw:all", "lg:events"));
        assert_eq!(
            (&*second.all, &*second.news),
            ("lg:gw:all:1", "lg:events:1")
        );
        assert_ne!(Channels::of(1), Channels::of(11));
    }
}
