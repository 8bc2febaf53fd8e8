//! What the gateway prints when it is ready.

use std::net::SocketAddr;

use crate::{cli::healthcheck::reachable, release};

/// Where it listens, which store it uses, where the dashboard is, and a line to paste.
pub(super) fn greeting(
    address: SocketAddr,
    base_path: &str,
    store: &str,
    has_keys: bool,
    over_tls: bool,
    metrics: Option<SocketAddr>,
) -> String {
    let scheme = if over_tls { "https" } else { "http" };
    let key = if has_keys {
        "-H \"Authorization: Bearer $LATCHGATE_KEY\" "
    } else {
        ""
    };
    let metrics = metrics.map_or_else(String::new, |address| {
        format!("metrics: http://{address}/metrics\n")
    });
    let url = format!("{scheme}://{}{base_path}", reachable(address));
    format!(
        "latchgate {} listens on {scheme}://{address}{base_path}\n\
         store: {store}\n\
         {metrics}\
         dashboard: {url}/dashboard\n\
         try:   curl -X POST {key}{url}/locks/deploy\n",
        release::VERSION
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_paste_and_the_dashboard_have_an_address_that_can_be_reached() {
        for (address, url) in [
            ("127.0.0.1:7420", "http://127.0.0.1:7420/p/locks/deploy"),
            ("0.0.0.0:1", "http://127.0.0.1:1/p/locks/deploy"),
            ("[::]:1", "http://[::1]:1/p/locks/deploy"),
            ("192.0.2.1:1", "http://192.0.2.1:1/p/locks/deploy"),
        ] {
            let text = greeting(
                address.parse().unwrap(),
                "/p",
                "a store",
                false,
                false,
                None,
            );
            assert!(text.contains(&format!("curl -X POST {url}\n")), "{text}");
            let dashboard = url.replace("locks/deploy", "dashboard");
            assert!(
                text.contains(&format!("dashboard: {dashboard}\n")),
                "{text}"
            );
            assert!(
                text.contains(&format!("listens on http://{address}/p\n")),
                "{text}"
            );
        }
    }

    #[test]
    fn over_tls_every_address_says_so() {
        let text = greeting(
            "127.0.0.1:1".parse().unwrap(),
            "",
            "a store",
            false,
            true,
            None,
        );
        assert_eq!(text.matches("https://127.0.0.1:1").count(), 3, "{text}");
        assert!(!text.contains("http://"), "{text}");
    }

    #[test]
    fn with_keys_the_line_to_paste_sends_one() {
        let text = greeting(
            "127.0.0.1:1".parse().unwrap(),
            "",
            "a store",
            true,
            false,
            None,
        );
        let line = "curl -X POST -H \"Authorization: Bearer $LATCHGATE_KEY\" http://127.0.0.1:1/";
        assert!(text.contains(line), "{text}");
    }
}
