//! Messages between gateways: where they are published, and what every gateway sends and receives.

mod channels;
mod news_wanted;
mod subscription;

pub(super) use channels::Channels;
pub(super) use news_wanted::NewsWanted;
pub(super) use subscription::{Heard, Subscription};
