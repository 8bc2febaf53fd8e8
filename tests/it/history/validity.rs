//! Whether a run shows anything: a quiet one, or one whose faults did not happen, would pass whatever
//! the program does.

use super::{History, Report, Terms};

/// Why a run shows nothing; no reason if it does.
pub(super) fn why_not(history: &History, terms: &Terms, report: &Report) -> Vec<String> {
    let mut reasons = Vec::new();
    if report.grants_per_second() < terms.grants_per_second {
        reasons.push(format!(
            "{:.0} grants/s, and fewer than {:.0} are no traffic",
            report.grants_per_second(),
            terms.grants_per_second
        ));
    }
    for fault in history.faults.all.values() {
        if fault.seen == 0 {
            let (kind, target) = (&fault.kind, &fault.target);
            reasons.push(format!("{kind} of {target} was never seen to happen"));
        }
    }
    let frozen = report.faults.get("freeze-client").copied();
    if frozen.unwrap_or_default() > 0 && report.lost_updates == 0 {
        let control = "clients were paused, and yet the unfenced resource has lost nothing";
        reasons.push(control.to_owned());
    }
    reasons
}
