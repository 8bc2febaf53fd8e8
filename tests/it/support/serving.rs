//! Accepts connections on a free port.

use latchgate::lifecycle::Lifecycle;
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections for as long as a lifecycle lasts, and serves each in its own task. Answers the port.
pub(crate) async fn serve<F>(
    lifecycle: &Lifecycle,
    mut each: impl FnMut(TcpStream) -> F + Send + 'static,
) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("a listener has an address");
    let tasks = lifecycle.clone();
    lifecycle.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tasks.spawn(each(client));
        }
    });
    address.port()
}
