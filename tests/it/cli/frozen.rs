//! What a gateway does with requests that came while it did not run, and whose callers have gone since.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::{
    gateway::Gateway,
    program::{Ran, latchgate},
};

/// How long anything may take on a machine that does other things as well.
const TIMEOUT: Duration = Duration::from_mins(1);

fn token(acquired: &Ran) -> String {
    let lease: Value = serde_json::from_str(&acquired.out).unwrap();
    lease["token"].as_str().unwrap().to_owned()
}

fn until_free(url: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let inspected = latchgate(&["inspect", "deploy", "--url", url]).read();
        if inspected.out.contains("is free") {
            return;
        }
        assert!(Instant::now() < deadline, "{inspected:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_release_that_came_while_it_was_frozen_is_carried_out_although_its_caller_has_gone() {
    let gateway = Gateway::start();
    let url = gateway.url();
    let by_delete = |token: &str| {
        format!("DELETE /locks/deploy HTTP/1.1\r\nhost: localhost\r\nlock-token: {token}\r\n\r\n")
    };
    let by_post = |token: &str| {
        let body = format!(r#"{{"token":"{token}"}}"#);
        format!(
            "POST /locks/deploy/release HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let requests: [&dyn Fn(&str) -> String; 2] = [&by_delete, &by_post];
    for request in requests {
        for connected_before in [false, true] {
            let asked = ["acquire", "deploy", "--ttl", "1h", "--json", "--url", &url];
            let request = request(&token(&latchgate(&asked).read()));
            let connect = || TcpStream::connect(gateway.address).unwrap();
            let mut caller = connected_before.then(|| {
                let mut caller = connect();
                let look = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
                caller.write_all(look).unwrap();
                assert!(caller.read(&mut [0; 4096]).unwrap() > 0);
                caller
            });
            gateway.signal(Signal::STOP);
            gateway.stands_still();
            let caller = caller.get_or_insert_with(connect);
            caller.write_all(request.as_bytes()).unwrap();
            caller.shutdown(Shutdown::Both).unwrap();
            gateway.signal(Signal::CONT);
            until_free(&url);
        }
    }
}
