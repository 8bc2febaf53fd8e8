"""The panel that acquires, waits, renews and releases from the page."""

import re

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until


class Try(BrowserCase):
    def panel(self, page):
        return self.try_it(page)

    def lock(self, name):
        return self.gateway.call("GET", f"/locks/{name}")[1]

    def test_is_folded_until_somebody_wants_it_and_open_where_something_is_held(self):
        page = self.open("/locks/mine")
        panel = page.get_by_role("region", name="Try it")
        acquire = panel.get_by_role("button", name="Acquire")
        expect(panel).to_be_visible()
        expect(acquire).to_be_hidden()
        panel.get_by_text("Try it").click()
        acquire.click()
        expect(panel.get_by_role("button", name="Release")).to_be_visible()
        page.get_by_role("link", name="Events", exact=True).click()
        page.go_back()
        panel.get_by_role("button", name="Release").click()
        expect(panel).to_contain_text("DELETE /locks/mine")
        expect(acquire).to_be_visible()

    def test_acquires_renews_and_releases(self):
        page = self.open("/locks/mine")
        panel = self.panel(page)
        panel.get_by_label("TTL").fill("60")
        panel.get_by_label("Owner").fill("me, from the page")
        panel.get_by_label("Metadata").fill("why=a test\nticket = 42")
        panel.get_by_role("button", name="Acquire").click()
        expect(page.get_by_role("region", name="Holder")).to_contain_text("me, from the page")
        holder = self.lock("mine")["holders"][0]
        self.assertEqual(holder["metadata"], {"why": "a test", "ticket": "42"})
        self.assertEqual(holder["ttl_ms"], 60_000)
        # The token is nowhere to be seen, nor is it kept where others might read it.
        self.assertNotRegex(page.content(), r"[A-Za-z0-9_-]{43}")
        self.assertEqual(page.evaluate("Object.keys({...localStorage, ...sessionStorage})"), [])
        panel.get_by_role("button", name="Renew").click()
        expect(panel).to_contain_text("PUT /locks/mine/renew")
        # What is held stays held while another page is looked at.
        page.get_by_role("link", name="Events", exact=True).click()
        page.get_by_label("renewals").check()
        expect(page.get_by_role("row").filter(has_text="renewed")).to_have_count(1)
        page.go_back()
        panel.get_by_role("button", name="Release").click()
        expect(page.get_by_text("Nobody holds the lock.")).to_be_visible()
        self.assertEqual(self.lock("mine")["state"], "free")

    def test_waits_and_gives_up(self):
        # Whether the lock was granted meanwhile is asked.
        self.forgive("status of 423")
        self.gateway.acquire("taken", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/taken")
        panel = self.panel(page)
        panel.get_by_label("Wait").fill("50")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel).to_contain_text("Waiting for")
        expect(page.get_by_role("region", name="Queue")).to_contain_text("next")
        panel.get_by_role("button", name="Give up").click()
        until("the queue is left", lambda: self.lock("taken")["waiter_count"] == 0)
        expect(page.get_by_text("Nobody waits.")).to_be_visible()

    def test_is_told_that_the_lock_is_held(self):
        self.forgive("status of 423")
        self.gateway.acquire("taken", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/taken")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("alert")).to_contain_text("The lock is held")

    def test_a_refused_field_is_named(self):
        self.forgive("status of 400")
        page = self.open("/locks/mine")
        panel = self.panel(page)
        panel.get_by_label("Metadata").fill("\n".join(f"k{n}=v" for n in range(17)))
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("alert")).to_contain_text("metadata")

    def test_metadata_that_is_none_is_told_across_the_panel(self):
        page = self.open("/locks/mine", viewport={"width": 390, "height": 844})
        panel = self.panel(page)
        panel.get_by_label("Metadata").fill("no name")
        panel.get_by_role("button", name="Acquire").click()
        told = panel.get_by_role("alert")
        expect(told).to_have_text("Each line of the metadata is name=value.")
        self.assertEqual(told.bounding_box()["width"], panel.get_by_label("Metadata").bounding_box()["width"])
        self.assert_fits(page)

    def test_a_lease_that_is_broken_is_over_here_too(self):
        page = self.open("/locks/mine")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        self.gateway.call("POST", "/locks/mine/break", {"reason": "mine now"})
        expect(self.panel(page)).to_contain_text("The lease was broken: mine now")

    def test_gives_back_what_is_held_when_the_page_is_closed(self):
        page = self.open("/locks/kept")
        self.panel(page).get_by_label("TTL").fill("3600")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        page.close()
        until("it is given back", lambda: self.lock("kept")["state"] == "free")

    def test_gives_back_what_is_held_when_the_page_is_left_and_kept_by_the_browser(self):
        page = self.open("/locks/kept")
        self.panel(page).get_by_label("TTL").fill("3600")
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
        until("it is given back", lambda: page.wait_for_timeout(50) or self.lock("kept")["state"] == "free")
        expect(self.panel(page)).to_contain_text("The page was left.")

    def test_gives_up_its_place_when_the_page_is_left_and_takes_nothing_with_it(self):
        lease = self.gateway.acquire("kept", ttl_ms=600_000)
        page = self.open("/locks/kept")
        self.panel(page).get_by_label("TTL").fill("3600")
        self.panel(page).get_by_label("Wait").fill("50")
        self.panel(page).get_by_role("button", name="Acquire").click()
        until("it waits", lambda: page.wait_for_timeout(50) or self.lock("kept")["waiter_count"] == 1)
        page.goto("about:blank")
        # Asked under an Idempotency-Key, a place is kept for a moment for whoever asks again.
        until("the queue is left", lambda: self.lock("kept")["waiter_count"] == 0)
        self.gateway.call("DELETE", "/locks/kept", headers={"Lock-Token": lease["token"]})
        self.assertEqual(self.lock("kept")["state"], "free")

    def test_gives_everything_back_when_another_address_is_gone_to(self):
        page = self.open("/locks/one")
        for name in ("one", "two"):
            page.evaluate(f"history.pushState(null, '', 'locks/{name}'); dispatchEvent(new PopStateEvent('popstate'))")
            expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
            self.panel(page).get_by_label("TTL").fill("3600")
            self.panel(page).get_by_role("button", name="Acquire").click()
            expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        page.goto("about:blank")
        for name in ("one", "two"):
            until("it is given back", lambda name=name: self.lock(name)["state"] == "free")

    def hold_briefly(self, page, seconds):
        self.panel(page).get_by_label("TTL").fill(str(seconds))
        self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()

    # Its time passes without the page having been able to notice.
    PASSES = "const until = performance.now() + 4_100; while (performance.now() < until);"

    def test_a_lease_is_over_when_its_time_is(self):
        # What may still be left is given back, as far as the page knows.
        self.forgive("status of 410")
        page = self.open("/locks/brief")
        self.hold_briefly(page, 2)
        expect(self.panel(page)).to_contain_text("The lease has expired.")
        for button in ("Release", "Renew"):
            # The page counts on it for less time than it lasts.
            until("it has ended", lambda: page.wait_for_timeout(50) or self.lock("brief")["state"] == "free")
            self.hold_briefly(page, 4)
            found = f"[...document.querySelectorAll('button')].find((it) => it.textContent === '{button}')"
            page.evaluate(f"() => {{ {self.PASSES} {found}.click(); }}")
            expect(self.panel(page)).to_contain_text("The lease has expired.")

    def test_a_lease_that_somebody_has_ended_unheard_is_over_at_the_next_look(self):
        context = self.context()
        # No word of it comes.
        context.route(re.compile(r"(?<!dashboard)/events(\?|$)"), lambda route: route.fulfill(body="", headers={"Content-Type": "text/event-stream"}))
        page = self.open("/locks/mine", context=context)
        self.hold_briefly(page, 3_600)
        self.gateway.call("POST", "/locks/mine/break", {"reason": "mine now"})
        expect(self.panel(page)).to_contain_text("Nobody holds the lock any more.", timeout=30_000)

    def test_a_lease_of_which_no_renewal_is_answered_is_given_back_when_its_time_is_over(self):
        # A slow page may be overtaken by the end.
        self.forgive(r"net::ERR_FAILED", "status of 410")
        page = self.open("/locks/brief")

        def cut(route):
            route.fetch()
            route.abort()

        page.route("**/renew", cut)
        self.hold_briefly(page, 8)
        # By this much it lasts longer than the page knows.
        page.wait_for_timeout(4_000)
        self.panel(page).get_by_role("button", name="Renew").click()
        expect(self.panel(page)).to_contain_text("The lease has expired.", timeout=30_000)
        until("it is given back", lambda: page.wait_for_timeout(50) or self.lock("brief")["state"] == "free")

    def test_renews_by_itself_while_another_page_is_looked_at(self):
        page = self.open("/locks/kept")
        panel = self.panel(page)
        panel.get_by_label("TTL").fill("4")
        panel.get_by_role("button", name="Acquire").click()
        panel.get_by_label("Renew automatically").check()
        fence = self.lock("kept")["holders"][0]["fencing_token"]
        page.get_by_role("link", name="Events", exact=True).click()
        page.get_by_label("renewals").check()
        expect(page.get_by_role("row").filter(has_text="renewed").nth(3)).to_be_visible()
        self.assertEqual(self.lock("kept")["holders"][0]["fencing_token"], fence)

    def test_a_lease_that_was_waited_for_longer_than_it_lasts_is_held_and_given_back(self):
        self.gateway.acquire("late", ttl_ms=9_000)
        page = self.open("/locks/late")
        panel = self.panel(page)
        panel.get_by_label("TTL").fill("6")
        panel.get_by_label("Wait").fill("50")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("button", name="Release")).to_be_visible()
        expect(panel.locator(".left")).to_contain_text(re.compile(r"[2-6]s"))
        panel.get_by_role("button", name="Release").click()
        expect(panel).to_contain_text("DELETE /locks/late")
        self.assertEqual(self.lock("late")["state"], "free")

    def test_an_acquire_whose_answer_is_lost_is_asked_for_again(self):
        self.forgive(r"net::ERR_FAILED")
        page = self.open("/locks/lost")
        keys = []

        def cut(route):
            if route.request.method == "POST":
                keys.append(route.request.headers.get("idempotency-key"))
                if len(keys) == 1:
                    route.fetch()
                    return route.abort()
            route.continue_()

        page.route(re.compile(r"(?<!dashboard)/locks/lost$"), cut)
        self.hold_briefly(page, 3_600)
        self.assertEqual((len(keys), len(set(keys))), (2, 1))
        self.panel(page).get_by_role("button", name="Release").click()
        until("it is given back", lambda: self.lock("lost")["state"] == "free")

    def test_what_is_unticked_during_a_renewal_stays_unticked(self):
        page = self.open("/locks/kept")
        panel = self.panel(page)
        slow = []
        page.route("**/renew", lambda route: slow.append(route))
        panel.get_by_label("TTL").fill("9")
        panel.get_by_role("button", name="Acquire").click()
        panel.get_by_label("Renew automatically").check()
        until("it is renewed", lambda: page.wait_for_timeout(50) or slow)
        panel.get_by_label("Renew automatically").uncheck()
        slow[0].continue_()
        expect(panel).to_contain_text("PUT /locks/kept/renew")
        expect(panel.get_by_label("Renew automatically")).not_to_be_checked()

    def test_what_could_not_be_given_back_is_told(self):
        self.forgive(r"net::ERR_FAILED")
        page = self.open("/locks/kept")
        panel = self.panel(page)
        page.route("**/locks/kept", lambda route: route.abort() if route.request.method == "DELETE" else route.continue_())
        panel.get_by_label("TTL").fill("60")
        panel.get_by_role("button", name="Acquire").click()
        panel.get_by_label("Renew automatically").check()
        panel.get_by_role("button", name="Release").click()
        expect(panel).to_contain_text("The lease could not be released", timeout=60_000)
        expect(panel.get_by_role("alert")).to_be_visible()

    def test_a_lease_that_somebody_else_gave_back_is_over_here_too(self):
        page = self.open("/locks/mine")
        with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
            self.panel(page).get_by_role("button", name="Acquire").click()
        expect(self.panel(page).get_by_role("button", name="Release")).to_be_visible()
        self.gateway.call("POST", "/locks/mine/release", {"token": answered.value.json()["token"]})
        expect(self.panel(page)).to_contain_text("The lease was released.")
