//! Whether a run proves anything: a run without traffic, or whose faults took no effect, would pass whatever the
//! program does.

use super::{History, Report, Terms, line::AFTERWARDS};

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
    if terms.shares && terms.cooperates && report.rests.contains(&0) {
        reasons.push("no lock or no slot rested before a grant".to_owned());
    }
    if terms.shares && terms.cooperates && report.reservations == 0 {
        reasons.push("nobody reserved a lock".to_owned());
    }
    if terms.shares && terms.cooperates && report.orders.contains(&0) {
        reasons.push("no order was granted, or none was outdated".to_owned());
    }
    // During the run, the end of a lease may be on its way.
    let is_over = history.ops.last().is_some_and(|op| op.by == AFTERWARDS);
    if is_over && terms.cooperates && report.histories.1 == 0 {
        reasons.push("no history had to have the end of a lease".to_owned());
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
