//! When what was broken on purpose.

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

/// One fault.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(super) kind: String,
    pub(super) target: String,
    pub(super) forgets: bool,
    pub(super) begins: u64,
    pub(super) heals: u64,
    /// How often it was seen to happen.
    pub(super) seen: u64,
}

/// How long after a fault everything may still be unusual: service must be back by then.
pub(super) const RECOVERY: u64 = 10_000 * MS;
/// For how long a gateway counts as alive that was killed: until then locks may be handed to those who
/// waited there.
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

    /// To be called when all are known.
    pub(super) fn settle(&mut self) {
        self.spans = union(self.all.values().map(Fault::span).collect());
    }

    /// Whether anything was broken in some time, or so shortly before that it may still be felt.
    pub(super) fn felt(&self, from: u64, until: u64) -> bool {
        let felt =
            |&(begins, heals): &Span| begins <= until && from <= heals.saturating_add(RECOVERY);
        self.spans.iter().any(felt)
    }

    /// When the last of the faults was over that began before an instant; never if it lasts.
    pub(super) fn last_before(&self, at: u64) -> u64 {
        let before = self.spans.iter().filter(|(begins, _)| *begins <= at);
        before.map(|(_, heals)| *heals).max().unwrap_or_default()
    }

    /// Until when a lock may be handed to those who waited at a gateway that was killed before an instant.
    pub(super) fn counts_as_alive(&self, at: u64) -> u64 {
        let killed = |fault: &&Fault| fault.kind == "kill-gateway" && fault.begins <= at;
        let killed = self.all.values().filter(killed);
        let until = killed.map(|fault| fault.begins.saturating_add(ALIVE));
        until.max().unwrap_or_default()
    }

    /// How much of some time nothing was broken.
    pub(super) fn calm(&self, from: u64, until: u64) -> u64 {
        length(&without(&[(from, until)], &self.spans))
    }

    /// Whether the store may have forgotten in some time what it had answered.
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
