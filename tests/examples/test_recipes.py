"""The recipes of docs/recipes: what their blocks do, as far as the other program is here."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gateway import DEADLINE, PROGRAM, ROOT, until
from test_documents import SHARED, Document, blocks

BIN = os.path.dirname(sys.executable)


def recipe(name, language):
    return [text for found, text in blocks(f"docs/recipes/{name}.md") if found == language]


class Recipe(Document):
    def setUp(self):
        super().setUp()
        self.begin()
        self.environment = {
            "PATH": f"{self.bin}:{PROGRAM.parent}:{BIN}:{os.environ['PATH']}", "HOME": str(self.home), "USER": "ann",
            "LATCHGATE_URL": self.gateway.url, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{ROOT}/clients/python/src",
        }

    def start(self, script, shell="bash", **more):
        process = subprocess.Popen(
            [shell, "-c" if shell == "bash" else "-", *([script] if shell == "bash" else [])], cwd=self.home,
            env={**self.environment, **more}, stdin=subprocess.DEVNULL if shell == "bash" else subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        if shell != "bash":
            process.stdin.write(script)
            process.stdin.close()
            process.stdin = None
        self.addCleanup(process.communicate)
        self.addCleanup(self.stop, process)
        return process

    def stop(self, process):
        """Ends it with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def ends(self, process, code=0):
        printed, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, code, printed)
        return printed

    def lock(self, name):
        return self.gateway.call("GET", f"/locks/{name}")[1]


class Migrations(Recipe):
    def test_three_instances_migrate_once(self):
        first, then_serves, prisma = recipe("database-migrations", "sh")
        self.ends(self.start(
            "alembic init made && sed -i 's#^sqlalchemy.url.*#sqlalchemy.url = sqlite:///shop.db#' alembic.ini &&"
            " alembic revision -m first"
        ))
        [version] = (self.home / "made/versions").glob("*.py")
        # Fails if it is done twice, and takes so long that all of them come.
        version.write_text(version.read_text().replace(
            "def upgrade() -> None:", "def upgrade() -> None:\n    import time; time.sleep(0.5)\n    op.execute('CREATE TABLE orders (id INTEGER)')", 1,
        ))
        self.program(self.home / "serve.sh", "#!/bin/sh\necho serving\n")
        for text in [self.ends(instance) for instance in [self.start(first), self.start(first), self.start(then_serves)]]:
            self.assertNotIn("Error", text)
        self.program(self.bin / "npx", '#!/bin/sh\necho "$PRISMA_SCHEMA_DISABLE_ADVISORY_LOCK $*"\n')
        self.assertEqual(self.ends(self.start(prisma)), "1 prisma migrate deploy\n")


class Jobs(Recipe):
    def test_a_task_of_celery_works_under_the_lock_or_tries_again(self):
        [task] = recipe("job-runners", "python")
        self.assertIn('wait="1m"', task)
        task = task.replace("http://localhost:7420", self.gateway.url).replace('wait="1m"', "wait=0")
        ask = """
from unittest import mock
print(settle.apply(args=["acme"]).get())
with locks("invoices:acme"), mock.patch.object(settle, "retry", side_effect=RuntimeError("again")) as retry:
    settle.apply(args=["acme"])
print(f"tries again in {retry.call_args.kwargs['countdown']} s")
"""
        printed = self.ends(self.start(task + ask, shell=sys.executable))
        self.assertRegex(printed, r"(?s)^settled acme under \d+\n.*tries again in 30 s\n$")


class Infrastructure(Recipe):
    def test_nobody_comes_between_a_plan_and_its_apply(self):
        [command] = recipe("opentofu", "sh")
        self.program(self.bin / "tofu", '#!/bin/sh\necho "$$ $1" >>log\nsleep 0.2\n')
        runs = [self.start(command) for _ in range(2)]
        for run in runs:
            self.ends(run)
        self.assertEqual([line.split()[1] for line in (self.home / "log").read_text().splitlines()], ["plan", "apply"] * 2)


class N8n(Recipe):
    def test_its_requests_take_a_lock_and_give_it_back(self):
        [script], [body] = recipe("n8n", "sh"), recipe("n8n", "json")
        self.assertIn(body.strip(), script)
        host = self.gateway.url.removeprefix("http://")
        said = self.ends(self.start(script.replace("localhost:7420", host) + 'echo "token $TOKEN"\n'))
        self.assertRegex(said, r"^token [\w-]{43}\n$")
        self.assertEqual(self.lock("sync")["state"], "free")


class Chat(ThreadingHTTPServer):
    """Takes what is told to a chat."""

    def __init__(self):
        self.texts = []
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                chat.texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class YourTurn(Recipe):
    def has_listener(self):
        with urllib.request.urlopen(f"{self.gateway.url}/metrics") as metrics:
            return b"\nlatchgate_event_streams 1\n" in metrics.read()

    def test_whoever_waits_is_told_when_the_lock_is_free(self):
        reserve, unreserve, watch = recipe("your-turn", "sh")
        chat = Chat()
        self.addCleanup(chat.server_close)
        self.addCleanup(chat.shutdown)
        self.environment["CHAT"] = f"http://127.0.0.1:{chat.server_port}"
        watching = self.start(watch)
        # An event that comes before its listener is told to nobody.
        until("the loop listens", self.has_listener)
        self.ends(self.start(reserve))
        until("ann is told", lambda: "ann: staging is yours until 23:59" in chat.texts)
        until("the change of hands is told", lambda: "staging: ann" in chat.texts)
        bob = self.start(reserve, USER="bob")
        until("bob waits", lambda: self.lock("staging")["waiter_count"] == 1)
        self.assertFalse([text for text in chat.texts if "bob" in text])
        self.ends(self.start(unreserve))
        self.ends(bob)
        until("bob is told", lambda: "bob: staging is yours until 23:59" in chat.texts)
        self.stop(watching)


class Alertmanager(Recipe):
    def test_an_alert_freezes_deploys_until_it_is_resolved(self):
        [receiver], [deploy] = recipe("alertmanager", "python"), recipe("alertmanager", "sh")
        self.program(self.home / "deploy.sh", "#!/bin/sh\necho deployed\n")
        free = Chat()
        port = free.server_port
        free.shutdown()
        free.server_close()
        self.start(receiver, shell=sys.executable, PORT=str(port))

        def tell(status):
            told = {"status": status, "alerts": [{"labels": {"alertname": "ShopIsDown"}}]}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", json.dumps(told).encode(), method="POST")
            try:
                with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                    return answer.status
            except urllib.error.HTTPError as error:
                return error.code
            except OSError:
                return None

        under_way = self.gateway.acquire("freeze", mode="shared", ttl_ms=60_000)
        until("a deploy that is under way is not stopped", lambda: tell("firing") == 503)
        self.gateway.call("DELETE", "/locks/freeze", headers={"Lock-Token": under_way["token"]})
        self.assertEqual(tell("firing"), 200)
        self.assertIn("alerts: ShopIsDown", self.ends(self.start(deploy.replace("--wait 1h", "--wait 0")), 100))
        waits = self.start(deploy)
        until("a deploy waits", lambda: self.lock("freeze")["waiter_count"] == 1)
        self.assertEqual(tell("resolved"), 200)
        self.assertTrue(self.ends(waits).endswith("deployed\n"))


class Pages(unittest.TestCase):
    def test_each_is_short_and_says_what_was_not_run(self):
        pages = sorted((ROOT / "docs/recipes").glob("*.md"))
        self.assertEqual(len(pages), 8)
        for page in pages:
            text = page.read_text()
            self.assertLessEqual(len(text.splitlines()), 60, page.name)
            self.assertRegex(" ".join(text.split()), r"tests run|ran th(is|em)|not run", page.name)
            self.assertNotIn(SHARED, text)


if __name__ == "__main__":
    unittest.main()
