//! Short histories as text, and tables of them with the promises that each breaks.
//!
//! A story is a list of statements, one in each line or several between semicolons: `TIME WHO VERB .. -> ANSWER`, in
//! milliseconds. `0-300 a acquire -> 7` is a request at 0 that is answered at 300 by a lease of ten seconds with the
//! fencing token 7; `2 b acquire wait:60000` has no answer yet, and `9 b hears 8` is its answer. `share` and `share/3`
//! ask for a shared lease, without and with a limit; `8#0` has the slot 0. `somebody sees 5:a | c` is an inspection
//! that shows the holders and the waiters; `order:5` asks with an order, which `outdated 6` refuses, and `raise 7 from:5
//! to:6` sets; `until:5000` asks for a reservation until then; `history -> shows 7:a=released 6:b=unseen dropped:1` is a
//! history of the lock, after the run if `afterwards` asks; `7~r#0` is a shared lease. `3-4 redis suffers flush forgets` is a fault that
//! was observed once. After `@20000` times count from there.
//!
//! A row of a table is `EXPECTED: STORY`. Expected is `right`, the promises that the story breaks, one promise with a
//! `+` if others may be broken too, or `not` and one promise that holds. `# ` begins a property, and `given:` is the
//! common beginning of all its rows.

use std::collections::HashMap;

use crate::history::{
    AFTERWARDS, Ask, Event, History, Invariant, Line, Mode, Past, RecordedAnswer, Report, Reserve,
    Resource, ResourceWrite, Seen, Stage, Terms, Violation, check,
};

/// A history of one lock, unless `of:other` or `both` names the other lock. `both:share/3` asks for the other lock with
/// another verb.
#[derive(Default)]
pub(super) struct Story {
    lines: Vec<Line>,
    /// Time that is added to the times of the story.
    base: u64,
    ops: u64,
    /// The requests of each errand.
    requests: HashMap<String, Vec<Request>>,
}

/// A request, or the parts of a group request for both locks.
struct Request {
    parts: Vec<(u64, Ask)>,
    is_open: bool,
}

/// The terms of hand-written histories.
pub(super) const TERMS: Terms = Terms {
    grants_per_second: 0.0,
    slack: 1,
    grace_ms: 1_000,
    history_entries: 2,
    order_within_gateways: false,
    shares: false,
    cooperates: false,
};

const TTL_MS: u64 = 10_000;

/// Checks each row of a table.
pub(super) fn check_stories(table: &str) {
    let (mut property, mut given) = ("", String::new());
    let mut rows: Vec<(&str, String, &str)> = Vec::new();
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines {
        if let Some(name) = line.strip_prefix("# ") {
            (property, given) = (name, String::new());
        } else if line.starts_with(|first: char| first.is_ascii_digit() || first == '@') {
            let (_, story, _) = rows.last_mut().expect("a line goes on with a row");
            story.extend(["\n", line]);
        } else {
            let (expected, story) = line.split_once(':').expect("a row is EXPECTED: STORY");
            if expected == "given" {
                story.clone_into(&mut given);
            } else {
                rows.push((expected, format!("{given}\n{story}"), property));
            }
        }
    }
    assert!(!rows.is_empty(), "the table is empty");
    for (expected, story, property) in rows {
        let found = Story::parse(&story).breaks();
        let is_as_expected = match expected.strip_suffix('+') {
            Some(one) => found.split(' ').any(|it| it == one),
            None => match expected.strip_prefix("not ") {
                Some(one) => found.split(' ').all(|it| it != one),
                None => found == expected,
            },
        };
        assert!(
            is_as_expected,
            "{property}: {found} and not {expected}: {story}"
        );
    }
}

// === impl Story ===

impl Story {
    pub(super) fn parse(text: &str) -> Self {
        let mut story = Self::default();
        for statement in text.split([';', '\n']).map(str::trim) {
            if !statement.is_empty() {
                story.tell(statement);
            }
        }
        story
    }

    fn tell(&mut self, statement: &str) {
        if let Some(base) = statement.strip_prefix('@') {
            self.base = number(base);
            return;
        }
        let (what, answer) = match statement.split_once(" -> ") {
            Some((what, answer)) => (what, Some(answer)),
            None => (statement, None),
        };
        let words: Vec<&str> = what.split_whitespace().collect();
        let [when, who, verb, rest @ ..] = &words[..] else {
            panic!("no statement: {statement}");
        };
        let (from, to) = match when.split_once('-') {
            Some((from, to)) => (number(from), Some(number(to))),
            None => (number(when), None),
        };
        match *verb {
            "hears" => self.hears(from, who, &rest.join(" ")),
            "hangs-up" => {
                let op = self.first(who);
                self.line(from, Event::HangsUp { op, early: true });
            }
            "keeps" => {
                let (op, left_ms) = (self.first(who), number(rest[0]));
                self.line(from, Event::Keeps { op, left_ms });
            }
            "writes" => self.writes(from, who, rest),
            "suffers" => self.suffers(who, (from, to.unwrap_or(from)), rest),
            "sees" => {
                self.asks(from, who, &Ask::Inspect, rest);
                self.hears(
                    to.expect("a span"),
                    who,
                    &format!("sees {}", rest.join(" ")),
                );
            }
            _ => {
                self.asks(from, who, &ask(verb, rest), rest);
                if let Some(to) = to {
                    self.hears(to, who, answer.unwrap_or_default());
                }
            }
        }
    }

    fn asks(&mut self, at: u64, errand: &str, ask: &Ask, rest: &[&str]) {
        let other = value(rest, "both").map_or_else(|| ask.clone(), |mode| self::ask(mode, rest));
        let locks = match value(rest, "of") {
            Some(lock) => vec![(lock, ask)],
            None if rest.iter().any(|word| word.starts_with("both")) => {
                vec![("lock", ask), ("other", &other)]
            }
            None => vec![("lock", ask)],
        };
        let group = (locks.len() > 1).then_some(self.ops + 1);
        let mut parts = Vec::new();
        for (lock, ask) in locks {
            self.ops += 1;
            parts.push((self.ops, ask.clone()));
            let event = Event::Asks {
                op: self.ops,
                errand: errand.to_owned(),
                lock: lock.to_owned(),
                to: value(rest, "at").map_or(0, |gateway| gateway.parse().unwrap()),
                ask: ask.clone(),
                group,
            };
            self.line(at, event);
        }
        let requests = self.requests.entry(errand.to_owned()).or_default();
        requests.push(Request {
            parts,
            is_open: true,
        });
    }

    fn first(&self, errand: &str) -> u64 {
        self.requests[errand][0].parts[0].0
    }

    /// Adds the answers to the parts of the last request without an answer, or one answer to all parts.
    fn hears(&mut self, at: u64, errand: &str, text: &str) {
        let mut answers = text.split(" and ").cycle();
        let requests = self.requests.get_mut(errand).expect("a request");
        let mut open = requests.iter_mut().filter(|it| it.is_open);
        let request = open.next_back().expect("a request without an answer");
        request.is_open = false;
        for (op, ask) in request.parts.clone() {
            let answer = answer(&ask, answers.next().unwrap_or_default());
            self.line(at, Event::Hears { op, answer });
        }
    }

    fn suffers(&mut self, target: &str, (from, to): (u64, u64), rest: &[&str]) {
        for (at, stage) in [
            (from, Stage::Begins),
            (from, Stage::Seen(u64::from(!rest.contains(&"unseen")))),
            (to, Stage::Heals),
        ] {
            let event = Event::Fault {
                fault: from,
                kind: rest[0].to_owned(),
                target: target.to_owned(),
                forgets: rest.contains(&"forgets"),
                stage,
            };
            self.line(at, event);
        }
    }

    /// Adds a write: its fencing token, the value that its client had read, and the value that it replaces.
    fn writes(&mut self, at: u64, resource: &str, rest: &[&str]) {
        let event = Event::Writes(ResourceWrite {
            resource: match resource {
                "fenced" => Resource::Fenced,
                _ => Resource::Unfenced,
            },
            lock: "lock".to_owned(),
            fence: number(rest[0]),
            base: number(rest[1]),
            taken: true,
            was: number(rest[2]),
            slot: value(rest, "slot").map(number),
        });
        self.line(at, event);
    }

    fn line(&mut self, at: u64, event: Event) {
        let is_afterwards = matches!(&event, Event::Asks { errand, .. } if errand == AFTERWARDS);
        let by = if is_afterwards { AFTERWARDS } else { "client" };
        self.lines.push(Line {
            at: (self.base + at) * 1_000_000,
            by: by.to_owned(),
            event,
        });
    }

    /// The report of the checker on the story, which is written as lines of a file and read again.
    pub(super) fn told(&self, terms: &Terms) -> Report {
        let reread = self.lines.iter().map(|line| {
            let text = serde_json::to_string(line).unwrap();
            serde_json::from_str(&text).unwrap()
        });
        check(&History::read(reread), terms)
    }

    /// The promises that the story breaks, each once.
    fn breaks(&self) -> String {
        let violations = self.told(&TERMS).violations;
        let which = |violation: &Violation| violation.invariant;
        let mut broken: Vec<Invariant> = violations.iter().map(which).collect();
        broken.sort();
        broken.dedup();
        if broken.is_empty() {
            return "right".to_owned();
        }
        let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
        broken.join(" ")
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// The value of a word like `wait:9000`.
fn value<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    let mut pairs = words.iter().filter_map(|word| word.split_once(':'));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// A number with the slot behind it, if it has one.
fn slotted(text: &str) -> (&str, Option<u64>) {
    match text.split_once('#') {
        Some((before, slot)) => (before, Some(number(slot))),
        None => (text, None),
    }
}

fn ask(verb: &str, rest: &[&str]) -> Ask {
    let (ttl_ms, wait_ms) = (TTL_MS, value(rest, "wait").map_or(0, number));
    let fence = || number(rest[0]);
    let mode = verb.strip_prefix("share").map_or(Mode::Exclusive, |limit| {
        let limit = limit.strip_prefix('/').map(number);
        Mode::Shared { limit }
    });
    match verb {
        "hold" => Ask::Hold {
            ttl_ms,
            wait_ms,
            mode,
        },
        "renew" => Ask::Renew {
            fence: fence(),
            ttl_ms,
        },
        "release" => Ask::Release { fence: fence() },
        "break" => Ask::Break {
            fence: fence(),
            grace_ms: value(rest, "grace").map(number),
        },
        "check" => Ask::Check { fence: fence() },
        "raise" => Ask::RaiseOrder {
            fence: fence(),
            from: value(rest, "from").map_or(0, number),
            to: value(rest, "to").map_or(0, number),
        },
        "history" => Ask::History,
        "forge" => Ask::Forge { renews: false },
        _ => {
            assert!(verb == "acquire" || mode.shares(), "no verb: {verb}");
            let keyed = rest.contains(&"keyed");
            Ask::Acquire {
                ttl_ms,
                wait_ms,
                keyed,
                mode,
                min_hold_ms: value(rest, "rest").map_or(0, number),
                reserve: value(rest, "until").map(|until| Reserve {
                    until: number(until) * 1_000_000,
                    wall_ms: 0,
                }),
                order: value(rest, "order").map(number),
            }
        }
    }
}

/// The answer that a text describes. Without a text, the answer is what the request asked for.
fn answer(ask: &Ask, text: &str) -> RecordedAnswer {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (first, rest) = words.split_first().unwrap_or((&"", &[]));
    let (word, slot) = slotted(first);
    let left = |unless_said| value(rest, "left").map_or(unless_said, number);
    match (word, ask) {
        ("renewed", _) | ("", Ask::Renew { .. }) => {
            let Ask::Renew { fence, ttl_ms } = *ask else {
                panic!("{ask:?} does not renew");
            };
            RecordedAnswer::Renewed {
                fence,
                left_ms: left(ttl_ms),
                slot,
                asked_for: rest.contains(&"asked"),
            }
        }
        ("released", _) | ("", Ask::Release { .. }) => RecordedAnswer::Released,
        ("requested", _)
        | (
            "",
            Ask::Break {
                grace_ms: Some(_), ..
            },
        ) => RecordedAnswer::Requested,
        ("broken", _) | ("", Ask::Break { .. }) => RecordedAnswer::Broken,
        ("stale", _) => RecordedAnswer::Stale,
        ("", Ask::Check { .. }) => RecordedAnswer::Passed,
        ("lost", _) => RecordedAnswer::Lost,
        ("outdated", _) => RecordedAnswer::Outdated {
            granted_order: number(rest[0]),
        },
        ("", Ask::RaiseOrder { .. }) => RecordedAnswer::OrderRaised,
        ("unknown", _) => RecordedAnswer::Unknown,
        ("refused", _) => RecordedAnswer::Refused {
            code: rest.join(" "),
        },
        ("wrong", _) => RecordedAnswer::Wrong {
            what: rest.join(" "),
        },
        ("locked", _) => RecordedAnswer::Locked {
            holders: holders(rest),
        },
        ("sees", _) => {
            let mut sides = rest.split(|word| *word == "|");
            let seen = sides.next().unwrap_or_default();
            let waiters = sides.next().unwrap_or_default();
            RecordedAnswer::Shown {
                holders: holders(seen),
                waiters: waiters.iter().map(|&owner| owner.to_owned()).collect(),
            }
        }
        ("shows", _) => RecordedAnswer::History {
            entries: rest.iter().filter_map(|word| past(word)).collect(),
            dropped: value(rest, "dropped").map_or(0, number),
        },
        ("again", _) => granted(rest[0], TTL_MS - 1_000, true),
        _ => granted(first, left(TTL_MS), false),
    }
}

fn granted(text: &str, left_ms: u64, again: bool) -> RecordedAnswer {
    let (fence, slot) = slotted(text);
    let fence = number(fence);
    RecordedAnswer::Granted {
        fence,
        left_ms,
        again,
        slot,
    }
}

/// An entry of a history as `7:owner=released`. The end may also be `held` or `unseen`.
fn past(word: &str) -> Option<Past> {
    let (lease, end) = word.split_once('=')?;
    let (fence, owner) = lease.split_once(':')?;
    let ended = !["held", "unseen", "rest-ended"].contains(&end);
    Some(Past {
        fence: number(fence),
        owner: Some(owner.to_owned()),
        ended: ended.then(|| end.to_owned()),
        held: end == "held",
        rest_ended: end == "rest-ended",
    })
}

/// Holders as `7:alone` or `7~shares#0`; `nobody` stands for none.
fn holders(words: &[&str]) -> Vec<Seen> {
    let words = words.iter().filter(|word| **word != "nobody");
    let seen = words.map(|word| {
        let (rest, slot) = slotted(word);
        let (fence, owner) = rest
            .split_once([':', '~'])
            .expect("FENCE:OWNER or FENCE~OWNER");
        Seen {
            fence: number(fence),
            owner: owner.to_owned(),
            shares: rest.contains('~'),
            slot,
        }
    });
    seen.collect()
}
