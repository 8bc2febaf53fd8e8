//! Connections for which there is no place.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};

use crate::lifecycle::Lifecycle;

use super::refusal::Refusals;

/// Tells those who come in vain why.
pub(super) struct Doorman {
    refusals: Arc<Refusals>,
    /// How many are being told at once.
    hands: Arc<Semaphore>,
    /// Whether they could not read it, because they speak TLS. A handshake would cost what there is
    /// none of: they are closed without a word.
    is_unheard: bool,
}

/// How many are told at once. More are closed without a word: telling them must not cost what there
/// is none of.
const HANDS: usize = 64;
/// How long telling one may take.
const PATIENCE: Duration = Duration::from_millis(500);

// === impl Doorman ===

impl Doorman {
    pub(super) fn new(refusals: Arc<Refusals>, is_unheard: bool) -> Self {
        Self {
            refusals,
            hands: Arc::new(Semaphore::new(HANDS)),
            is_unheard,
        }
    }

    /// Tells a client that there is no place for it. It may ask again.
    pub(super) fn turn_away(&self, stream: TcpStream, lifecycle: &Lifecycle) {
        if self.is_unheard {
            return;
        }
        let Ok(hand) = Arc::clone(&self.hands).try_acquire_owned() else {
            return;
        };
        let answer = self.refusals.no_place();
        lifecycle.spawn(async move {
            tell(stream, &answer).await;
            drop(hand);
        });
    }
}

/// Tells a client one thing and closes the connection.
pub(super) async fn tell(mut stream: TcpStream, answer: &[u8]) {
    let telling = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // Closed on unread bytes, the connection would be reset and the answer lost.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    // One that is gone, or takes too long, does not want to know.
    drop(timeout(PATIENCE, telling).await);
}
