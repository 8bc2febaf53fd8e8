"""Names, owners, metadata and reasons are anybody's text: nothing of it executes, nothing breaks the layout."""

from playwright.sync_api import expect

from browser import BrowserCase

SCRIPTS = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror=window.hit=1>",
    "\"><svg onload=window.hit=1>",
    "javascript:window.hit=1",
    "${window.hit=1}{{constructor.constructor('window.hit=1')()}}",
    "&lt;b&gt; &amp; <b>bold</b>",
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

    def test_a_hostile_reason_and_event(self):
        self.gateway.acquire("told", owner=SCRIPTS[1], ttl_ms=600_000)
        page = self.open("/events")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.call("POST", "/locks/told/break", {"reason": SCRIPTS[0] + "\u202e"})
        row = page.get_by_role("row").filter(has_text="broken")
        expect(row).to_contain_text(SCRIPTS[0])
        expect(row).to_contain_text("U+202E")
        self.assert_harmless(page)
