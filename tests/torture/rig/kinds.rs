//! The stores that can be tested, and the faults that apply to each.

use crate::faults::Fault;

/// A kind of store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Redis,
    Sentinel,
    Redlock,
    Cluster,
    /// A store that already runs, of which only the URL is known.
    Url(String),
}

/// With fewer grants a second, a run proves nothing.
const TRAFFIC: f64 = 200.0;
/// The same for a quorum, where each grant takes two rounds.
const TRAFFIC_OF_QUORUM: f64 = 50.0;

// === impl Kind ===

impl Kind {
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        match name {
            "embedded" => Ok(Self::Embedded),
            "redis" => Ok(Self::Redis),
            "sentinel" => Ok(Self::Sentinel),
            "redlock" => Ok(Self::Redlock),
            "cluster" => Ok(Self::Cluster),
            url if url.contains("://") => Ok(Self::Url(url.to_owned())),
            _ => Err(format!("{name} is no store that can be tortured")),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Sentinel => "sentinel",
            Self::Redlock => "redlock",
            Self::Cluster => "cluster",
            Self::Url(url) => url,
        }
    }

    /// The faults that apply to the store.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = Fault::OF_PROCESSES.to_vec();
        match self {
            Self::Embedded | Self::Url(_) => {}
            Self::Redis => {
                faults.extend(Fault::OF_SERVERS);
                faults.extend(Fault::OF_CONNECTIONS);
                faults.extend(Fault::OF_SINGLE_SERVERS);
            }
            Self::Sentinel => {
                faults.extend(Fault::OF_SERVERS);
                faults.extend(Fault::OF_FAILOVERS);
                faults.extend(Fault::OF_MASTERS);
            }
            Self::Redlock => {
                faults.extend(Fault::OF_SERVERS);
                faults.extend(Fault::OF_CONNECTIONS);
                faults.extend(Fault::OF_SINGLE_SERVERS);
                faults.extend(Fault::OF_QUORUMS);
            }
            Self::Cluster => {
                faults.extend(Fault::OF_SERVERS);
                faults.extend(Fault::OF_FAILOVERS);
                faults.extend(Fault::OF_CLUSTERS);
                faults.extend(Fault::OF_MASTERS);
                faults.extend(Fault::OF_UNWATCHED_MASTERS);
            }
        }
        faults
    }

    /// The number of gateways on the store.
    pub(crate) fn gateways(&self) -> usize {
        if *self == Self::Embedded { 1 } else { 2 }
    }

    /// The fewest grants a second of a valid run.
    pub(crate) fn traffic(&self) -> f64 {
        match self {
            Self::Embedded | Self::Redis | Self::Sentinel | Self::Cluster | Self::Url(_) => TRAFFIC,
            Self::Redlock => TRAFFIC_OF_QUORUM,
        }
    }

    /// Whether the clients share locks. For a store that is known only by its URL they do not.
    pub(crate) fn shares(&self) -> bool {
        match self {
            Self::Embedded | Self::Redis | Self::Sentinel | Self::Cluster => true,
            Self::Redlock | Self::Url(_) => false,
        }
    }

    /// Whether the store keeps the order only among waiters of the same gateway.
    pub(crate) fn keeps_order_within_gateways(&self) -> bool {
        *self == Self::Redlock
    }
}
