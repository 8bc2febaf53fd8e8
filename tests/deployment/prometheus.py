"""Scrapes a running gateway with a real Prometheus, and asks it everything that the dashboard asks."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

import program
from test_monitoring import MONITORING, dashboard, rules

PATIENCE = 60
SOON = ("LatchgateLongWaitSoon", "LatchgateLongHoldSoon")
# Queries that have no result while no error happens.
MAY_BE_EMPTY = ("latchgate_store_errors_total", "latchgate_store_clock_skew_seconds", '"[45]..|hung-up"')


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ask(url, method="GET", headers=None, body=None):
    headers = (headers or {}) | ({"Content-Type": "application/json"} if body else {})
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, method=method, headers=headers, data=data)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer) if answer.status != 204 else None


def soon(text):
    """The rules for long waits and holds, with a threshold of a second and names of their own."""
    group = {"name": "soon", "rules": []}
    for rule in yaml.safe_load(text)["groups"][0]["rules"]:
        metric, above, seconds = (rule["expr"].split() + ["", ""])[:3]
        if f"{rule['alert']}Soon" in SOON:
            assert above == ">" and int(seconds) >= 600, rule
            group["rules"].append(rule | {"alert": f"{rule['alert']}Soon", "expr": f"{metric} > 1", "for": "1s"})
    assert len(group["rules"]) == len(SOON), group
    return json.dumps({"groups": [group]})


def wait_until(what, ready):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"{what}: not within {PATIENCE} s")


def use(gateway):
    """A little of everything that is counted."""
    for number in range(20):
        lease = ask(f"{gateway}/locks/m{number}", "POST")
        token = {"Lock-Token": lease["token"]}
        ask(f"{gateway}/locks/m{number}/renew", "PUT", token)
        ask(f"{gateway}/locks/m{number}", "DELETE", token)


def main():
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        redis, gateway, prometheus = free_port(), free_port(), free_port()
        # The same rules for waits and holds of a second, which this test can wait for.
        (work / "soon.yaml").write_text(soon((MONITORING / "alerts.yaml").read_text()))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(MONITORING / "alerts.yaml"), str(work / "soon.yaml")],
            "scrape_configs": [{"job_name": "latchgate", "static_configs": [{"targets": [f"127.0.0.1:{gateway}"]}]}],
        }
        (work / "prometheus.yml").write_text(json.dumps(config))
        environment = {"PATH": os.environ["PATH"], "LATCHGATE_STORE": f"redis://127.0.0.1:{redis}/0"}
        commands = [
            (["redis-server", "--port", str(redis), "--save", ""], None),
            ([program.PROGRAM, "serve", "--listen", f"127.0.0.1:{gateway}"], environment),
            (
                ["prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data"]
                + [f"--web.listen-address=127.0.0.1:{prometheus}"],
                None,
            ),
        ]
        processes = []
        try:
            for command, env in commands:
                silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                processes.append(subprocess.Popen(command, env=env, cwd=work, **silent))
            gateway, api = f"http://127.0.0.1:{gateway}", f"http://127.0.0.1:{prometheus}/api/v1"
            wait_until("the gateway", lambda: ask(f"{gateway}/readyz"))
            wait_until("Prometheus", lambda: ask(f"{api}/query?query=up")["data"]["result"])
            check(gateway, api)
            # Alerts must really fire: a request waits for a lock that is held, and then the store is killed.
            ask(f"{gateway}/locks/held", "POST", body={"ttl_ms": 60_000})
            with socket.create_connection(("127.0.0.1", int(gateway.rsplit(":")[-1]))) as waiter:
                waits = json.dumps({"wait_ms": 50_000})
                head = f"POST /locks/held HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(waits)}"
                waiter.sendall(f"{head}\r\n\r\n{waits}".encode())
                wait_until("the alerts for a long wait and a long hold", lambda: set(SOON) <= firing(api))
            processes[0].send_signal(signal.SIGKILL)
            wait_until("an alert that the store is away", lambda: "LatchgateStoreAway" in firing(api))
        finally:
            for process in processes:
                process.kill()
                process.wait()
    print("every query of the dashboard and every rule was answered; a long wait, a long hold and the store's absence were told")


def firing(api):
    alerts = ask(f"{api}/alerts")["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] in ("pending", "firing")}


def check(gateway, api):
    def scraped():
        use(gateway)
        found = ask(f"{api}/query?" + urllib.parse.urlencode({"query": "rate(latchgate_store_duration_seconds_count{operation=\"release\"}[30s]) > 0"}))
        return found["data"]["result"]

    wait_until("something to show", scraped)
    with urllib.request.urlopen(f"{gateway}/metrics", timeout=10) as answer:
        subprocess.run(["promtool", "check", "metrics"], input=answer.read(), check=True)
    empty = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "30s").replace("$__range", "30s").replace("$instance", ".*")
            answer = ask(f"{api}/query?" + urllib.parse.urlencode({"query": query}))
            assert answer["status"] == "success", query
            if not answer["data"]["result"] and not any(part in query for part in MAY_BE_EMPTY):
                empty.append(query)
    assert not empty, "nothing to show for:\n" + "\n".join(empty)
    loaded = ask(f"{api}/rules")["data"]["groups"]
    healthy = [rule["name"] for group in loaded for rule in group["rules"] if rule["health"] == "ok"]
    assert sorted(healthy) == sorted([rule["alert"] for rule in rules()] + list(SOON)), loaded
    assert not firing(api), firing(api)


if __name__ == "__main__":
    main()
