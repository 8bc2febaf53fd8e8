//! The stores that are tortured, and which faults apply to each.

use crate::faults::Fault;

/// A store that can be tortured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedded,
    Redis,
    Sentinel,
    Redlock,
    Cluster,
    /// One that runs already, and of which nothing is known but its URL.
    Url(String),
}

/// Grants a second without which there was no traffic.
const TRAFFIC: f64 = 200.0;
/// The same where each takes two rounds.
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

    /// Which faults apply to it.
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

    /// How many gateways are on it.
    pub(crate) fn gateways(&self) -> usize {
        if *self == Self::Embedded { 1 } else { 2 }
    }

    /// The fewest grants a second.
    pub(crate) fn traffic(&self) -> f64 {
        match self {
            Self::Embedded | Self::Redis | Self::Sentinel | Self::Cluster | Self::Url(_) => TRAFFIC,
            Self::Redlock => TRAFFIC_OF_QUORUM,
        }
    }

    /// Whether locks are shared there. Of a store that is only known by its URL nobody knows.
    pub(crate) fn shares(&self) -> bool {
        match self {
            Self::Embedded | Self::Redis | Self::Sentinel | Self::Cluster => true,
            Self::Redlock | Self::Url(_) => false,
        }
    }

    /// Whether those who wait are in order only among those who wait at the same gateway.
    pub(crate) fn keeps_order_within_gateways(&self) -> bool {
        *self == Self::Redlock
    }
}
