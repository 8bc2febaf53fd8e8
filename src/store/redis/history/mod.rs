//! The history of locks on any Redis: the scripts that write and read it. The nodes of a quorum run them as well.
//!
//! The histories of many locks are in one sorted set for each week, whose members begin with the name of the lock, a zero
//! byte and a fencing token, and whose scores are all 0. So the number of keys does not grow with the number of locks,
//! which would slow down the scans of a list, and a week that nobody may ask for any more expires as a whole.

mod scripts;

pub(super) use scripts::HistoryScripts;
