"""Takes a picture of every page, light and dark, wide and as a phone, of a gateway on which something goes on."""

import random
import sys
import threading
import time
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from browser import CHROMIUM, chromium_arguments
from gateway import Gateway

LOOKS = [
    (theme, name, size)
    for theme in ("light", "dark")
    for name, size in (("desktop", {"width": 1360, "height": 850}), ("phone", {"width": 390, "height": 844}))
]
PEOPLE = ["anna@laptop", "ci-runner-7", "ci-runner-9", "github-actions #48112", "lambda:resize-images", "deploy-bot",
          "jenkins-agent-3", "k8s/worker-5d9f", "m.okafor", "terraform-cloud"]
VERBS = ["deploy", "migrate", "cron", "index", "report"]
SERVICES = ["api", "web", "worker", "billing", "search", "ingest", "mailer", "reports", "etl"]
PLACES = ["prod:eu", "prod:us", "staging", "dev"]


class Traffic:
    """Callers as there might be in a company of some size."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.random = random.Random(7)
        names = {f"{v}:{s}:{p}" for v in VERBS for s in SERVICES for p in PLACES}
        for number, name in enumerate(self.random.sample(sorted(names), 60)):
            self.start(self.hold, name, random.Random(number))
        for name, many in (("deploy:web:prod:eu", 7), ("migrate:billing:prod:us", 4), ("index:search:staging", 2)):
            for number in range(many):
                self.start(self.queue, name, random.Random(f"{name}{number}"))
        self.start(self.refused, "deploy:web:prod:eu", random.Random(1))

    def start(self, act, name, chance):
        threading.Thread(target=self.again, args=(act, name, chance), daemon=True).start()

    def again(self, act, name, chance):
        while True:
            try:
                act(name, chance)
            except Exception:  # noqa: BLE001 - the gateway is ended while they ask
                time.sleep(1)

    def take(self, name, chance, **more):
        job = {"job": str(chance.randint(1000, 9999)), "commit": f"{chance.getrandbits(28):07x}", "branch": "main"}
        body = {"owner": chance.choice(PEOPLE), "metadata": job, **more}
        status, lease = self.gateway.call("POST", f"/locks/{name}", body)
        return lease if status == 201 else None

    def end(self, lease):
        self.gateway.call("DELETE", f"/locks/{lease['name']}", headers={"Lock-Token": lease["token"]})

    def hold(self, name, chance):
        ttl = chance.choice([12_000, 30_000, 60_000, 120_000])
        lease = self.take(name, chance, ttl_ms=ttl, wait_ms=20_000)
        until = time.monotonic() + chance.uniform(15, 200)
        while lease and time.monotonic() < until:
            time.sleep(ttl / 1000 * chance.uniform(0.3, 0.85))
            self.gateway.call("PUT", f"/locks/{name}/renew", headers={"Lock-Token": lease["token"]})
        if lease:
            self.end(lease)
        time.sleep(chance.uniform(0.5, 4))

    def queue(self, name, chance):
        lease = self.take(name, chance, ttl_ms=30_000, wait_ms=50_000)
        if lease:
            time.sleep(chance.uniform(2, 7))
            self.end(lease)
        time.sleep(chance.uniform(0.2, 2))

    def refused(self, name, chance):
        self.take(name, chance)
        time.sleep(chance.uniform(0.1, 1.5))


def pictures(gateway, into):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=chromium_arguments())
        contexts = []
        for theme, name, size in LOOKS:
            phone = name == "phone"
            context = browser.new_context(
                viewport=size, color_scheme=theme, has_touch=phone, is_mobile=phone, reduced_motion="reduce"
            )
            page = context.new_page()
            shot = lambda what, page=page, look=f"{theme}-{name}": page.screenshot(path=into / f"{what}-{look}.png")  # noqa: E731
            page.goto(f"{gateway.url}/dashboard")
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
            shot("sign-in")
            page.get_by_label("API key").fill(gateway.keys["ops"])
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Health")).to_be_visible()
            contexts.append((page, shot))
        # The charts show minutes.
        time.sleep(100)
        for page, shot in contexts:
            page.bring_to_front()
            page.wait_for_timeout(2_500)
            shot("overview")
            page.get_by_role("link", name="Locks", exact=True).click()
            page.wait_for_timeout(700)
            shot("locks")
            page.get_by_label("Search name, owner, metadata").fill("nothing-like-that")
            page.wait_for_timeout(500)
            shot("locks-none")
            page.goto(f"{gateway.url}/dashboard/locks/deploy:web:prod:eu")
            expect(page.get_by_role("region", name="Queue")).to_be_visible()
            page.wait_for_timeout(1_500)
            shot("lock")
            page.get_by_role("button", name="Break…").click()
            page.get_by_label("Reason").fill("runner 7 is gone, asked in #ops")
            shot("break")
            page.get_by_role("radio", name="Break now").check()
            shot("break-now")
            page.keyboard.press("Escape")
            page.goto(f"{gateway.url}/dashboard/events")
            page.wait_for_timeout(2_500)
            shot("events")
            page.keyboard.press("?")
            page.wait_for_timeout(300)
            shot("help")
            page.keyboard.press("Escape")
        gateway.stop()
        for page, shot in contexts:
            expect(page.get_by_text("Connection lost")).to_be_visible(timeout=20_000)
            shot("lost")
        browser.close()


def main():
    into = Path(sys.argv[1])
    gateway = Gateway({"ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"]})
    Traffic(gateway)
    time.sleep(5)
    try:
        pictures(gateway, into)
    finally:
        gateway.end()


main()
