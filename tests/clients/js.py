"""Runs the cases of the JavaScript client in every runtime, each with a rig of its own.

Usage: js.py [--tools DIR] [--program PATH] [--at-once N] [RUNTIME..]; `scripts/clients js` installs what it needs. A
runtime that is missing is red, and so is one in which a case of clients/conformance.md did not run.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JS = ROOT / "clients" / "js"
RIG = ROOT / "clients" / "rig" / "rig.py"
# All cases of one runtime; most take seconds, because leases have to run out.
DEADLINE = 600
# Of so many red cases the whole error is shown.
TOLD = 5
ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
RUNTIMES = {}


class Red(Exception):
    """A runtime could not be had, or did not do what it should."""


def runtime(name):
    def register(run):
        RUNTIMES[name] = run
        return run

    return register


# === what a runtime is run with ===


def environment():
    """Without proxies: what is asked is on this machine."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def program(tools, path):
    found = tools / "node_modules" / path
    if not found.is_file():
        raise Red(f"not installed: {path}")
    # As the script would have left it that is not run when it is installed.
    found.chmod(found.stat().st_mode | 0o111)
    return str(found)


def output(arguments, **variables):
    """What a program prints; what it complains of is shown, and a red end is an error."""
    done = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE,
        env={**environment(), **variables},
    )
    if done.returncode:
        raise Red(f"{Path(arguments[0]).name} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def results_of(text):
    found = re.search(r"^RESULTS (.*)$", text, re.MULTILINE)
    if not found:
        raise Red(f"it ended before all cases had run:\n{text}")
    return json.loads(found[1])


def call(url, method, path, body=None, timeout=DEADLINE):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until(what, ask, deadline=30):
    end = time.monotonic() + deadline
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Red(f"not within {deadline} s: {what}")
        time.sleep(0.05)


class Server:
    """A process that listens on a port, which it prints. It is in the process group that the rig ends."""

    def __init__(self, arguments, log):
        self.log = log
        with log.open("w") as output_file:
            self.process = subprocess.Popen(arguments, stdout=output_file, stderr=subprocess.STDOUT, env=environment())

    def said(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, pattern):
        def ask():
            if self.process.poll() is not None:
                raise Red(f"{self.process.args[0]} ended:\n{self.said()}")
            return re.search(pattern, self.said())

        return until(f"{self.process.args[0]} says {pattern}", ask)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# === processes ===


def in_process(name, kind, arguments, path):
    """`arguments` are those before a module; `kind` is what the tests of processes call this runtime."""

    def run(tools, rig, home):
        binary = program(tools, path)
        version = output([binary, "--version"]).split("\n")[0]
        report(name, version, results_of(output([binary, *arguments, str(HERE / "run.mjs")])))
        # They start the runtime that they find, and are themselves run by Node.
        node = binary if kind == "node" else program(tools, NEWEST_NODE)
        search = f"{Path(binary).parent}:{os.environ['PATH']}"
        pattern = ["--test-reporter=tap", f"--test-name-pattern=\\({kind}\\)$"]
        text = output([node, "--test", *pattern, str(JS / "test" / "process.test.mjs")], PATH=search)
        ends = re.findall(rf"^ *ok \d+ - (C\d\d) .*\({kind}\)(.*)$", text, re.MULTILINE)
        if not ends or any("SKIP" in rest for _, rest in ends):
            raise Red(f"the tests of processes did not run:\n{text}")
        print(f"{name}: done to processes: {' '.join(case for case, _ in ends)} are green")

    RUNTIMES[name] = run


NEWEST_NODE = f"node-newest-{ARCHITECTURE}/bin/node"
in_process("node-oldest", "node", [], f"node-oldest-{ARCHITECTURE}/bin/node")
in_process("node-newest", "node", [], NEWEST_NODE)
in_process("deno", "deno", ["run", "--quiet", "--allow-all", "--no-config", "--no-lock"], f"@deno/linux-{ARCHITECTURE}-glibc/deno")
BUN = {"x64": "x64", "arm64": "aarch64"}.get(ARCHITECTURE, ARCHITECTURE)
in_process("bun", "bun", [], f"@oven/bun-linux-{BUN}/bin/bun")


# === workerd ===


@runtime("workerd")
def run_workerd(tools, rig, home):
    cpu = {"x64": "64"}.get(ARCHITECTURE, ARCHITECTURE)
    binary = program(tools, f"@cloudflare/workerd-linux-{cpu}/bin/workerd")
    version = output([binary, "--version"]).split("\n")[0]
    modules = {f"tests/clients/{name}": HERE / name for name in ("workerd.mjs", "cases.mjs")}
    for folder in ("src", "test"):
        for file in sorted((JS / folder).iterdir()):
            # The other files of tests are for processes.
            if file.suffix in (".js", ".mjs") and ".test." not in file.name:
                modules[f"clients/js/{folder}/{file.name}"] = file
    for name, file in modules.items():
        copy = home / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    embedded = ",\n".join(f"    (name = {quoted(name)}, esModule = embed {quoted(name)})" for name in modules)
    config = home / "config.capnp"
    config.write_text(
        f"""using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .cases),
    (name = "local", network = (allow = ["private", "local"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const cases :Workerd.Worker = (
  modules = [
{embedded},
  ],
  bindings = [(name = "RIG", text = {quoted(rig)})],
  compatibilityDate = "2026-11-01",
  globalOutbound = "local",
);
"""
    )
    with Server([binary, "serve", "--control-fd=1", str(config)], home / "workerd.log") as server:
        found = server.wait_for(r'"event":\s*"listen".*"port":\s*(\d+)')
        status, text = call(f"http://127.0.0.1:{found[1]}", "GET", "/")
        if status != 200:
            raise Red(f"workerd answered {status}: {text}\n{server.said()}")
        report("workerd", version, json.loads(text))


def quoted(text):
    return json.dumps(text)


# === Chromium ===


class Browser:
    """Debian's Chromium, driven over WebDriver."""

    def __init__(self, home):
        for command in ("chromium", "chromedriver"):
            if not shutil.which(command):
                raise Red(f"there is no {command}; Debian has it in chromium and chromium-driver")
        self._driver = Server(["chromedriver", "--port=0"], home / "chromedriver.log")
        try:
            port = self._driver.wait_for(r"started successfully on port (\d+)")[1]
            self._url = f"http://127.0.0.1:{port}"
            arguments = [
                "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server",
                f"--user-data-dir={home / 'profile'}",
            ]
            if os.geteuid() == 0:
                # There is no sandbox for root.
                arguments.append("--no-sandbox")
            options = {"binary": shutil.which("chromium"), "args": arguments}
            made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        except BaseException:
            self._driver.__exit__()
            raise
        self._session = f"/session/{made['sessionId']}"
        self.version = f"Chromium {made['capabilities']['browserVersion']}"
        self.command("POST", "/timeouts", {"script": DEADLINE * 1000})

    def _send(self, method, path, body=None):
        status, text = call(self._url, method, path, body)
        value = json.loads(text)["value"]
        if status != 200:
            raise Red(f"{value['error']}: {value['message']}")
        return value

    def command(self, method, path, body=None):
        return self._send(method, self._session + path, body)

    def open(self, url):
        self.command("POST", "/url", {"url": url})
        until(f"{url} is loaded", lambda: self.script("return window.loaded === true;"))

    def script(self, text, *arguments):
        return self.command("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def awaited(self, function, *arguments):
        """What the promise of a function of the page resolves to."""
        text = f"""const done = arguments[arguments.length - 1];
        window.{function}(...[...arguments].slice(0, -1))
          .then((value) => done({{ value }}), (error) => done({{ failed: String(error.stack ?? error) }}));"""
        answer = self.command("POST", "/execute/async", {"script": text, "args": list(arguments)})
        if "failed" in answer:
            raise Red(answer["failed"])
        return answer["value"]

    def close_page(self):
        """Opens another one before, so that the browser goes on."""
        other = self.command("POST", "/window/new", {"type": "tab"})["handle"]
        self.command("DELETE", "/window")
        self.command("POST", "/window", {"handle": other})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._send("DELETE", self._session)
        finally:
            self._driver.__exit__()


@runtime("chromium-page")
def run_page(tools, rig, home):
    with Browser(home) as browser:
        browser.open(f"{rig}/files/tests/clients/page.html")
        report("chromium-page", browser.version, browser.awaited("runInPage"))
        give_back_when_closed(browser, rig)


def give_back_when_closed(browser, rig):
    """C30 with a page that is really closed, and with one that goes elsewhere."""
    gateway = json.loads(call(rig, "GET", "/rig")[1])["b"]
    call(rig, "POST", "/rig/reset")

    def state(name):
        return json.loads(call(gateway, "GET", f"/locks/{name}")[1])["state"]

    leaving = {"closed": browser.close_page, "left": lambda: browser.command("POST", "/url", {"url": "about:blank"})}
    for how, leave in leaving.items():
        name = f"page-that-is-{how}"
        browser.open(f"{rig}/files/tests/clients/page.html")
        browser.awaited("acquireInPage", name)
        if state(name) != "held":
            raise Red(f"the page holds no {name}")
        leave()
        until(f"C30: the lock of a page that was {how} is free", lambda: state(name) == "free", 3)
    print("chromium-page: a page that is closed or left gives its lock back")


@runtime("chromium-worker")
def run_worker(tools, rig, home):
    with Browser(home) as browser:
        browser.open(f"{rig}/files/tests/clients/page.html")
        report("chromium-worker", browser.version, browser.awaited("runInWorker"))


# === the package ===


@runtime("package")
def run_package(tools, rig, home):
    """What the shared cases leave out: types, size, what is published, answers that no gateway gives on demand."""
    node = program(tools, NEWEST_NODE)
    print(f"package: {output([node, program(tools, 'typescript/bin/tsc'), '--project', str(JS / 'test' / 'tsconfig.json')])}types are right")
    # Of the cases, and of processes: the runtimes above run those.
    elsewhere = {"node", "process", "manager"}
    files = sorted(file for file in (JS / "test").glob("*.test.mjs") if file.name.split(".")[0] not in elsewhere)
    if not files:
        raise Red("clients/js/test has no such tests")
    text = output(
        [node, "--test", "--test-concurrency=1", "--test-reporter=tap", *map(str, files)],
        PATH=f"{Path(node).parent}:{os.environ['PATH']}",
        ESBUILD=program(tools, f"@esbuild/linux-{ARCHITECTURE}/bin/esbuild"),
    )
    skipped = re.findall(r"^ *ok .* # SKIP.*$", text, re.MULTILINE)
    if skipped:
        raise Red("\n".join(["skipped:", *skipped]))
    for measure in re.findall(r"^ *# (\d[^\n]* (?:bytes|client))$", text, re.MULTILINE):
        print(f"package: {measure}")
    print(f"package: {' '.join(file.name for file in files)}: {re.search(r'^# pass (.*)$', text, re.MULTILINE)[1]} tests are green")


# === the list of cases ===


def report(name, version, results):
    """Prints what came of the cases; raises if one is red or missing."""
    wanted = re.findall(r"^\* \*\*(C\d\d)\*\*", (ROOT / "clients" / "conformance.md").read_text(), re.MULTILINE)
    ran = [result["id"] for result in results if result["id"].startswith("C")]
    if ran != wanted or len(results) == len(ran):
        raise Red(f"it ran the cases {' '.join(ran)}, not {' '.join(wanted)} and some of the lock manager")
    # One that was left out is none that is green.
    red = [result for result in results if not result["ok"] or result.get("skipped")]
    slow = [f"{result['id']} {result['ms'] / 1000:.1f} s" for result in sorted(results, key=lambda result: -result["ms"])[:3]]
    seconds = sum(result["ms"] for result in results) / 1000
    print(f"{name}: {version}: {len(results) - len(red)} of {len(results)} cases are green, {seconds:.1f} s (longest {', '.join(slow)})")
    if red:
        told = [f"{result['id']} {result.get('name', '')}: {result.get('error') or result.get('skipped')}" for result in red[:TOLD]]
        rest = " ".join(result["id"] for result in red[TOLD:])
        raise Red("\n".join([*told, *([f"and {rest}"] if rest else [])]))


def within(name, tools):
    """The command of a rig: one runtime."""
    with tempfile.TemporaryDirectory(prefix=f"latchgate-{name}-") as home:
        try:
            RUNTIMES[name](tools, os.environ["LATCHGATE_RIG"], Path(home))
        except (Red, OSError, subprocess.TimeoutExpired, http.client.HTTPException, ValueError) as error:
            print(f"{name}: RED: {error}")
            return 1
    return 0


def beside(name, arguments):
    began = time.monotonic()
    command = [
        sys.executable, str(RIG), "--program", arguments.program, "--files", str(ROOT), "--",
        sys.executable, str(HERE / "js.py"), "--tools", str(arguments.tools), "--within", name,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return name, done.returncode, done.stdout, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=Path, default=ROOT / "target" / "tools" / "clients")
    parser.add_argument("--program", default=str(ROOT / "target" / "debug" / "latchgate"))
    # All of them: they wait for leases and time-outs for most of their time.
    parser.add_argument("--at-once", type=int, default=len(RUNTIMES))
    parser.add_argument("--within", choices=RUNTIMES, help=argparse.SUPPRESS)
    parser.add_argument("runtimes", nargs="*", metavar="RUNTIME")
    arguments = parser.parse_args()
    if arguments.within:
        return within(arguments.within, arguments.tools)
    for name in arguments.runtimes:
        if name not in RUNTIMES:
            parser.error(f"no such runtime: {name}; there are {', '.join(RUNTIMES)}")
    red = []
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        runs = [pool.submit(beside, name, arguments) for name in arguments.runtimes or RUNTIMES]
        for run in concurrent.futures.as_completed(runs):
            name, code, text, seconds = run.result()
            print(text, end="")
            print(f"{name}: {'RED' if code else 'green'} after {seconds:.0f} s", flush=True)
            if code:
                red.append(name)
    # Once more, alone: what is green then is unstable.
    for name in sorted(red):
        _, code, text, seconds = beside(name, arguments)
        print(f"once more: {text}{name}: {'RED' if code else 'green'} after {seconds:.0f} s", flush=True)
        if not code:
            red.remove(name)
            with open(os.environ.get("UNSTABLE", os.devnull), "a") as unstable:
                unstable.write(f"clients js {name}\n")
    if red:
        print(f"red: {' '.join(sorted(red))}")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
