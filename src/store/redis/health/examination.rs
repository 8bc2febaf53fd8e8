//! Examines whether locks on a server are safe: at the start, on every new connection, once a minute, and on request.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::{Duration, Instant, sleep};

use crate::{
    clock::Clock,
    store::{
        Unavailability,
        contract::{Check, Health},
    },
};

use super::{
    super::{
        Slot, SlotTags,
        client::{
            Script,
            dispatch::Dispatch,
            failure::{Failure, explain},
            shard::{self, Findings, NO_EVICTION, SafetyVerdict, Shard, eviction_policy},
        },
        keys::Keys,
        slot::Floors,
    },
    probe::{Permission, Probed},
};

/// The settings and the state with which a gateway examines servers.
pub(crate) struct Examiner {
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) probe: Script,
    pub(crate) floors: Arc<Floors>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tags: Arc<SlotTags>,
    pub(crate) accept_eviction: bool,
    /// The ACL line that a gateway's user needs at the servers, for messages to the operator.
    pub(crate) acl_line: &'static str,
    /// How long an examination of a server may take.
    pub(crate) limit: Duration,
}

/// Pause before a server is probed again in another slot.
const ANOTHER_SLOT: Duration = Duration::from_millis(10);
/// How much the clocks of server and gateway may differ before a warning.
const SKEW: Duration = Duration::from_secs(1);
/// Times of a server's clock, in seconds, from which fences may be made, as in `parts/fence.lua`.
const POSSIBLE: std::ops::Range<u64> = 1_735_689_600..7_258_118_400;

// === impl Examiner ===

impl Examiner {
    /// Examines a server now.
    pub(crate) async fn examine(&self, shard: &Arc<Shard>) -> Findings {
        let examined = async {
            let probed = self.probe(shard).await?;
            Ok::<_, Failure>((probed, self.eviction(shard).await?))
        };
        let mut findings = match examined.await {
            Ok((probed, eviction)) => self.findings(shard, &probed, eviction),
            Err(failure) => Findings::of_failure(failure, self.acl_line),
        };
        if let SafetyVerdict::Safe = findings.verdict {
            findings.checks.extend(self.check_replicas(shard).await);
        }
        if !self.dispatch.topology.is_cluster() {
            findings.checks.extend(self.dispatch.topology.checks());
        }
        findings
    }

    async fn probe(&self, shard: &Arc<Shard>) -> Result<Probed, Failure> {
        let limit = Instant::now() + self.limit;
        loop {
            let slot = self.dispatch.topology.some_slot(shard);
            let key = match slot {
                Some(slot) => Keys::in_slot(slot, &self.tags, "probe"),
                None => Keys::PROBE.to_owned(),
            };
            match self.dispatch.probe(&self.probe, shard, &key, limit).await {
                // The slot is being moved to another server, or was moved there. Another slot is tried next.
                Err(Failure::Elsewhere(_) | Failure::Moving(_)) if Instant::now() < limit => {
                    sleep(ANOTHER_SLOT).await;
                }
                Err(Failure::Elsewhere(redirect)) => {
                    return Err(Failure::Transient(redirect.reason()));
                }
                Ok(mut probed) => {
                    if slot.is_some() {
                        probed.listing.push(self.dispatch.may_ask(shard).await?);
                    }
                    return Ok(probed);
                }
                other => return other,
            }
        }
    }

    fn findings(&self, shard: &Shard, probed: &Probed, eviction: Health) -> Findings {
        let refused = &self.dispatch.unsubscribed;
        let refused = refused.lock();
        let permissions = judge(probed, refused.as_deref(), self.acl_line);
        drop(refused);
        let clock = self.judge_clock(shard, probed.time);
        let may_run = |(_, permission): &(String, Permission)| *permission == Permission::Given;
        let verdict = match (&permissions, &eviction) {
            (Health::Misconfigured(why), _) if !probed.commands.iter().all(may_run) => {
                SafetyVerdict::Unsafe(why.clone())
            }
            (_, Health::Misconfigured(why)) => SafetyVerdict::Unsafe(why.clone()),
            _ => SafetyVerdict::Safe,
        };
        Findings::new(
            verdict,
            [
                ("connection", judge_connection(shard, probed)),
                ("permissions", permissions),
                ("eviction", eviction),
                ("clock", clock),
            ],
        )
    }

    async fn eviction(&self, shard: &Arc<Shard>) -> Result<Health, Failure> {
        let policy = match self.dispatch.info(shard, "memory").await {
            Ok(info) => info.and_then(|info| {
                let nearly_full = &shard.admission.nearly_full;
                nearly_full.store(shard::nearly_full(&info), Ordering::Relaxed);
                eviction_policy(&info)
            }),
            Err(Failure::Refused(why)) => {
                let missing = format!("the eviction policy cannot be read: {why}");
                return Ok(self.unread(shard, explain(&missing, self.acl_line)));
            }
            Err(failure) => return Err(failure),
        };
        let Some(policy) = policy else {
            let why = "the server does not tell its eviction policy".to_owned();
            return Ok(self.unread(shard, why));
        };
        *shard.admission.policy.lock() = Some(policy.clone());
        Ok(self.judge_eviction(&policy))
    }

    fn judge_eviction(&self, policy: &str) -> Health {
        let finding = format!("the server evicts keys when its memory is full ({policy})");
        if policy == NO_EVICTION {
            Health::Passing
        } else if self.accept_eviction {
            Health::Warning(format!("{finding}; accepted by redis.accept_eviction"))
        } else {
            Health::Misconfigured(format!(
                "{finding}, which frees locks that are held; set maxmemory-policy \
                 noeviction, or accept it with redis.accept_eviction"
            ))
        }
    }

    /// The finding on a server whose eviction policy cannot be read: the policy that was read last still counts,
    /// because a server that evicts keys does not become safe when it hides its policy.
    fn unread(&self, shard: &Shard, why: String) -> Health {
        let last = shard.admission.policy.lock().clone();
        match last.map(|policy| self.judge_eviction(&policy)) {
            Some(Health::Misconfigured(what)) => {
                Health::Misconfigured(format!("{what} (when it was last read: {why})"))
            }
            _ => Health::Warning(why),
        }
    }

    fn judge_clock(&self, shard: &Shard, time: Duration) -> Health {
        if !POSSIBLE.contains(&time.as_secs()) {
            let seconds = time.as_secs();
            let finding = format!("the server's clock shows {seconds} s since 1970");
            return Health::Misconfigured(format!("{finding}; no fencing token is made from it"));
        }
        let here = self.clock.wall().duration_since(std::time::UNIX_EPOCH);
        let here = here.unwrap_or_default();
        let ahead = time.as_secs_f64() - here.as_secs_f64();
        *shard.admission.skew.lock() = Some(ahead);
        if Duration::from_micros(self.floors.highest()) > time + SKEW {
            let finding = "a fencing token is ahead of the server's clock: the clock has stepped back, or \
                           the counter was raised (by another server's data, or by hand); tokens go \
                           on rising from there";
            return Health::Warning(finding.to_owned());
        }
        let skew = here.abs_diff(time);
        if skew > SKEW {
            let ms = skew.as_millis();
            return Health::Warning(format!(
                "the clocks of the server and of this gateway differ by {ms} ms"
            ));
        }
        Health::Passing
    }
}

/// Judges whether the server takes writes, and whether its connection has a warning.
fn judge_connection(shard: &Shard, probed: &Probed) -> Health {
    match &probed.refusal {
        None => match shard.pool.route.endpoint().and_then(|it| it.warning()) {
            Some(finding) => Health::Warning(finding.to_owned()),
            None => Health::Passing,
        },
        Some(Unavailability::OutOfMemory) => {
            let finding = "the server is out of memory: no lock is granted until memory is free";
            Health::Warning(finding.to_owned())
        }
        Some(why) => Health::Outage(why.to_string()),
    }
}

// The permissions that the ACL user of a gateway needs, and what to do if one is missing.

/// Judges the permissions that a probe found, and the error with which the server refuses this gateway the subscription
/// to its channel, if it does.
pub(crate) fn judge(probed: &Probed, unsubscribed: Option<&str>, acl_line: &str) -> Health {
    let tried = probed.commands.iter().chain(&probed.listing);
    let mut missing: Vec<&str> = tried
        .filter(|(_, permission)| *permission == Permission::Missing)
        .map(|(name, _)| name.as_str())
        .collect();
    // A probe tries some commands more than once, and each missing permission is named once.
    let mut named = HashSet::new();
    missing.retain(|name| named.insert(*name));
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Health::Misconfigured(explain(
            &format!("the user may not run {missing}"),
            acl_line,
        ));
    }
    match (probed.publish, unsubscribed) {
        (Permission::Given, None) => Health::Passing,
        (Permission::Given, Some(why)) => {
            let missing = format!("the user may not subscribe to channels of its own: {why}");
            Health::Misconfigured(explain(&missing, acl_line))
        }
        (Permission::Missing, _) => {
            let missing = "the user may not publish on channels that begin with lg:";
            Health::Misconfigured(explain(missing, acl_line))
        }
    }
}

// The readiness finding on replicas, if grants wait for replicas.

// === impl Examiner ===

impl Examiner {
    /// The readiness finding on the replicas of a server; nothing if grants do not wait for replicas.
    async fn check_replicas(&self, shard: &Arc<Shard>) -> Option<Check> {
        let slot = self.dispatch.topology.some_slot(shard);
        let slot = slot.unwrap_or_else(|| Slot::of_tag(Keys::MARKER.as_bytes()));
        let limit = Instant::now() + shard.replicas.longest();
        let markers = match shard.marker_connection(slot, &self.tags, limit).await {
            Ok(None) => return None,
            Ok(Some(markers)) => markers,
            Err(Unavailability::Misconfigured(why)) => {
                return Some(check(Health::Misconfigured(why)));
            }
            Err(why) => return Some(check(Health::Outage(why.to_string()))),
        };
        let limit = Instant::now() + shard.replicas.longest();
        let replicas = &shard.replicas;
        let had = replicas.have(&markers, Some(&markers.run), limit).await;
        Some(match had {
            Ok(()) => Check {
                note: replicas.confirmed().map(|count| format!("{count} confirm")),
                ..check(self.judge_spare(shard).await)
            },
            Err(confirmed) => {
                let why = replicas.too_few(confirmed);
                check(Health::Outage(why.to_string()))
            }
        })
    }

    /// Judges whether locks can still be granted after a failover. The new master is one of the replicas, so it has one
    /// replica less.
    async fn judge_spare(&self, shard: &Arc<Shard>) -> Health {
        if !self.dispatch.topology.fails_over() {
            return Health::Passing;
        }
        let Ok(Some(info)) = self.dispatch.info(shard, "replication").await else {
            return Health::Passing;
        };
        let is_replica = |line: &&str| line.starts_with("slave") && line.contains("state=online");
        let count = info.lines().filter(is_replica).count();
        let wanted = shard.replicas.wanted();
        if count > wanted as usize {
            return Health::Passing;
        }
        Health::Warning(format!(
            "the master has no more replicas than redis.wait_replicas asks for ({wanted}): after a \
             failover no lock is granted until there is another replica; add a replica"
        ))
    }
}

fn check(health: Health) -> Check {
    Check::new("replicas", health)
}
