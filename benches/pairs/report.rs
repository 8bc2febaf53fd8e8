//! What is printed at the end.

use crate::rig::Gateway;

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

    /// False if a bar was not met.
    pub(crate) fn print(&self) -> bool {
        println!(
            "acquire + release pairs/s, median of {} rounds",
            self.rounds.len()
        );
        for (system, figure) in [
            ("native RESP client", self.median(|round| round.native)),
            ("gateway over Redis", self.median(|round| round.redis)),
            (
                "gateway, embedded store",
                self.median(|round| round.embedded),
            ),
            ("same router, null store", self.median(|round| round.null)),
        ] {
            println!("  {system:<24} {figure:>8.0}");
        }
        println!("ratios, median of the rounds' own");
        let ratios = [
            (
                "Redis / native",
                self.median(|round| round.redis / round.native),
                0.5,
                0.65,
            ),
            (
                "Redis / null store",
                self.median(|round| round.redis / round.null),
                0.5,
                0.7,
            ),
            (
                "embedded / null store",
                self.median(|round| round.embedded / round.null),
                0.7,
                0.85,
            ),
        ];
        for (systems, ratio, bar, goal) in ratios {
            println!("  {systems:<24} {ratio:>8.2}   bar {bar:.2}, goal {goal:.2}");
        }
        for line in &self.footprint {
            println!("{line}");
        }
        ratios.iter().all(|(_, ratio, bar, _)| ratio >= bar)
    }

    fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.rounds.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}

fn tempdir() -> std::path::PathBuf {
    tempfile::tempdir()
        .expect("a temporary directory can be made")
        .keep()
}
