"""A test in a real Chromium: nothing may fail in its console, nor be refused by the page's policy."""

import os
import re
import unittest

from playwright.sync_api import expect, sync_playwright

from gateway import Gateway

CHROMIUM = "/usr/bin/chromium"
# How long something may take to show: tests bound what lives, they do not measure it.
expect.set_options(timeout=60_000)

_opened = {}


def chromium_arguments():
    """There is no sandbox for root. `gateway.test` is a gateway on another machine, over plain HTTP."""
    resolved = "--host-resolver-rules=MAP gateway.test 127.0.0.1"
    return ["--disable-dev-shm-usage", resolved, *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def chromium():
    """One browser for all tests."""
    if "browser" not in _opened:
        _opened["playwright"] = sync_playwright().start()
        launch = _opened["playwright"].chromium.launch
        _opened["browser"] = launch(executable_path=CHROMIUM, args=chromium_arguments())
        unittest.addModuleCleanup(_close)
    return _opened["browser"]


def _close():
    _opened.pop("browser").close()
    _opened.pop("playwright").stop()


class BrowserCase(unittest.TestCase):
    """`self.open(path)` is a page of `self.gateway`; what it may complain of is given with `forgive`."""

    KEYS = None

    def setUp(self):
        self.forgiven = []
        self.complaints = []
        self.gateway = self.new_gateway()
        self.addCleanup(self.gateway.end)

    def new_gateway(self):
        return Gateway(self.KEYS)

    def tearDown(self):
        left = [said for said in self.complaints if not any(re.search(known, said) for known in self.forgiven)]
        self.assertEqual(left, [], "the console of the browser")

    def forgive(self, *patterns):
        """Something that belongs to the test: a browser writes each refused request into its console."""
        self.forgiven.extend(patterns)

    def context(self, **options):
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        context = chromium().new_context(**options)
        self.addCleanup(context.close)
        return context

    def open(self, path="", context=None, **options):
        page = (context or self.context(**options)).new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', (event) =>"
            " console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI + ' ' + event.sample));"
        )
        page.goto(f"{self.gateway.url}/dashboard{path}")
        return page

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def sign_in(self, page, key):
        page.get_by_label("API key").fill(self.gateway.keys[key])
        page.get_by_role("button", name="Sign in", exact=True).click()
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()

    def try_it(self, page):
        """The panel that tries the API, unfolded."""
        panel = page.get_by_role("region", name="Try it")
        panel.locator("> details").evaluate("(details) => (details.open = true)")
        return panel

    def ask_nobody(self, page):
        """In the dialog that breaks a lock: at once, without asking the holder."""
        page.get_by_role("radio", name="Break now").check()

    def assert_fits(self, page):
        """Nothing makes the page wider than its window."""
        wide = page.evaluate(
            "() => ['html', 'main', '.content'].map((name) => document.querySelector(name))"
            ".filter((element) => element && element.scrollWidth > element.clientWidth + 1)"
            ".map((element) => element.tagName + ' ' + element.scrollWidth)"
        )
        self.assertEqual(wide, [], "wider than the window")
