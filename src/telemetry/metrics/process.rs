//! What the operating system says of this process.

use std::fs;

/// Figures of the process; none where the system does not tell them (only Linux does).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Process {
    pub(super) started_at: Option<f64>,
    pub(super) cpu: Option<f64>,
    pub(super) resident: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) most_files: Option<u64>,
}

// === impl Process ===

impl Process {
    /// Asks now.
    pub(super) fn now() -> Self {
        let ticks =
            f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100));
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program may hold anything; what follows its last parenthesis is numbers.
        let fields = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.split_ascii_whitespace().collect::<Vec<_>>())
            .unwrap_or_default();
        // As numbered in proc(5), of which the first two are not there.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|stat| {
            let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
            line.trim().parse::<f64>().ok()
        });
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let resident = fs::read_to_string("/proc/self/statm").ok();
        let resident = resident
            .and_then(|statm| statm.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .map(|pages| pages * page);
        let open = fs::read_dir("/proc/self/fd").ok();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            started_at: boot
                .zip(field(22))
                .map(|(boot, began)| boot + began / ticks),
            cpu: field(14)
                .zip(field(15))
                .map(|(user, kernel)| (user + kernel) / ticks),
            resident,
            // One of them is the look itself.
            open_files: open.map(|open| (open.count() as u64).saturating_sub(1)),
            most_files: limit.current,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_everything_of_a_process() {
        let process = Process::now();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let age = now.as_secs_f64() - process.started_at.unwrap();
        assert!((-1.0..86_400.0).contains(&age), "{process:?}");
        assert!(process.cpu.unwrap() >= 0.0);
        assert!(process.resident.unwrap() > 1 << 20, "{process:?}");
        let (open, most) = (process.open_files.unwrap(), process.most_files.unwrap());
        assert!(0 < open && open < most, "{process:?}");
    }
}
