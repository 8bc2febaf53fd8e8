//! Signals that are no reason to end, as many as come.

use rustix::process::Signal;

use super::bench::Bench;

#[tokio::test]
async fn a_gateway_outlives_signals_that_do_not_ask_it_to_end() {
    let bench = Bench::start().await;
    for _ in 0..50 {
        for signal in [
            Signal::HUP,
            Signal::USR1,
            Signal::USR2,
            Signal::PIPE,
            Signal::CHILD,
            Signal::WINCH,
            Signal::URG,
            Signal::CONT,
        ] {
            bench.gateway.signal(signal);
        }
        let shown = bench.ask("GET /healthz", "", "").await;
        assert_eq!(shown.status, 200);
    }
    for _ in 0..5 {
        bench.gateway.signal(Signal::STOP);
        bench.gateway.stands_still();
        bench.gateway.signal(Signal::CONT);
    }
    bench.unharmed().await;
}
