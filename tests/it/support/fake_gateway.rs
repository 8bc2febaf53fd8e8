//! A fake gateway whose replies, and failures to reply, the test chooses.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use super::program::{Run, latchgate, typed};

/// How the fake gateway replies to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// The reply has this status and body.
    Answer(u16, String),
    /// The reply has this status and body and is sent after a delay.
    Late(Duration, u16, String),
    /// The connection ends after the request was read, as if the reply was lost.
    Lost,
    /// The connection ends in the middle of the body of the reply.
    Torn,
    /// No reply is sent, and the connection stays open.
    Silence,
}

/// A request that the fake gateway received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The request line.
    pub(crate) line: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Listens on a free port and follows a script of replies: one for each connection, and the last one for all others.
pub(crate) struct FakeGateway {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

// === impl Reply ===

impl Reply {
    /// A reply with a problem document.
    pub(crate) fn problem(status: u16, code: &str, more: &str) -> Self {
        let body = format!(
            r#"{{"type":"/problems/{code}","title":"A title.","status":{status},"code":"{code}","request_id":"r1"{more}}}"#
        );
        Self::Answer(status, body)
    }
}

// === impl Received ===

impl Received {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(&prefix))
    }
}

// === impl FakeGateway ===

impl FakeGateway {
    pub(crate) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        let script: Vec<_> = script.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        // The thread ends with the process; a test does not need to stop it.
        thread::spawn(move || {
            let mut held = Vec::new();
            for (count, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let request = read(&mut stream);
                log.lock().unwrap().push(request);
                match &script[count.min(script.len() - 1)] {
                    Reply::Answer(status, body) => answer(&mut stream, *status, body, body.len()),
                    Reply::Late(after, status, body) => {
                        thread::sleep(*after);
                        answer(&mut stream, *status, body, body.len());
                    }
                    Reply::Torn => answer(&mut stream, 200, "{\"na", 100),
                    Reply::Lost => stream.shutdown(Shutdown::Both).unwrap(),
                    Reply::Silence => held.push(stream),
                }
            }
        });
        Self { url, received }
    }

    /// The program with these arguments, as a client of this gateway.
    pub(crate) fn latchgate(&self, arguments: &[&str]) -> Run {
        latchgate(arguments).env("LATCHGATE_URL", &self.url)
    }

    /// The program with the arguments of a line, as a client of this gateway.
    pub(crate) fn typed(&self, line: &str) -> Run {
        typed(line).env("LATCHGATE_URL", &self.url)
    }

    /// The requests received so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn read(stream: &mut TcpStream) -> Received {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.replace("\r\n", "\n");
            let request = Received {
                line: head.lines().next().unwrap_or_default().to_owned(),
                head,
                body: body.to_owned(),
            };
            let length = request
                .header("content-length")
                .map_or(0, |text| text.parse().unwrap());
            if request.body.len() >= length {
                return request;
            }
        }
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the client closed before its request was whole");
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn answer(stream: &mut TcpStream, status: u16, body: &str, length: usize) {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    // The client may have hung up; a test that expects this checks it on its side.
    drop(stream.write_all(head.as_bytes()));
    drop(stream.write_all(body.as_bytes()));
}
