"""Times say their zone, and are shown in UTC if somebody wants that; a lock is opened by its name; a key says what is odd."""

import re

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until


class Zone(BrowserCase):
    def test_a_switch_shows_every_time_in_utc_and_is_remembered(self):
        first = self.open("/events", timezone_id="Asia/Tokyo")
        expect(first.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("when", ttl_ms=600_000)
        time = first.locator(".grid .body time")
        head = first.get_by_role("columnheader").first
        expect(head).to_have_text("Time, GMT+9")
        own, at = time.inner_text(), time.get_attribute("datetime")
        self.assertEqual(int(own[-8:-6]), (int(at[11:13]) + 9) % 24)
        first.get_by_role("button", name="Times in GMT+9. Switch to UTC").click()
        expect(head).to_have_text("Time, UTC")
        expect(time).to_have_text(re.compile(rf"{at[11:19]}$"))
        first.goto(f"{self.gateway.url}/dashboard/locks/when")
        expect(first.get_by_role("region", name="Timeline").locator(".zone")).to_have_text("UTC")
        expect(first.get_by_role("region", name="History").locator("time").first).to_have_text(re.compile(rf"{at[11:18]}\d$"))
        first.get_by_role("button", name="Times in UTC. Switch to GMT+9").click()
        expect(first.get_by_role("region", name="History").locator("time").first).to_have_text(re.compile(rf"{own[-8:-1]}\d$"))

    def test_where_the_browser_is_in_utc_there_is_nothing_to_switch(self):
        page = self.open(timezone_id="UTC")
        expect(page.get_by_role("heading", name="Health")).to_be_visible()
        expect(page.get_by_role("button", name="Times in")).to_have_count(0)

    def test_a_reservation_is_entered_in_the_zone_of_the_browser_all_the_same(self):
        page = self.open("/locks/staging", timezone_id="Asia/Tokyo")
        page.get_by_role("button", name="Times in GMT+9").click()
        page.get_by_role("button", name="Reserve…").click()
        dialog = page.get_by_role("dialog", name="Reserve the lock")
        dialog.get_by_label("Until").fill("2099-12-04T18:00")
        expect(dialog).to_contain_text("Fri 4 Dec, 18:00 GMT+9")


class Past(BrowserCase):
    def test_the_last_events_are_there_at_once_and_none_twice(self):
        first = self.open("/events")
        expect(first.locator(".live.is-live")).to_be_visible()
        for number in range(120):
            self.gateway.acquire(f"lock:{number:03}", ttl_ms=600_000)
        expect(first.get_by_text("120 events")).to_be_visible()
        page = self.open("/events")
        expect(page.get_by_text("120 events")).to_be_visible()
        self.gateway.acquire("later", ttl_ms=600_000)
        expect(page.get_by_text("121 events")).to_be_visible()
        expect(page.locator(".grid .body .row").first).to_contain_text("later")
        # They are no news: what they say of locks is old.
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_text("121 locks held")).to_be_visible()

    def test_an_end_of_the_past_ends_nothing(self):
        first = self.open("/events")
        expect(first.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("again", ttl_ms=600_000)
        self.gateway.call("DELETE", "/locks/again", headers={"Lock-Token": lease["token"]})
        self.gateway.acquire("again", owner="second", ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.get_by_role("row").filter(has_text="again")).to_contain_text("second")
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_text("3 events")).to_be_visible()
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="again")).to_contain_text("second")

    def test_what_was_read_is_forgotten_with_the_session(self):
        module = "import(new URL('app.js', document.baseURI)).then(({modules: {'model/feed.js': {events, forgetEvents}}}) => %s)"
        first = self.open("/events")
        expect(first.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("one", ttl_ms=600_000)
        page = self.open()
        until("the past is read", lambda: page.wait_for_timeout(50) or page.evaluate(module % "events().length") == 1)
        self.assertEqual(page.evaluate(module % "(forgetEvents(), events().length)"), 0)


class Open(BrowserCase):
    def test_a_lock_is_opened_by_its_name_whether_it_is_held_or_not(self):
        self.gateway.acquire("deploy:web", ttl_ms=600_000)
        page = self.open("/locks")
        expect(page.get_by_role("row").filter(has_text="deploy:web")).to_have_count(1)
        page.get_by_role("button", name="Open lock…").click()
        dialog = page.get_by_role("dialog", name="Open a lock")
        expect(dialog.get_by_label("Name")).to_be_focused()
        expect(dialog.locator("datalist option")).to_have_count(1)
        dialog.get_by_label("Name").fill("no name")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("A name is 1 to 200")
        dialog.get_by_label("Name").fill("free:one")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="free:one")).to_be_visible()
        expect(dialog).to_have_count(0)
        # From everywhere, by a single key.
        page.keyboard.press("o")
        expect(dialog.get_by_label("Name")).to_be_focused()
        page.keyboard.type("deploy:web")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="deploy:web")).to_be_visible()


class Terminal(BrowserCase):
    def test_the_lines_for_latchgate_stand_beside_those_for_curl(self):
        lease = self.gateway.acquire("deploy:web", ttl_ms=600_000)
        page = self.open("/locks/deploy:web")
        panel = page.get_by_role("region", name="From a terminal")
        expect(panel.locator("code").first).to_contain_text("curl")
        panel.get_by_role("button", name="latchgate", exact=True).click()
        lines = panel.locator("li code")
        fence = lease["fencing_token"]
        expect(lines).to_have_text([
            f"export LATCHGATE_URL='{self.gateway.url}'",
            "latchgate inspect deploy:web", "latchgate history deploy:web", "latchgate acquire deploy:web",
            "latchgate run deploy:web -- sleep infinity", 'latchgate reserve deploy:web --until 18:00 --reason "why"',
            f"latchgate check deploy:web --fence {fence}",
            f'latchgate break deploy:web --reason "why" --fencing-token {fence} --grace 30s',
        ])
        page.reload()
        expect(lines.nth(1)).to_have_text("latchgate inspect deploy:web")

    def test_no_word_is_broken_and_all_can_be_read(self):
        name = "deploy:" + "with-a-long-name-" * 8
        self.gateway.acquire(name, ttl_ms=600_000)
        page = self.open(f"/locks/{name}")
        panel = page.get_by_role("region", name="From a terminal")
        for program in ("curl", "latchgate"):
            panel.get_by_role("button", name=program, exact=True).click()
            for width in (390, 768, 1440):
                page.set_viewport_size({"width": width, "height": 844})
                # A name that is longer than the line goes on below, and nothing else does.
                broken = panel.locator("code span").evaluate_all(
                    "(words) => words.filter((word) => word.innerText.length < 30 && word.offsetHeight > 24).map((word) => word.innerText)"
                )
                self.assertEqual(broken, [], (program, width))
                self.assert_fits(page)


class Odd(BrowserCase):
    KEYS = {"ops": ["--view", "*"]}

    def test_what_is_odd_about_a_key_is_said_before_it_is_sent(self):
        page = self.open()
        field = page.get_by_label("API key")
        key = self.gateway.keys["ops"]
        for text, words in (
            ("ops", "A key begins with lgk_"), ("lg", "2 of 64 characters."), (key[:-1], "63 of 64 characters."), (key + "x", "65 of 64 characters: too many."),
            (f"Bearer {key}", "without “Bearer”"), (f"{key[:20]} {key[20:]}", "There is a space in the key"), (key, ""),
        ):
            field.fill(text)
            expect(page.locator("#key-odd")).to_contain_text(words) if words else expect(page.locator("#key-odd")).to_have_text("")
        page.keyboard.press("Enter")
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
