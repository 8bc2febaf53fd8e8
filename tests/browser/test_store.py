"""The store goes away while the gateway stays."""

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import Gateway, until
from redis_server import Redis


class Store(BrowserCase):
    def new_gateway(self):
        self.redis = Redis()
        self.addCleanup(self.redis.end)
        return Gateway(store=self.redis.url)

    def test_a_store_that_does_not_answer_is_told_and_comes_back(self):
        self.forgive("status of 50[34]", r"net::ERR_")
        self.gateway.acquire("kept", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/kept")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("somebody")
        self.redis.freeze()
        # Told as what it is, beside what was known before. The history may say so, too.
        expect(page.get_by_role("alert").first).to_contain_text("store")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("somebody")
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.get_by_role("region", name="Health")).to_contain_text("outage")
        self.redis.thaw()
        expect(page.get_by_role("region", name="Health")).not_to_contain_text("outage")
        page.get_by_role("link", name="Locks", exact=True).click()
        expect(page.get_by_role("row").filter(has_text="kept")).to_have_count(1)
        expect(page.get_by_role("alert")).to_have_count(0)
        self.gateway.acquire("again", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="again")).to_have_count(1)

    def test_nothing_is_called_live_while_the_store_stands_still(self):
        # Nor does it take a request that fails, or the figures, to be seen.
        self.forgive("status of 50[34]", r"net::ERR_FAILED")
        self.gateway.acquire("kept", ttl_ms=9_000)
        context = self.context()
        context.route("**/stats", lambda route: route.abort())
        page = self.open("/locks", context=context)
        expect(page.locator(".live.is-live")).to_be_visible()
        row = page.get_by_role("row").filter(has_text="kept")
        expect(row).to_have_count(1)
        self.redis.freeze()
        # Within half of the time after which the list is read again.
        expect(page.get_by_text("The store has not responded since")).to_be_visible(timeout=7_500)
        expect(page.locator(".live")).to_have_text("Store silent")
        # Nobody knows that it has ended.
        expect(row).to_contain_text("unknown")
        page.wait_for_timeout(8_500)
        expect(row).to_contain_text("unknown")
        self.redis.thaw()
        expect(page.locator(".live")).to_have_text("Live", timeout=30_000)
        expect(page.get_by_text("The store has not responded since")).to_have_count(0)
        expect(row).to_have_count(0)

    def test_on_a_phone_no_full_stop_begins_a_line(self):
        self.forgive("status of 50[34]", r"net::ERR_")
        page = self.open("/locks", viewport={"width": 390, "height": 844})
        expect(page.locator(".live.is-live")).to_be_visible()
        self.redis.freeze()
        said = page.locator(".banner .text")
        expect(said).to_be_visible()
        # The line of the last letter of what the gateway says, and that of what stands behind it.
        tops = said.evaluate(
            "(said) => { const top = (node, at) => { const range = new Range(); range.setStart(node, at);"
            " range.setEnd(node, at + 1); return range.getBoundingClientRect().top; };"
            " const words = said.lastChild; const stop = said.nextSibling;"
            " return [stop.data, top(words, words.length - 1), top(stop, 0)]; }"
        )
        self.assertEqual(tops[0], ".")
        self.assertAlmostEqual(tops[1], tops[2], delta=3)
        self.assert_fits(page)

    def test_a_lock_of_a_foreign_client_is_shown_as_such(self):
        page = self.open("/locks")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.redis.command("SET", "lg:{foreign}:lock", "theirs", "PX", "600000")
        self.redis.command("SET", "lg:{for-ever}:lock", "theirs")
        row = page.get_by_role("row").filter(has_text="foreign")
        # Nobody tells of it: it comes with the next look at everything.
        expect(row.first).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="for-ever")).to_contain_text("no expiry")
        page.get_by_role("row").filter(has_text="for-ever").get_by_role("link").click()
        expect(page.get_by_text("Taken in the store itself")).to_be_visible()
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("has no fencing token")
        dialog.get_by_label("Reason").fill("left behind")
        dialog.get_by_role("button", name="Break it now").click()
        expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()

    def test_a_break_of_a_foreign_client_never_hits_the_next_one(self):
        # The page has not heard of the next one: foreign clients publish nothing.
        self.forgive("status of 409")
        self.redis.command("SET", "lg:{foreign}:lock", "theirs")
        page = self.open("/locks/foreign")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        # SHA-1 of what it has written.
        expect(dialog).to_contain_text("d16d74303205")
        dialog.get_by_label("Reason").fill("left behind")
        held = []
        page.route("**/break", lambda route: held.append(route))
        dialog.get_by_role("button", name="Break it now").click()
        until("the break is sent", lambda: page.wait_for_timeout(20) or held)
        self.redis.command("SET", "lg:{foreign}:lock", "others")
        held[0].continue_()
        expect(dialog).to_contain_text("Another caller holds the lock by now")
        self.assertEqual(self.redis.command("GET", "lg:{foreign}:lock"), "others")
        dialog.get_by_role("button", name="Look at the new holder").click()
        page.unroute("**/break")
        dialog.get_by_role("button", name="Break it now").click()
        expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()

    def test_each_gateway_that_has_answered_has_a_line(self):
        other = Gateway(store=self.redis.url)
        self.addCleanup(other.end)
        instances = [self.gateway.call("GET", "/stats")[1]["instance"], other.call("GET", "/stats")[1]["instance"]]
        context = self.context()
        answers = []

        def balance(route):
            answers.append(route.request.url)
            if len(answers) % 2:
                return route.continue_()
            route.fulfill(response=route.fetch(url=f"{other.url}/stats"))

        context.route("**/stats", balance)
        page = self.open(context=context)
        lines = page.get_by_role("region", name="Gateways").get_by_role("row")
        for instance in instances:
            expect(lines.filter(has_text=instance[:8])).to_contain_text("all passing")
        expect(lines).to_have_count(3)
