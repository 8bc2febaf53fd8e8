//! The state of leases as listeners know it, so that each event is complete, in order and reported once.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    engine::leases::{LeaseTag, RegisteredLease},
    lock::{FencingToken, LockName, Mode, Owner},
};

use super::event::{Event, EventKind, EventMessage};

/// The leases that live or have ended lately, as far as events report them, while there is a listener.
///
/// A hand-off wakes the next holder before the earlier holder's gateway publishes the end, so the two may publish in
/// either order. A grant is withheld for a moment if a lease that excludes it has not ended yet.
#[derive(Debug, Default)]
pub(super) struct KnownLeases {
    /// The known leases by their lock, in the order in which they became known.
    locks: HashMap<LockName, Vec<KnownLease>>,
    count: usize,
    /// Until when grants are withheld, the earliest first; some of these grants may have been announced since.
    withheld: VecDeque<(Instant, LockName)>,
    sweep_at: Option<Instant>,
}

#[derive(Debug)]
struct KnownLease {
    tag: Option<LeaseTag>,
    fence: Option<FencingToken>,
    owner: Option<Owner>,
    mode: Option<Mode>,
    stage: Stage,
    /// When the lease is removed from the known leases.
    until: Instant,
}

/// What listeners of events were told about a lease so far.
#[derive(Debug)]
enum Stage {
    /// Listeners were not told of the grant: it came before there was a listener, or its event is on its way.
    Granted,
    /// Listeners were not told of the grant, which is withheld until this time, or until the lease before it has
    /// ended.
    Withheld(Instant, Box<EventMessage>),
    /// Listeners were told of the grant.
    Announced,
    /// Listeners were told of the end of the lease.
    Ended,
}

/// How many leases are remembered at most. The end of an unknown lease may be reported without its owner.
const MAX_LEASES: usize = 131_072;
/// How many ended leases of one lock are remembered at most, so that a second event of an end is not reported again.
const MAX_ENDED: usize = 64;
/// How long a lease is remembered at least after its TTL or its end, so that a second event of its end, which may be on its
/// way, is not reported again.
const REMEMBERED: Duration = Duration::from_secs(2);
/// How long a grant is withheld: longer than a busy gateway needs to publish the end of the earlier lease.
const WITHHELD: Duration = Duration::from_millis(250);

// === impl KnownLeases ===

impl KnownLeases {
    /// Adds a lease that was granted before there was a listener.
    pub(super) fn track(&mut self, tag: LeaseTag, name: &LockName, lease: &RegisteredLease) {
        let known = KnownLease {
            tag: Some(tag),
            fence: Some(lease.fence),
            owner: lease.owner.clone(),
            mode: Some(lease.mode),
            stage: Stage::Granted,
            until: lease.until + REMEMBERED,
        };
        self.add(name, known);
    }

    /// Processes an event, and adds to `told` the events for listeners. Returns the lease that has ended with the
    /// event, if any.
    pub(super) fn process(
        &mut self,
        news: EventMessage,
        told: &mut Vec<Event>,
    ) -> Option<LeaseTag> {
        let EventMessage { event, lease: tag } = news;
        let Some(name) = event.name.clone() else {
            // A gap comes after all events that were published before it, so withheld grants are announced first.
            if let Some(&(last, _)) = self.withheld.back() {
                self.tell_due(last, told);
            }
            told.push(event);
            return None;
        };
        self.sweep(Instant::now());
        let leases = self.locks.get_mut(&name).map_or(&mut [][..], |it| it);
        let is_it = |it: &KnownLease| {
            tag.is_some() && it.tag == tag || event.fence.is_some() && it.fence == event.fence
        };
        let known = leases.iter().rposition(is_it);
        if let Some(known) = known
            && event.kind != EventKind::Acquired
        {
            leases[known].announce(told);
        }
        match event.kind {
            EventKind::Gap
            | EventKind::Queued
            | EventKind::ReleaseRequested
            | EventKind::StaleWriteRefused => told.push(event),
            EventKind::Acquired => match known.map(|known| &mut leases[known]) {
                None => self.begin(&name, tag, event, told),
                Some(lease) => match lease.stage {
                    // Both the request that was granted the lease and a repeated request may report the grant.
                    Stage::Announced | Stage::Withheld(..) => {}
                    // The gateway of the lease may report its end, too.
                    Stage::Ended => {
                        lease.renew(&event);
                        told.push(event);
                    }
                    Stage::Granted => {
                        lease.stage = Stage::Announced;
                        told.push(event);
                    }
                },
            },
            EventKind::Renewed => match known.map(|known| &mut leases[known]) {
                Some(lease) if lease.is_ended() => {}
                Some(lease) => {
                    lease.renew(&event);
                    told.push(event);
                }
                None => {
                    if let Some(lease) = KnownLease::from_event(&event, tag, Stage::Granted) {
                        self.add(&name, lease);
                    }
                    told.push(event);
                }
            },
            EventKind::Released | EventKind::Expired | EventKind::Broken | EventKind::Lost => {
                return self.end(&name, known, tag, event, told);
            }
        }
        None
    }

    fn begin(
        &mut self,
        name: &LockName,
        tag: Option<LeaseTag>,
        event: Event,
        told: &mut Vec<Event>,
    ) {
        let Some(mut lease) = KnownLease::from_event(&event, tag, Stage::Announced) else {
            return told.push(event);
        };
        let others = self.locks.get(name).map_or(&[][..], |it| it);
        if self.count < MAX_LEASES && is_excluded(&lease, others) {
            let until = Instant::now() + WITHHELD;
            self.withheld.push_back((until, name.clone()));
            let news = EventMessage { event, lease: tag };
            lease.stage = Stage::Withheld(until, Box::new(news));
        } else {
            told.push(event);
        }
        self.add(name, lease);
    }

    fn end(
        &mut self,
        name: &LockName,
        known: Option<usize>,
        tag: Option<LeaseTag>,
        mut event: Event,
        told: &mut Vec<Event>,
    ) -> Option<LeaseTag> {
        let (kind, now) = (event.kind, Instant::now());
        // If a stream reports its lease as lost before its end, the lease may live a little longer.
        let is_over = kind.ends_lease() || event.reason.as_deref() == Some("ended");
        let ended = KnownLease {
            tag,
            fence: event.fence,
            owner: None,
            mode: None,
            stage: Stage::Ended,
            until: now + REMEMBERED,
        };
        let Some(known) = known else {
            told.push(event);
            if is_over {
                self.add(name, ended);
            }
            return tag.filter(|_| is_over);
        };
        let has_room = self.count < MAX_LEASES / 2;
        let leases = self.locks.get_mut(name)?;
        let lease = &mut leases[known];
        if lease.is_ended() && kind.ends_lease() {
            return None;
        }
        event.fence = lease.fence.or(event.fence);
        event.owner = event.owner.or_else(|| lease.owner.clone());
        event.mode = event.mode.or(lease.mode);
        told.push(event);
        if !is_over {
            return None;
        }
        let tag = tag.or(lease.tag);
        // Another gateway that has not heard of this end reports the lease as expired when its time is over. Ended leases
        // leave room for living ones.
        let until = if has_room { lease.until } else { now };
        (lease.stage, lease.until, lease.tag) = (Stage::Ended, until.max(now + REMEMBERED), tag);
        for next in 0..leases.len() {
            let is_withheld = matches!(leases[next].stage, Stage::Withheld(..));
            if is_withheld && !is_excluded(&leases[next], leases) {
                leases[next].announce(told);
            }
        }
        if leases.iter().filter(|it| it.is_ended()).count() > MAX_ENDED
            && let Some(first) = leases.iter().position(KnownLease::is_ended)
        {
            leases.remove(first);
            self.count -= 1;
        }
        tag
    }

    /// The time at which the next withheld grant is announced.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.withheld.front().map(|(until, _)| *until)
    }

    /// Announces the grants that have been withheld for long enough.
    pub(super) fn tell_due(&mut self, now: Instant, told: &mut Vec<Event>) {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((until, name)) = self.withheld.pop_front()
        {
            for lease in self.locks.get_mut(&name).into_iter().flatten() {
                if matches!(lease.stage, Stage::Withheld(due, _) if due <= until) {
                    lease.announce(told);
                }
            }
        }
    }

    fn add(&mut self, name: &LockName, lease: KnownLease) {
        if self.count < MAX_LEASES {
            self.locks.entry(name.clone()).or_default().push(lease);
            self.count += 1;
        }
    }

    /// Removes known leases that have ended long enough ago, once per `REMEMBERED`.
    fn sweep(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at > now) {
            return;
        }
        self.sweep_at = Some(now + REMEMBERED);
        self.count = 0;
        self.locks.retain(|_, leases| {
            leases.retain(|lease| lease.until > now);
            self.count += leases.len();
            !leases.is_empty()
        });
    }
}

/// Whether one of these leases lives, as far as is known, and excludes a later lease of the same lock.
fn is_excluded(later: &KnownLease, others: &[KnownLease]) -> bool {
    let now = Instant::now();
    let is_alone = |lease: &KnownLease| lease.mode == Some(Mode::Exclusive);
    others.iter().any(|other| {
        let lives = !other.is_ended() && other.until > now && other.fence < later.fence;
        lives && (is_alone(later) || is_alone(other))
    })
}

// === impl KnownLease ===

impl KnownLease {
    /// Makes the known lease from the event of a grant or a renewal; `None` if data is missing in the event.
    fn from_event(event: &Event, tag: Option<LeaseTag>, stage: Stage) -> Option<Self> {
        event.fence?;
        Some(Self {
            tag,
            fence: event.fence,
            owner: event.owner.clone(),
            mode: event.mode,
            stage,
            until: Instant::now() + event.expires_in? + REMEMBERED,
        })
    }

    fn renew(&mut self, event: &Event) {
        self.owner.clone_from(&event.owner);
        self.mode = event.mode;
        self.until = Instant::now() + event.expires_in.unwrap_or_default() + REMEMBERED;
    }

    fn is_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Announces the grant of this lease to listeners, if it was withheld.
    fn announce(&mut self, told: &mut Vec<Event>) {
        if let Stage::Withheld(_, news) = &self.stage {
            told.push(news.event.clone());
            self.stage = Stage::Announced;
        }
    }
}
