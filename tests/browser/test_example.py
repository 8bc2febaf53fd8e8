"""The page among the examples: two windows that edit one document, one at a time."""

import functools
import http.server
import threading

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import ROOT, Gateway


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Who reads a test does not want to know."""


class Example(BrowserCase):
    def new_gateway(self):
        # The page is not the gateway's own: it comes from elsewhere, and is listed.
        pages = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=ROOT),
        )
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        self.addCleanup(pages.server_close)
        self.addCleanup(pages.shutdown)
        self.origin = f"http://localhost:{pages.server_port}"
        return Gateway(environment={"LATCHGATE_HTTP_ALLOWED_ORIGINS": self.origin})

    def edit(self):
        page = self.context().new_page()
        page.on("console", self._console)
        page.goto(f"{self.origin}/examples/browser.html?gateway={self.gateway.url}")
        return page

    def test_one_edits_and_the_next_when_that_window_is_closed(self):
        first = self.edit()
        expect(first.get_by_role("status")).to_contain_text("Yours, under fencing token")
        expect(first.get_by_label("The document")).to_be_enabled()
        second = self.edit()
        expect(second.get_by_role("status")).to_contain_text("somebody else edits")
        expect(second.get_by_label("The document")).to_be_disabled()
        first.close()
        expect(second.get_by_role("status")).to_contain_text("Yours, under fencing token")

    def test_silence_is_a_lost_lock(self):
        # The client warns in the console before the lease ends.
        self.forgive("no gateway has answered for")
        page = self.edit()
        expect(page.get_by_role("status")).to_contain_text("Yours")
        self.gateway.freeze()
        expect(page.get_by_role("status")).to_contain_text("the lease has expired", timeout=60_000)
        expect(page.get_by_label("The document")).to_be_disabled()
        self.gateway.thaw()
