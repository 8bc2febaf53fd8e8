//! Whether a run proves anything: a run without traffic, or whose faults took no effect, would pass whatever the
//! program does.

use super::{History, Report, Terms};

/// One in this many faults of a kind may fail to take effect.
const MANY: usize = 10;

/// The reasons why a run proves nothing; an empty list if the run is valid.
pub(super) fn why_not(history: &History, terms: &Terms, report: &Report) -> Vec<String> {
    let mut reasons = Vec::new();
    if report.grants_per_second() < terms.grants_per_second {
        reasons.push(format!(
            "{:.0} grants/s, and fewer than {:.0} are no traffic",
            report.grants_per_second(),
            terms.grants_per_second
        ));
    }
    let (_, with_slot, together) = report.shared;
    if terms.shares && (with_slot == 0 || together < 2) {
        reasons.push("nobody shared a lock".to_owned());
    }
    if terms.cooperates && report.groups.granted == 0 {
        reasons.push("nobody was granted several locks as one".to_owned());
    }
    if terms.cooperates && (report.requests.told == 0 || report.requests.carried_out == 0) {
        reasons.push("nobody was asked in vain to release a lock".to_owned());
    }
    if terms.cooperates && report.checks == 0 {
        reasons.push("no fencing token was checked".to_owned());
    }
    let all = || history.faults.all.values();
    for fault in all().filter(|fault| fault.seen == 0) {
        let (kind, target) = (&fault.kind, &fault.target);
        let of_kind = all().filter(|other| other.kind == *kind);
        let unseen = of_kind.clone().filter(|other| other.seen == 0).count();
        if unseen * MANY > of_kind.count() {
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
