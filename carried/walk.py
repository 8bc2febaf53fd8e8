#!/usr/bin/env python3
"""Starts a Sentinel store, two gateways and 5,000 locks with planted causes. Usage: walk.py PROGRAM. Runs until killed."""
import json, os, subprocess, sys, tempfile, threading, time, urllib.request, random, socket
program = sys.argv[1]
work = tempfile.mkdtemp(prefix="walk-")
def port():
    s = socket.socket(); s.bind(("127.0.0.1", 0)); p = s.getsockname()[1]; s.close(); return p
R1, R2 = port(), port(); S = [port() for _ in range(3)]; G = [port(), port()]
procs = []
def start(*args, **kw):
    p = subprocess.Popen(args, stdout=open(f"{work}/{len(procs)}.log", "w"), stderr=subprocess.STDOUT, **kw); procs.append(p); return p
def redis(p, *args): return subprocess.run(["redis-cli", "-p", str(p), *args], capture_output=True, text=True).stdout
for p, extra in ((R1, []), (R2, ["--replicaof", "127.0.0.1", str(R1)])):
    os.makedirs(f"{work}/r{p}")
    start("redis-server", "--port", str(p), "--dir", f"{work}/r{p}", "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--save", "", *extra)
time.sleep(1)
for p in S:
    f = f"{work}/s{p}.conf"
    open(f, "w").write(f"port {p}\nsentinel monitor mymaster 127.0.0.1 {R1} 2\nsentinel down-after-milliseconds mymaster 2000\nsentinel failover-timeout mymaster 5000\n")
    start("redis-server", f, "--sentinel")
time.sleep(2)
for i, p in enumerate(G):
    env = dict(os.environ, LATCHGATE_LISTEN=f"127.0.0.1:{p}", LATCHGATE_STORE="redis+sentinel://" + ",".join(f"127.0.0.1:{s}" for s in S) + "/mymaster")
    start(program, "serve", env=env)
def ask(method, path, body=None, headers={}, gate=0, timeout=3600):
    req = urllib.request.Request(f"http://127.0.0.1:{G[gate]}{path}", method=method, data=json.dumps(body).encode() if body is not None else None,
        headers={"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(req, timeout=timeout) as r:
            t = r.read(); return r.status, json.loads(t) if t else None
    except urllib.error.HTTPError as e: return e.code, e.read().decode()
for _ in range(100):
    try:
        if ask("GET", "/readyz")[0] == 200: break
    except Exception: pass
    time.sleep(0.3)
def take(name, owner, ttl=3_600_000, gate=0, **more):
    return ask("POST", f"/locks/{name}", {"ttl_ms": ttl, "owner": owner, **more}, gate=gate)
def many(lo, hi):
    for n in range(lo, hi):
        s, b = take(f"shard:{n % 50}:item-{n}", f"runner-{n % 40 + 10}", gate=n % 2, metadata={"job": str(10_000 + n)})
        if s not in (200, 201): print("!", s, b)
ts = [threading.Thread(target=many, args=(i * 1250, (i + 1) * 1250)) for i in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
# history of a nightly lock
s, b = take("nightly:backup", "backup-host-3", metadata={"job": "night-17"}); time.sleep(3)
ask("DELETE", "/locks/nightly:backup", headers={"Lock-Token": b["token"]})
s, b = take("nightly:backup", "backup-host-5", metadata={"job": "night-18"}); time.sleep(2.5)
# a lock that is held for 1.2 s each time, and is now stuck although it renews
for n in range(12):
    s, b = take("report:daily", f"reporter-{n}", ttl=30_000); time.sleep(1.2)
    ask("DELETE", "/locks/report:daily", headers={"Lock-Token": b["token"]})
s, stuck = take("report:daily", "reporter-stuck", ttl=30_000, metadata={"pid": "881"})
def renew():
    while True:
        time.sleep(8)
        ask("PUT", "/locks/report:daily/renew", {}, {"Lock-Token": stuck["token"]})
threading.Thread(target=renew, daemon=True).start()
# freeze is reserved, and a group waits for it
print("reserve:", subprocess.run([program, "reserve", "freeze", "--until", time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime(time.time() + 3 * 3600)), "--reason", "incident 4711: no deploys", "--owner", "ann"],
    env=dict(os.environ, LATCHGATE_URL=f"http://127.0.0.1:{G[0]}"), capture_output=True, text=True))
def group():
    while True: print("group:", ask("POST", "/locks", {"names": ["deploy:web", "freeze"], "ttl_ms": 60_000, "wait_ms": 50_000, "owner": "ci-4711", "metadata": {"job": "4711", "url": "https://ci.example.com/4711"}})[0])
threading.Thread(target=group, daemon=True).start()
# runner-8 holds seven locks and waits for two
for n in range(7): take(f"runner8:part-{n}", "runner-8", gate=n % 2, metadata={"job": "r8"})
def wait(name, owner, gate=0, **more):
    def run():
        while True: ask("POST", f"/locks/{name}", {"ttl_ms": 60_000, "wait_ms": 55_000, "owner": owner, **more}, {"Idempotency-Key": f"{owner}-{name}-0123456789abcdef-0123456789"}, gate)
    threading.Thread(target=run, daemon=True).start()
wait("shard:1:item-1", "runner-8"); wait("shard:2:item-2", "runner-8", 1)
for n in range(30): wait(f"shard:{n}:item-{n}", f"runner-{50+n}", n % 2)
# the lock that will page next: a queue behind a holder
take("db:migrate", "migration-77", metadata={"ticket": "OPS-9"})
for n in range(12): wait("db:migrate", f"api-{n}", n % 2, metadata={"deploy": f"api-{n}"})
print("page: http://127.0.0.1:%d/dashboard  and %d; sentinels %s; logs %s" % (G[0], G[1], S, work), flush=True)
time.sleep(60)
print("failover:", redis(S[0], "SENTINEL", "FAILOVER", "mymaster"), time.strftime("%H:%M:%S"), flush=True)
try:
    time.sleep(36000)
finally:
    [p.kill() for p in procs]
