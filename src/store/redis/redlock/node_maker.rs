//! Makes the nodes of a quorum, of what they have in common.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    config::{RedisConfig, RedisNode},
    lifecycle::Workers,
};

use super::{
    super::{
        SlotTags, client::Endpoint, credentials::Credentials, dispatch::Dispatch,
        examination::Examiner, floors::Floors, gateway::RedisGateway, replicated::Replicated,
        route::Route, scripts::Scripts, shard::Shard, topology::Topology,
    },
    learning::Learning,
    node::{Node, Votes},
    scripts::QuorumScripts,
};

/// What the nodes of one quorum have in common.
pub(super) struct NodeMaker {
    pub(super) redis: RedisConfig,
    pub(super) workers: Workers,
    pub(super) credentials: Arc<Credentials>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) own: Arc<QuorumScripts>,
    pub(super) gateway: Arc<RedisGateway>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tags: Arc<SlotTags>,
    /// For how long a node must have run before it votes.
    pub(super) wait: Duration,
    /// Whether a node may have forgotten something when it is started again.
    pub(super) forgets: bool,
}

// === impl NodeMaker ===

impl NodeMaker {
    pub(super) fn node(&self, index: usize, node: &RedisNode) -> Node {
        let timeout = self.redis.command_timeout_ms.duration();
        let connect_timeout = self.redis.connect_timeout_ms.duration();
        let credentials = Arc::clone(&self.credentials);
        let endpoint = Endpoint::new(node.clone(), credentials, connect_timeout);
        let route = Route::to(endpoint.asking_for_run(true));
        let shard = Arc::new(Shard::only(route, &self.redis, &self.workers));
        let topology = Topology::Single(Arc::clone(&shard), node.to_string());
        let dispatch = Arc::new(Dispatch::new(topology, &self.redis));
        let replicated = Arc::new(Replicated {
            tags: Arc::clone(&self.tags),
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&self.scripts),
            gateway: Arc::clone(&self.gateway),
        });
        let examiner = Examiner {
            dispatch: Arc::clone(&dispatch),
            scripts: Arc::clone(&self.scripts),
            replicated,
            floors: Arc::new(Floors::new()),
            clock: Arc::clone(&self.clock),
            accept_eviction: self.redis.accept_eviction,
            tags: Arc::clone(&self.tags),
            limit: timeout,
        };
        Node {
            index,
            name: node.to_string(),
            dispatch,
            shard,
            examiner: Arc::new(examiner),
            scripts: Arc::clone(&self.own),
            timeout,
            wait: self.wait,
            forgets: self.forgets,
            votes: Votes::default(),
            learning: Learning::default(),
        }
    }
}
