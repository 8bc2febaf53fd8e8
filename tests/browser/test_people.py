"""People sign in at an issuer, and are named."""

import json
import signal

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway, until
from issuer import CLIENT, Issuer

TABLES = """
[[issuer]]
name = "sso"
url = "{issuer}"
audience = "https://locks.example.com"

[sign_in]
issuer = "sso"
client_id = "{client}"
client_secret_file = "{secret}"
url = "{url}"
key_form = {key_form}

[[key]]
name = "operators"
issuer = "sso"
for = "people"
claims = {{ groups = "ops" }}
acquire = ["*"]
view = ["*"]
break = ["*"]
"""


class People(BrowserCase):
    KEYS = {"ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"]}

    def setUp(self):
        self.issuer = Issuer()
        self.addCleanup(self.issuer.end)
        super().setUp()

    def new_gateway(self):
        gateway = Gateway(self.KEYS)
        self.offer(gateway)
        return gateway

    def offer(self, gateway, **changes):
        """Lets people sign in, as the issuer and the changes say."""
        secret = gateway.home / "client-secret"
        secret.write_text(CLIENT["client_secret"])
        said = {"key_form": True, "after": None, **changes}
        tables = TABLES.format(
            issuer=self.issuer.url, client=CLIENT["client_id"], secret=secret, url=gateway.url,
            key_form=json.dumps(said["key_form"]),
        )
        if said["after"]:
            tables += f"sessions_after = {said['after']}\n"
        gateway._tables["people"] = tables
        gateway._write_keys()
        gateway._process.send_signal(signal.SIGHUP)
        offered = lambda: gateway.call("GET", "/session")[1]["sign_in"]
        until("people are offered to sign in", lambda: (offered() or {}).get("key_form") == said["key_form"])

    def sign_in_as(self, page, name):
        page.get_by_role("button", name="Sign in with sso").click()
        page.get_by_role("link", name=name).click()

    def test_a_person_signs_in_breaks_a_lock_is_in_the_history_and_signs_out(self):
        self.gateway.acquire("deploy", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/deploy")
        self.sign_in_as(page, "Ann")
        expect(page.get_by_role("heading", level=1, name="deploy")).to_be_visible()
        self.assertTrue(page.url.endswith("/dashboard/locks/deploy"), page.url)
        expect(page.locator(".person")).to_contain_text("ann@example.com (operators)")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        self.ask_nobody(page)
        dialog.get_by_label("Reason").fill("stuck")
        dialog.get_by_role("button", name="Break").click()
        expect(dialog).to_have_count(0)
        _, history = self.gateway.call("GET", "/locks/deploy/history")
        self.assertIn('"ann@example.com (operators)"', json.dumps(history))
        expect(page.get_by_role("region", name="History")).to_contain_text("ann@example.com (operators)")
        # No cookie is left but the session.
        left = [cookie["name"] for cookie in page.context.cookies()]
        self.assertEqual(left, ["latchgate-session"])
        page.get_by_role("button", name="Sign out").click()
        # The issuer sends the browser back.
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.wait_for_url(f"{self.gateway.url}/dashboard")
        self.assertEqual(page.context.cookies(), [])

    def test_a_person_whom_no_key_is_for_is_told_so_and_comes_back(self):
        self.forgive("status of 403")
        page = self.open("/locks")
        self.sign_in_as(page, "Bob")
        expect(page.get_by_role("heading", name="You are not signed in")).to_be_visible()
        page.get_by_role("link", name="Back to the dashboard").click()
        # With a key, all is as before.
        self.sign_in(page, "ops")

    def test_a_session_that_ends_while_a_dialog_is_open_leaves_the_page_to_sign_in(self):
        self.forgive("status of 401")
        self.gateway.acquire("deploy", ttl_ms=600_000)
        page = self.open("/locks/deploy")
        self.sign_in_as(page, "Ann")
        page.get_by_role("button", name="Break…").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        self.offer(self.gateway, key_form=False, after="2126-01-01T00:00:00Z")
        expect(page.get_by_text("Your session is over")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.reload()
        expect(page.get_by_role("button", name="Sign in with sso")).to_be_visible()
        expect(page.get_by_label("API key")).to_have_count(0)
        self.offer(self.gateway)
        self.sign_in_as(page, "Ann")
        expect(page.get_by_role("button", name="Break…")).to_be_visible()
        self.assertTrue(page.url.endswith("/dashboard/locks/deploy"), page.url)

    def test_a_link_that_somebody_else_has_made_signs_nobody_in(self):
        self.forgive("status of 403")
        eve, ann = self.open(), self.open()
        eve.get_by_role("button", name="Sign in with sso").click()
        agreed = eve.get_by_role("link", name="Ann").get_attribute("href")
        link = eve.context.request.get(f"{self.issuer.url}{agreed}", max_redirects=0).headers["location"]
        for _ in range(2):
            ann.goto(link)
            expect(ann.get_by_text("This browser has not begun to sign in")).to_be_visible()
            self.assertEqual([cookie["name"] for cookie in ann.context.cookies() if "session" in cookie["name"]], [])
            # Nor if she has begun an attempt of her own.
            ann.goto(f"{self.gateway.url}/sign-in?return=%2Fdashboard")
        # Whoever has begun it can use it.
        eve.goto(link)
        expect(eve.locator(".person")).to_contain_text("ann@example.com (operators)")
