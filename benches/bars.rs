//! The bars: a table of limits for the figures, and the verdict on each.

/// A bar: the least or the largest value that a figure may have.
pub(crate) struct Bar {
    pub(crate) what: &'static str,
    limit: f64,
    goal: Option<f64>,
    at_least: bool,
}

// Counts of the part `counts`, which are the same on every machine.
pub(crate) const ACQUIRE_COMMANDS: Bar =
    at_most("Redis commands in an acquire, EVALSHA apart", 4.0);
pub(crate) const RELEASE_COMMANDS: Bar = at_most("Redis commands in a release, EVALSHA apart", 3.0);
pub(crate) const KEYED_COMMANDS: Bar =
    at_most("Redis commands in a keyed pair, EVALSHA included", 12.0);
pub(crate) const HAND_OFF_COMMANDS: Bar =
    at_most("Redis commands in a hand-off, EVALSHA included", 12.0);
pub(crate) const ACQUIRE_ALLOCATIONS: Bar =
    at_most("heap allocations in an acquire over Redis", 30.0).goal(20.0);
pub(crate) const PAIR_SYSCALLS: Bar = at_most("syscalls in a pair over Redis, 64 connections", 5.0);

// Ratios of the part `pairs`, each within one round.
pub(crate) const OF_NATIVE: Bar = at_least("pairs over Redis / native client", 0.40).goal(0.52);
pub(crate) const OF_WEBDIS: Bar = at_least("pairs over Redis / Webdis with EVAL", 1.05).goal(1.30);
pub(crate) const EMBEDDED: Bar = at_least("pairs, embedded / bare route", 0.60).goal(0.85);
pub(crate) const EDGE: Bar = at_least("pairs, null store / bare route", 0.75).goal(0.90);

// Figures of the part `waiting`.
pub(crate) const HAND_OFFS: Bar =
    at_least("hand-offs/s, 100 clients, two cores", 4_500.0).goal(6_500.0);
pub(crate) const HAND_OFFS_OF_NATIVE: Bar = at_least("hand-offs, 100 clients / native pairs", 0.13);
pub(crate) const FAIRNESS: Bar = at_most("turns by which 100 clients differ", 2.0);
pub(crate) const CROWD_COMMANDS: Bar =
    at_most("commands/hand-off, 10,000 clients / 10 clients", 1.5);
pub(crate) const WAITER_KIB: Bar = at_most("KiB for each of 10,000 that wait", 20.0);
pub(crate) const HUNG_UP: Bar = at_most("next grant after 10,000 hung up, ms", 10.0);
pub(crate) const HANG_UP_COMMANDS: Bar =
    at_most("Redis commands for each who hung up / other build", 1.1);

// Figures of the part `sharing`.
pub(crate) const ONE_MORE_READER: Bar =
    at_most("pair of one more beside 999 readers / exclusive pair", 1.5);
pub(crate) const SEMAPHORE: Bar = at_least(
    "semaphore of 10, 100 clients / one lock * holders at once",
    0.8,
);
pub(crate) const GROUPS_SERVED: Bar =
    at_least("groups of 4, 50 clients: turns of the least served", 1.0);

// Figures of the part `history`, for each store.
pub(crate) const WITH_HISTORY: Bar = at_least("pairs with history / without", 0.98);

// Figures of the part `list`.
pub(crate) const FIRST_PAGE: Bar = at_most("worst first page of 100,000 locks, ms", 50.0);
pub(crate) const SLOWED: Bar = at_most("p99 of acquires, with lists / alone", 2.0);
pub(crate) const REMEMBERING: Bar = at_most("CPU of a walk beside memories / other build", 1.1);

/// The verdicts so far, in order.
#[derive(Default)]
pub(crate) struct Verdicts {
    lines: Vec<String>,
    missed: usize,
}

const fn at_most(what: &'static str, limit: f64) -> Bar {
    Bar {
        what,
        limit,
        goal: None,
        at_least: false,
    }
}

const fn at_least(what: &'static str, limit: f64) -> Bar {
    Bar {
        at_least: true,
        ..at_most(what, limit)
    }
}

// === impl Bar ===

impl Bar {
    const fn goal(self, goal: f64) -> Self {
        Self {
            goal: Some(goal),
            ..self
        }
    }

    fn is_met_by(&self, figure: f64) -> bool {
        if self.at_least {
            figure >= self.limit
        } else {
            // A count is a mean over many operations, and background work adds some.
            figure <= self.limit * 1.01
        }
    }
}

// === impl Verdicts ===

impl Verdicts {
    pub(crate) fn judge(&mut self, bar: &Bar, figure: f64) {
        let met = bar.is_met_by(figure);
        self.missed += usize::from(!met);
        let sign = if bar.at_least { "≥" } else { "≤" };
        let verdict = if met { "met" } else { "NOT MET" };
        let goal = bar.goal.map(|goal| format!(", goal {goal}"));
        self.lines.push(format!(
            "  {:<50} {figure:>9.2}   bar {sign} {}{}: {verdict}",
            bar.what,
            bar.limit,
            goal.unwrap_or_default()
        ));
    }

    /// Records a figure that cannot be measured on this machine, which is neither met nor missed.
    pub(crate) fn not_measured(&mut self, bar: &Bar, why: &str) {
        let what = bar.what;
        self.lines.push(format!("  {what:<50} not measured: {why}"));
    }

    /// Prints all verdicts. Answers whether all bars were met.
    pub(crate) fn print(&self) -> bool {
        println!("bars");
        for line in &self.lines {
            println!("{line}");
        }
        println!("{} not met", self.missed);
        self.missed == 0
    }
}
