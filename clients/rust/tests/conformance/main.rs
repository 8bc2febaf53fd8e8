//! The cases of `clients/conformance.md` for this client, each named by its number, and what else only real gateways
//! show. `scripts/clients rust` runs each in a process of its own.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails where it unwraps; clippy exempts test functions only, not what they call"
)]

mod asking;
mod before_the_end;
mod checking;
mod closing;
mod failing;
mod giving_back;
mod holder;
mod leases;
mod order;
mod proxies;
mod rig;
mod sharing;
mod waiting;
