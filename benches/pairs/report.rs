//! What is printed at the end.

use super::servers::Gateway;

/// Pairs per second of one round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) native: f64,
    pub(crate) redis: f64,
    pub(crate) null: f64,
    pub(crate) embedded: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    rounds: Vec<Round>,
    footprint: Vec<String>,
}

// === impl Rounds ===

impl Rounds {
    pub(crate) fn push(&mut self, round: Round) {
        self.rounds.push(round);
    }

    pub(crate) fn footprint(&mut self, redis: &Gateway, embedded: &Gateway) {
        for (store, used) in [("redis", redis), ("embedded", embedded)] {
            let idle = Gateway::serving(&match store {
                "redis" => "redis://127.0.0.1:1".to_owned(),
                _ => format!("embedded:{}", tempdir().display()),
            });
            self.footprint.push(format!(
                "{store}: start to ready {:.1} ms; resident {} KiB idle, {} KiB after the load",
                idle.ready_after().as_secs_f64() * 1e3,
                idle.resident_kib(),
                used.resident_kib(),
            ));
        }
    }

    pub(crate) fn print(&self) {
        let median = |figure: &dyn Fn(&Round) -> f64| {
            let mut figures: Vec<f64> = self.rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        println!(
            "acquire + release pairs/s, median of {} rounds",
            self.rounds.len()
        );
        println!(
            "  native RESP client        {:>8.0}",
            median(&|round| round.native)
        );
        println!(
            "  gateway over Redis        {:>8.0}",
            median(&|round| round.redis)
        );
        println!(
            "  gateway, embedded store   {:>8.0}",
            median(&|round| round.embedded)
        );
        println!(
            "  same router, null store   {:>8.0}",
            median(&|round| round.null)
        );
        println!("ratios, median of the rounds' own");
        println!(
            "  Redis / native            {:>8.2}   bar 0.50, goal 0.65",
            median(&|round| round.redis / round.native)
        );
        println!(
            "  Redis / null store        {:>8.2}   bar 0.50, goal 0.70",
            median(&|round| round.redis / round.null)
        );
        println!(
            "  embedded / null store     {:>8.2}   bar 0.70, goal 0.85",
            median(&|round| round.embedded / round.null)
        );
        for line in &self.footprint {
            println!("{line}");
        }
    }
}

fn tempdir() -> std::path::PathBuf {
    tempfile::tempdir()
        .expect("a temporary directory can be made")
        .keep()
}
