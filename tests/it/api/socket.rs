//! HTTP by hand, for clients that do not behave.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// How long a test waits for something that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Sends some bytes.
pub(crate) async fn send(stream: &mut TcpStream, bytes: &str) {
    stream.write_all(bytes.as_bytes()).await.unwrap();
}

/// Reads one answer: its head, and as much body as its head says.
pub(crate) async fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        loop {
            let byte = stream.read_u8().await.unwrap();
            bytes.push(byte);
            if bytes.ends_with(b"\r\n\r\n") {
                break;
            }
        }
        let head = String::from_utf8_lossy(&bytes).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse::<usize>().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        bytes.extend(body);
    };
    timeout(TIMEOUT, reading).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Waits until the other side has closed, and says what came before.
pub(crate) async fn closed(stream: &mut TcpStream) -> String {
    let mut rest = String::new();
    let reading = stream.read_to_string(&mut rest);
    // A reset is a way of closing, too.
    let _ = timeout(TIMEOUT, reading)
        .await
        .expect("the connection is closed");
    rest
}

/// Closes with a reset, as the kernel does for a process that dies on unread bytes.
pub(crate) fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}
