//! Checks whether the other end of a connection has hung up, and how many bytes had left before.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures_util::FutureExt;
use tokio::{
    io::{Interest, Ready},
    net::TcpStream,
    time::Instant,
};

/// Budget of checks with the kernel whether the caller of a grant is still there. Cheap to clone.
///
/// Each check costs a system call. So a gateway that grants many thousands of leases in a second relies for most
/// grants on what its event loops have reported: an event loop asks for all connections at once, in each of its
/// turns.
#[derive(Debug, Clone)]
pub(super) struct LookBudget(Arc<LookWindow>);

#[derive(Debug)]
struct LookWindow {
    started: Instant,
    /// The number of the current window of time in the upper half, and the number of grants in that window in
    /// the lower half.
    counts: AtomicU64,
}

/// Length of one window. With `MAX_LOOKS` in each, the kernel is asked at most 3,000 times in a second.
const WINDOW_MS: u128 = 8;
/// For how many grants in one window of time the kernel is asked whether the caller is still there.
const MAX_LOOKS: u64 = 24;

/// Whether the other end has hung up: it has closed its side, or reset the connection. Bytes that it sent
/// before may still be unread.
pub(super) fn has_hung_up(stream: &TcpStream, looks: &LookBudget) -> bool {
    let may_ask = looks.take();
    // Reading what the event loop has reported costs no system call. With `WRITABLE` in the interest the
    // future is ready at once, because nearly every stream can be written.
    let interest = Interest::READABLE | Interest::WRITABLE;
    let known = stream.ready(interest).now_or_never();
    let is_end = |ready: Ready| ready.is_read_closed() || ready.is_write_closed();
    known.is_some_and(|known| known.map_or(true, is_end)) || may_ask && kernel::has_hung_up(stream)
}

/// Asks the kernel whether the client has hung up, without a budget: for checks that are rare.
pub(super) use kernel::has_hung_up as has_hung_up_by_kernel;

/// How many bytes the kernel has sent on a connection; `None` if the kernel does not tell, or if no byte was sent.
pub(super) fn sent(stream: &TcpStream) -> Option<u64> {
    kernel::transmission(stream).map(|it| it.sent)
}

/// How many bytes the kernel has sent on a connection that broke, and so will send no more. `None` if the kernel
/// may still send bytes, or does not tell.
pub(super) fn sent_before_break(stream: &TcpStream) -> Option<u64> {
    let transmission = kernel::transmission(stream)?;
    transmission.is_over.then_some(transmission.sent)
}

/// The sending side of a connection, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transmission {
    /// Whether the connection will send nothing more.
    is_over: bool,
    /// How many bytes the connection has sent, each counted once.
    sent: u64,
}

#[cfg(target_os = "linux")]
mod kernel {
    //! Questions to the kernel: `poll` and `TCP_INFO`.

    use std::sync::LazyLock;

    use nix::{
        getsockopt_impl, libc,
        sys::socket::{GetSockOpt, sockopt::GetStruct},
    };
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        system::uname,
    };
    use tokio::net::TcpStream;
    use tracing::debug;

    use super::Transmission;

    /// The part of `struct tcp_info` up to the last field that is used. The kernel fills as many bytes as it
    /// is asked for.
    pub(super) type Info = [u8; BYTES_RETRANS + 8];

    #[derive(Debug, Clone, Copy)]
    struct TcpInfo;

    getsockopt_impl!(
        TcpInfo,
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        Info,
        GetStruct<Info>
    );

    // Offsets of fields in the kernel's `struct tcp_info`. The layout is part of the interface of the kernel.
    const STATE: usize = 0;
    const BYTES_SENT: usize = 200;
    const BYTES_RETRANS: usize = 208;

    /// The state of a connection that was reset or timed out, or that both sides have closed.
    const TCP_CLOSE: u8 = 7;

    /// The first kernel version that tells how many bytes were sent.
    const MIN_KERNEL_VERSION: (u32, u32) = (4, 19);

    static TELLS: LazyLock<bool> = LazyLock::new(|| {
        let name = uname();
        let release = name.release().to_string_lossy();
        let tells = version(&release).is_some_and(|version| version >= MIN_KERNEL_VERSION);
        if !tells {
            debug!(%release, "this kernel does not tell how much of an answer was sent");
        }
        tells
    });

    pub(super) fn version(release: &str) -> Option<(u32, u32)> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }

    pub(in super::super) fn has_hung_up(stream: &TcpStream) -> bool {
        let mut asked = [PollFd::new(stream, PollFlags::RDHUP)];
        let at_once = Timespec::default();
        // An error of `poll` says nothing about the connection. A connection that has failed reports its own error
        // to hyper.
        poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    pub(super) fn transmission(stream: &TcpStream) -> Option<Transmission> {
        // An older kernel fills fewer bytes, which the library would take for a broken system call.
        if !*TELLS {
            return None;
        }
        Transmission::read(&TcpInfo.get(stream).ok()?)
    }

    impl Transmission {
        /// Decodes a `struct tcp_info`; `None` if it counts no sent bytes. gVisor calls itself 4.19 and counts
        /// nothing, nor does a kernel whose connections go through a sockmap: with a count of 0 a lease would be
        /// released although its caller was answered.
        pub(super) fn read(info: &Info) -> Option<Self> {
            let number = |at: usize| {
                let bytes = info[at..].first_chunk();
                u64::from_ne_bytes(*bytes.expect("the fields are within the requested length"))
            };
            let sent = number(BYTES_SENT).saturating_sub(number(BYTES_RETRANS));
            (sent > 0).then_some(Self {
                is_over: info[STATE] == TCP_CLOSE,
                sent,
            })
        }
    }
}

/// On systems other than Linux, only the event loop reports the end of a connection, and bytes that were written
/// count as sent.
#[cfg(not(target_os = "linux"))]
mod kernel {
    use tokio::net::TcpStream;

    use super::Transmission;

    pub(in super::super) fn has_hung_up(_: &TcpStream) -> bool {
        false
    }

    pub(super) fn transmission(_: &TcpStream) -> Option<Transmission> {
        None
    }
}

// === impl LookBudget ===

impl LookBudget {
    pub(super) fn new() -> Self {
        Self(Arc::new(LookWindow {
            started: Instant::now(),
            counts: AtomicU64::new(0),
        }))
    }

    /// Counts a grant. Returns whether the budget lets the kernel be asked about the grant's caller.
    fn take(&self) -> bool {
        let window = self.0.started.elapsed().as_millis() / WINDOW_MS;
        self.0.take_in(u32::try_from(window).unwrap_or(u32::MAX))
    }
}

// === impl LookWindow ===

impl LookWindow {
    fn take_in(&self, window: u32) -> bool {
        // Another worker may already have begun a later window of time, whose count of grants then applies.
        let in_window = |counts: u64| counts.max(u64::from(window) << 32);
        let one_more = |counts| Some(in_window(counts) + 1);
        let updated = self
            .counts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let before = in_window(updated.unwrap_or_else(|counts| counts));
        before & u64::from(u32::MAX) < MAX_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_each_of_a_few_and_for_a_part_of_many() {
        let LookBudget(window) = LookBudget::new();
        let looks = |at: u32, grants: usize| (0..grants).filter(|_| window.take_in(at)).count();
        let most = usize::try_from(MAX_LOOKS).unwrap();
        assert_eq!(looks(0, most), most);
        assert_eq!(looks(1, most), most);
        assert_eq!(looks(2, 200), most);
        assert_eq!(looks(2, 1), 0);
        assert_eq!(looks(3, 10), 10);
        assert_eq!(looks(900, 1), 1);
        assert_eq!(looks(899, 1), 1, "a worker that is a moment behind");
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests_of_the_kernel {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::{sleep, timeout},
    };

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    async fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let holding = async {
            while !holds() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let holds = timeout(Duration::from_mins(1), holding).await;
        holds.unwrap_or_else(|_| panic!("{what}"));
    }

    #[tokio::test]
    async fn the_end_of_a_caller_is_seen_before_the_event_loop_tells_of_it() {
        let (client, server) = pair().await;
        assert!(!kernel::has_hung_up(&server));
        assert!(!has_hung_up(&server, &LookBudget::new()));
        // The event loop runs on the thread of this test and has no turn in between, so only the kernel can tell
        // that the client has hung up.
        drop(client);
        assert!(has_hung_up(&server, &LookBudget::new()));
    }

    #[tokio::test]
    async fn what_left_is_known_after_a_reset_and_what_never_left_is_not_counted() {
        const WRITTEN: u64 = 300;
        let (mut client, mut server) = pair().await;
        server.write_all(&[0; 300]).await.unwrap();
        assert_eq!(sent(&server), Some(WRITTEN));
        assert_eq!(sent_before_break(&server), None, "more may be sent");
        client.read_exact(&mut [0; 300]).await.unwrap();
        // The server writes until all buffers of the sockets are full.
        let mut written = WRITTEN;
        let piece = vec![0; 65_536];
        while let Some(more) = server.write(&piece).now_or_never() {
            written += u64::try_from(more.unwrap()).unwrap();
        }
        client.set_zero_linger().unwrap();
        drop(client);
        until("it broke", || sent_before_break(&server).is_some()).await;
        let left = sent_before_break(&server).unwrap();
        assert!(
            (WRITTEN..written).contains(&left),
            "{left} of {written} left"
        );
        assert_eq!(sent(&server), Some(left));
    }

    #[test]
    fn a_kernel_that_counts_nothing_does_not_tell_what_left() {
        let mut info: kernel::Info = [0; 216];
        info[0] = 7;
        assert_eq!(Transmission::read(&info), None);
        info[200..208].copy_from_slice(&300u64.to_ne_bytes());
        info[208..216].copy_from_slice(&100u64.to_ne_bytes());
        let broken = Transmission {
            is_over: true,
            sent: 200,
        };
        assert_eq!(Transmission::read(&info), Some(broken));
    }

    #[test]
    fn reads_the_version_of_a_kernel() {
        assert_eq!(kernel::version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(kernel::version("4.4.0"), Some((4, 4)));
        assert_eq!(kernel::version("4.19"), Some((4, 19)));
        assert_eq!(kernel::version("unknown"), None);
    }
}
