"""What other gateways, other pages and old pages on the same machine can do to who is signed in: nothing."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway, until

ALL = ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"]
COOKIE = "latchgate-session"


class Strangers(BrowserCase):
    KEYS = {"ops": ALL}

    def other_gateway(self):
        """On the same host name, which is all that a cookie knows of."""
        other = Gateway({"other": ALL}, secret="another one, of this gateway alone")
        self.addCleanup(other.end)
        return other

    def sign_in_at(self, gateway, context, key):
        page = context.new_page()
        page.goto(f"{gateway.url}/dashboard")
        page.get_by_label("API key").fill(gateway.keys[key])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        return page

    def assert_signed_out(self, page):
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    def test_the_cookie_of_another_gateway_leads_to_the_sign_in_page(self):
        # What the page asked for before it knew.
        self.forgive("status of 401")
        other = self.other_gateway()
        context = self.context()
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        expect(page.locator(".live.is-live")).to_be_visible()
        there = self.sign_in_at(other, context, "other")
        # Both have one name for it: signed in at one, one is signed out at the other, and is told.
        self.assert_signed_out(page)
        expect(page.get_by_text("another gateway on this host name")).to_be_visible()
        # Nor does a page that is opened only now get stuck with it.
        self.assert_signed_out(self.open("/locks", context=context))
        self.sign_in(page, "ops")
        self.assert_signed_out(there)

    def test_also_where_wrong_cookies_are_not_looked_at_any_more(self):
        self.forgive("status of 4(01|29)")
        few = Gateway(self.KEYS, environment={"LATCHGATE_AUTH_MAX_REFUSED_PER_MINUTE": "1"})
        self.addCleanup(few.end)
        self.gateway = few
        page = self.open("/locks")
        self.sign_in(page, "ops")
        expect(page.locator(".live.is-live")).to_be_visible()
        # Behind a proxy all callers have one address: others have used it up.
        wrong = {"Authorization": "Bearer lgk_wrong"}
        until("wrong keys are not looked at", lambda: self.gateway.call("GET", "/locks/a", headers=wrong, key=None)[0] == 429)
        other = self.other_gateway()
        self.sign_in_at(other, page.context, "other")
        self.assert_signed_out(page)
        self.sign_in(page, "ops")
        expect(page.locator(".live.is-live")).to_be_visible()

    def test_a_session_that_was_put_there_before_is_not_the_one_that_is_begun(self):
        # By another server on the host name, say. It may also be a real one, of somebody else.
        planted = self.open("")
        self.sign_in(planted, "ops")
        [of_others] = [cookie for cookie in planted.context.cookies() if cookie["name"] == COOKIE]
        for value in ("lgs_junk", "x" * 3_000, of_others["value"]):
            context = self.context()
            context.add_cookies([{"name": COOKIE, "value": value, "url": self.gateway.url}])
            page = self.open("/locks", context=context)
            if value == of_others["value"]:
                # Whose it is is shown, so that it can be noticed.
                expect(page.get_by_role("banner")).to_contain_text("ops")
                page.get_by_role("button", name="Sign out").click()
            self.sign_in(page, "ops")
            kept = [cookie["value"] for cookie in context.cookies() if cookie["name"] == COOKIE]
            self.assertEqual(len(kept), 1)
            self.assertNotEqual(kept[0], value)

    def test_a_page_of_another_origin_signs_nobody_in_or_out_and_breaks_nothing(self):
        context = self.context()
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        self.gateway.acquire("wanted", owner="somebody", ttl_ms=600_000)
        with Elsewhere() as port:
            # Another port is the same site, another name is another one.
            for host in ("127.0.0.1", "localhost"):
                evil = context.new_page()
                evil.goto(f"http://{host}:{port}/")
                evil.evaluate(ATTACK, [self.gateway.url, self.gateway.keys["ops"]])
                with evil.expect_navigation():
                    evil.evaluate(FORM, f"{self.gateway.url}/locks/wanted/break")
                self.assertIn("origin-refused", evil.content())
        _, lock = self.gateway.call("GET", "/locks/wanted")
        self.assertEqual(lock["holders"][0]["owner"], "somebody")
        self.assertEqual(self.gateway.call("GET", "/locks/taken")[1]["state"], "free")
        page.reload()
        expect(page.get_by_role("row").filter(has_text="wanted")).to_have_count(1)

    def test_no_page_of_another_origin_shows_ours(self):
        with Elsewhere() as port:
            page = self.context().new_page()
            page.goto(f"http://localhost:{port}/")
            framed = page.evaluate(FRAME, f"{self.gateway.url}/dashboard")
            self.assertEqual(framed, "nothing")

    def test_a_page_that_comes_back_from_the_cache_of_the_browser_asks_who_is_signed_in(self):
        # What a page asks for while another one signs out.
        self.forgive("status of 401")
        self.gateway.acquire("secret-name", ttl_ms=600_000)
        context = self.context()
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        row = page.get_by_role("row").filter(has_text="secret-name")
        expect(row).to_have_count(1)
        # As the browser tells a page that is left, and shown again as it was.
        page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
        expect(page.locator(".live.is-off")).to_be_visible()
        other = self.open("/locks", context=context)
        other.get_by_role("button", name="Sign out").click()
        expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
        shown = page.evaluate(
            "dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true})),"
            " new Promise(requestAnimationFrame).then(() => document.body.textContent)"
        )
        self.assertNotIn("secret-name", shown)
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        self.sign_in(page, "ops")
        page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        expect(row).to_have_count(1)
        expect(page.locator(".live.is-live")).to_be_visible()

    def test_back_after_signing_out_shows_nothing(self):
        self.gateway.acquire("secret-name", ttl_ms=600_000)
        page = self.open("/locks")
        self.sign_in(page, "ops")
        page.get_by_role("row").filter(has_text="secret-name").get_by_role("link").click()
        expect(page.get_by_role("heading", level=1, name="secret-name")).to_be_visible()
        page.get_by_role("link", name="Events", exact=True).click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        self.assertNotIn("Holder", page.locator("main").inner_text())
        page.goto("about:blank")
        page.go_back()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


# What a page can send without being asked: everything that a form could, and with what the browser adds.
ATTACK = """async ([gateway, key]) => {
  const json = JSON.stringify({key});
  const send = (path, options) =>
    fetch(gateway + path, {mode: "no-cors", credentials: "include", ...options}).catch(() => null);
  await send("/session", {method: "POST", body: json});
  await send("/session", {method: "POST", body: new Blob([json], {type: "text/plain"})});
  await send("/session", {method: "POST"});
  await send("/locks/taken", {method: "POST"});
  await send("/locks/wanted/break", {method: "POST", body: '{"reason": "mine"}'});
  await fetch(gateway + "/session", {method: "DELETE", credentials: "include"}).catch(() => null);
  navigator.sendBeacon(gateway + "/locks/wanted/break", '{"reason": "mine"}');
}"""

FORM = """(to) => {
  const form = document.body.appendChild(document.createElement("form"));
  form.method = "post";
  form.action = to;
  form.enctype = "text/plain";
  form.submit();
}"""

FRAME = """(url) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.src = url;
  frame.onload = () => {
    try {
      done(frame.contentDocument?.querySelector("#app") ? "ours" : "nothing");
    } catch {
      done("nothing");
    }
  };
  document.body.append(frame);
}).then((seen) => (window.frames[0].length === 0 ? seen : "frames"))"""


class Elsewhere:
    """A page of somebody else, on this machine."""

    def __enter__(self):
        class Page(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>elsewhere</title><body></body>")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.server.server_port

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
