//! The injected faults of a run: when each began and when it was healed.

use std::collections::BTreeMap;

use super::{
    line::Stage,
    op::{MS, NEVER},
    spans::{Span, length, union, without},
};

/// All faults of a run.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(super) all: BTreeMap<u64, Fault>,
    spans: Vec<Span>,
}

/// An injected fault: its kind, the process it was for, and the time from its beginning to its end.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(super) kind: String,
    pub(super) target: String,
    pub(super) forgets: bool,
    pub(super) begins: u64,
    pub(super) heals: u64,
    /// How often the injector observed that the fault took effect.
    pub(super) seen: u64,
}

/// How long after the end of a fault the service may still be disturbed. By then it must be back.
pub(super) const RECOVERY: u64 = 10_000 * MS;
/// How long a killed gateway still counts as alive. Until then other gateways may hand locks to its waiters.
const ALIVE: u64 = 6_000 * MS;

// === impl Faults ===

impl Faults {
    pub(super) fn note(&mut self, id: u64, at: u64, stage: Stage, new: Fault) {
        let fault = self.all.entry(id).or_insert(new);
        match stage {
            Stage::Begins => fault.begins = fault.begins.min(at),
            Stage::Seen(times) => fault.seen += times,
            Stage::Heals => fault.heals = at,
        }
    }

    /// Merges the spans of all faults. Must be called once, after the last `note`.
    pub(super) fn settle(&mut self) {
        self.spans = union(self.all.values().map(Fault::span).collect());
    }

    /// Whether a fault overlaps a time span, or ended so shortly before the span that its effects may still be felt.
    pub(super) fn felt(&self, from: u64, until: u64) -> bool {
        let felt =
            |&(begins, heals): &Span| begins <= until && from <= heals.saturating_add(RECOVERY);
        self.spans.iter().any(felt)
    }

    /// The latest end of the faults that began before an instant; [`NEVER`] if one of them has not ended.
    pub(super) fn last_before(&self, at: u64) -> u64 {
        let before = self.spans.iter().filter(|(begins, _)| *begins <= at);
        before.map(|(_, heals)| *heals).max().unwrap_or_default()
    }

    /// The time until which other gateways may hand locks to waiters of a gateway that was killed before an instant.
    pub(super) fn counts_as_alive(&self, at: u64) -> u64 {
        let killed = |fault: &&Fault| fault.kind == "kill-gateway" && fault.begins <= at;
        let killed = self.all.values().filter(killed);
        let until = killed.map(|fault| fault.begins.saturating_add(ALIVE));
        until.max().unwrap_or_default()
    }

    /// Whether a gateway was killed in a time span, before `calm` of it was free of faults.
    pub(super) fn killed(&self, gateway: usize, (from, until): Span, calm: u64) -> bool {
        let target = format!("gateway-{gateway}");
        let killed = self.all.values();
        let mut killed = killed.filter(|it| it.kind == "kill-gateway" && it.target == target);
        killed.any(|it| it.begins <= until && from <= it.heals && self.calm(from, it.begins) < calm)
    }

    /// How much of a time span was free of faults.
    pub(super) fn calm(&self, from: u64, until: u64) -> u64 {
        length(&without(&[(from, until)], &self.spans))
    }

    /// Whether a fault of a kind overlaps a time span.
    pub(super) fn happened(&self, kind: &str, from: u64, until: u64) -> bool {
        let mut of_kind = self.all.values().filter(|fault| fault.kind == kind);
        of_kind.any(|fault| fault.begins <= until && from <= fault.heals)
    }

    /// Whether a fault before `until` may have made the store forget what was written at `from`. A failover forgets only
    /// what was written before it with less than `calm` without a fault in between.
    pub(super) fn forgot_written(&self, (from, until): Span, calm: u64) -> bool {
        let losses = self.all.values().filter(|fault| fault.forgets);
        let mut losses = losses.filter(|it| it.begins <= until && from <= it.heals);
        losses.any(|it| {
            ["flush", "lose-redis"].contains(&it.kind.as_str()) || self.calm(from, it.begins) < calm
        })
    }

    /// Whether a fault in a time span may have made the store forget what it had acknowledged.
    pub(super) fn forgot(&self, from: u64, until: u64) -> bool {
        let mut losses = self.all.values().filter(|fault| fault.forgets);
        losses.any(|fault| fault.begins <= until && from <= fault.heals)
    }
}

// === impl Fault ===

impl Fault {
    pub(super) fn new(kind: &str, target: &str, forgets: bool) -> Self {
        Self {
            kind: kind.to_owned(),
            target: target.to_owned(),
            forgets,
            begins: NEVER,
            heals: NEVER,
            seen: 0,
        }
    }

    fn span(&self) -> Span {
        (self.begins, self.heals)
    }
}
