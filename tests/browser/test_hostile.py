"""Names, owners, metadata and reasons are anybody's text: nothing of it executes, nothing breaks the layout."""

import re

from playwright.sync_api import expect

from browser import BrowserCase

SCRIPTS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror=window.hit=1>",
    "\"><svg onload=window.hit=1>",
    "javascript:window.hit=1",
    "${window.hit=1}{{constructor.constructor('window.hit=1')()}}",
    "&lt;b&gt; &amp; <b>bold</b>",
    "{{7*7}} <%= 7*7 %> #{7*7} `${7*7}` [[7*7]]",
]
DIRECTIONS = "\u202egnorw \u2066isolated \u200finvisible\u200b\u2028"
LONG = "w" * 128
WIDE = "漢字🧑‍🚒" * 20
MARKS = "Z\u0351\u036b\u0343\u036a\u0302\u036b" * 18
# As long as names get, and in all characters that they may have.
NAME = "x" * 150 + ":a.b_c@d~e-" + "y" * 39


class Hostile(BrowserCase):
    def hostile_locks(self):
        for number, text in enumerate([*SCRIPTS, DIRECTIONS, LONG, WIDE, MARKS]):
            metadata = {text[:60] or "-": text, "__proto__": text, "constructor": "<i>"}
            self.gateway.acquire(f"hostile:{number}", owner=text, ttl_ms=600_000, metadata=metadata)
        self.gateway.acquire(NAME, owner=LONG, ttl_ms=600_000, metadata={"k" * 600: "v" * 1200})

    def assert_harmless(self, page):
        self.assertIsNone(page.evaluate("window.hit ?? null"))
        self.assertEqual(page.locator("main :is(script, img, b:not(.legend b), i:not(.bar i, .share i), iframe)").count(), 0)
        self.assert_fits(page)

    def test_nothing_executes_and_the_layout_holds(self):
        self.hostile_locks()
        for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
            with self.subTest(size):
                page = self.open("/locks", viewport=size)
                expect(page.get_by_role("row").filter(has_text="hostile:0")).to_contain_text(SCRIPTS[0])
                self.assert_harmless(page)
                heights = page.evaluate("[...document.querySelectorAll('.grid .body .row')].map((row) => row.offsetHeight)")
                self.assertEqual(len(set(heights)), 1, "all rows are of one height")
                for number in range(10):
                    page.goto(f"{self.gateway.url}/dashboard/locks/hostile:{number}")
                    expect(page.get_by_role("region", name="Holder")).to_contain_text("constructor")
                    self.assert_harmless(page)
                page.goto(f"{self.gateway.url}/dashboard/locks/{NAME}")
                expect(page.get_by_role("region", name="Holder")).to_contain_text("v" * 1200)
                self.assert_harmless(page)
                page.get_by_role("button", name="Break…").click()
                self.assert_harmless(page)
                page.keyboard.press("Escape")
                page.goto(f"{self.gateway.url}/dashboard")
                expect(page.get_by_text("Locks held").first).to_be_visible()
                self.assert_harmless(page)

    def test_characters_that_do_not_show_are_named_and_directions_stay_inside(self):
        self.gateway.acquire("turned", owner=DIRECTIONS, ttl_ms=600_000)
        page = self.open("/locks")
        owner = page.get_by_role("row").filter(has_text="turned").locator(".of-owner bdi")
        for name in ("U+202E", "U+2066", "U+200F", "U+200B", "U+2028"):
            expect(owner).to_contain_text(name)
        self.assertNotIn("\u202e", owner.text_content())
        self.assertEqual(owner.evaluate("(text) => getComputedStyle(text).unicodeBidi"), "isolate")
        self.assertIn("⟨U+202E⟩gnorw", owner.get_attribute("title"))

    def test_a_long_text_is_cut_and_whole_in_its_title(self):
        self.gateway.acquire(NAME, owner=LONG, ttl_ms=600_000)
        page = self.open("/locks")
        name = page.get_by_role("row").filter(has_text="xxx").locator(".of-name bdi")
        expect(name).to_have_attribute("title", NAME)
        self.assertTrue(name.evaluate("(text) => text.scrollWidth > text.clientWidth"))

    def test_addresses_with_strange_names(self):
        self.forgive("status of 4(00|14)")
        for path, shown in [
            ("%3Cscript%3Ewindow.hit%3D1%3C%2Fscript%3E", "<script>window.hit=1</script>"),
            ("%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E", "<img src=x onerror=window.hit=1>"),
            ("%E2%80%AEgnp.js", "U+202E"),
            ("%00%1B%5B31m", "U+001B"),
            ("..%2F..%2Fsession", "../../session"),
            ("%2e%2e%2fsession", "../session"),
            ("javascript:window.hit=1", "javascript:window.hit=1"),
            ("%ff%fe", "%ff%fe"),
            ("a%3Fb%23c", "a?b#c"),
            ("%E6%BC%A2" * 400, "漢" * 400),
            ("x" * 200, "x" * 200),
            ("a.b.js", "a.b.js"),
        ]:
            for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
                page = self.open(f"/locks/{path}", viewport=size)
                expect(page.get_by_role("heading", level=1)).to_contain_text(shown)
                # Looked at, or told that it is no name: nothing else is asked for in its place.
                expect(page.locator("main :is([role=alert], .empty, .holder, .nothing)").first).to_be_visible()
                self.assert_harmless(page)
                page.context.close()

    def test_a_history_is_anybodys_text_too(self):
        for text in [*SCRIPTS, DIRECTIONS, LONG, WIDE, MARKS]:
            note = {"kind": text, "at": text, "by": text, "reason": text}
            entry = {"fencing_token": 7, "mode": "exclusive", "slot": None, "owner": text, "metadata": {text: text, "__proto__": text},
                     "acquired_at": text, "acquired_by": text, "waited_ms": None, "ended_at": None, "ended": None,
                     "ended_by": text, "reason": text, "ended_at_latest": text, "notes": [note]}
            body = {"name": "one", "entries": [entry], "shorter_leases": {"count": 1, "since": text}, "dropped": 1, "enabled": True}
            for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
                context = self.context(viewport=size)
                context.route(re.compile(r"/locks/one/history$"), lambda route, _, body=body: route.fulfill(json=body))
                page = self.open("/locks/one", context=context)
                expect(page.locator(".history ol > li")).to_have_count(1)
                self.assert_harmless(page)
                context.close()

    def test_problems_are_anybodys_text_too(self):
        self.forgive("status of 500")
        text = SCRIPTS[0] + DIRECTIONS + "\u001b[31m" + WIDE + LONG
        problem = {"type": "/problems/internal", "title": text, "detail": text * 3, "status": 500, "code": "internal",
                   "request_id": text, "errors": [{"field": text, "reason": text}]}
        for path in ("/locks", "/locks/one", ""):
            for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
                context = self.context(viewport=size)
                answer = {"status": 500, "json": problem, "headers": {"Content-Type": "application/problem+json"}}
                context.route(re.compile(r"(?<!dashboard)/(locks|stats)([/?]|$)"), lambda route: route.fulfill(**answer))
                page = self.open(path, context=context)
                expect(page.get_by_role("alert").first).to_contain_text(SCRIPTS[0])
                expect(page.get_by_role("alert").first).to_contain_text("U+202E")
                expect(page.get_by_role("alert").first).to_contain_text("U+001B")
                self.assert_harmless(page)
                context.close()

    def test_metadata_with_what_a_terminal_obeys_and_very_long(self):
        wide = "漢" * 512
        self.gateway.acquire("terminal", ttl_ms=600_000, metadata={"wide": wide, "{{7*7*7*7*7*7*7}}": "${7*7*7*7*7*7*7}"})
        status, _ = self.gateway.call("POST", "/locks/ansi", {"owner": "\u001b[31mred"})
        self.assertEqual(status, 400, "an owner has no control characters")
        _, lease = self.gateway.call("POST", "/locks/ansi", {"ttl_ms": 600_000, "metadata": {"colour": "\u001b]0;title\u0007\u001b[31mred\u0000"}})
        shows_controls = lease.get("fencing_token") is not None
        for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
            page = self.open("/locks/terminal", viewport=size)
            holder = page.get_by_role("region", name="Holder")
            expect(holder).to_contain_text(wide)
            expect(holder).to_contain_text("{{7*7*7*7*7*7*7}}")
            expect(holder).not_to_contain_text("823543")
            self.assert_harmless(page)
            if shows_controls:
                page.goto(f"{self.gateway.url}/dashboard/locks/ansi")
                for name in ("U+001B", "U+0007", "U+0000"):
                    expect(page.get_by_role("region", name="Holder")).to_contain_text(name)
                self.assert_harmless(page)

    def test_a_hostile_reason_and_event(self):
        self.gateway.acquire("told", owner=SCRIPTS[1], ttl_ms=600_000)
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.call("POST", "/locks/told/break", {"reason": SCRIPTS[0] + "\u202e"})
        row = page.get_by_role("row").filter(has_text="broken")
        expect(row).to_contain_text(SCRIPTS[0])
        expect(row).to_contain_text("U+202E")
        self.assert_harmless(page)
