"""Signing in and out, and what a key may not do."""

from urllib.parse import urlparse

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import until


class Session(BrowserCase):
    KEYS = {
        "ops": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"],
        "reader": ["--view", "*"],
        "team": ["--acquire", "team:", "--view", "team:", "--view", "shared:", "--break", "team:"],
        "figures": ["--metrics"],
        "blind": ["--acquire", "*"],
        "changing": ["--acquire", "*", "--view", "*", "--break", "*", "--metrics"],
    }

    def test_a_wrong_key_is_told_why(self):
        self.forgive("status of 401")
        page = self.open()
        field = page.get_by_label("API key")
        expect(field).to_be_focused()
        for wrong in ("lgk_wrong", "no key", self.gateway.keys["ops"][:-1]):
            _, refusal = self.gateway.call("POST", "/session", {"key": wrong}, headers={"Origin": self.gateway.url})
            field.fill(wrong)
            page.keyboard.press("Enter")
            expect(page.get_by_role("alert")).to_have_text(f"The gateway refuses this key. {refusal['detail']}")
            expect(field).to_be_focused()
        self.sign_in(page, "ops")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    def test_signing_out_forgets_everything(self):
        page = self.open("/locks")
        self.sign_in(page, "ops")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.acquire("secret-name", ttl_ms=600_000)
        expect(page.get_by_role("row").filter(has_text="secret-name")).to_have_count(1)
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        self.assertNotIn("secret-name", page.content())
        # Nor does whoever comes next see what was heard before.
        self.sign_in(page, "team")
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_text("Nothing that your key may see has happened yet")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    def test_a_revoked_key_is_signed_out_at_once(self):
        self.forgive("status of 401")
        page = self.open("/locks")
        self.sign_in(page, "reader")
        expect(page.locator(".live.is-live")).to_be_visible()
        self.gateway.revoke("reader")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.get_by_text("Your session is over")).to_be_visible()

    def test_a_key_without_break_is_not_offered_it(self):
        self.gateway.acquire("deploy", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks/deploy")
        self.sign_in(page, "reader")
        expect(page.get_by_role("region", name="Holder")).to_contain_text("somebody")
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)
        expect(page.get_by_role("region", name="Try it")).to_have_count(0)
        expect(page.get_by_text("break it")).to_have_count(0)
        expect(page.get_by_text("acquire it")).to_have_count(0)
        expect(page.get_by_text("inspect it")).to_be_visible()
        # And the gateway refuses it anyway.
        refused = page.evaluate(
            "fetch(new URL('../locks/deploy/break', document.baseURI), {method: 'POST',"
            " headers: {'Content-Type': 'application/json', 'X-Requested-With': 'latchgate'},"
            " body: '{\"reason\": \"no\"}'}).then((answer) => answer.status)"
        )
        self.forgive("status of 403")
        self.assertEqual(refused, 403)

    def test_a_key_of_some_prefixes_sees_these(self):
        for name in ("team:a", "shared:b", "other:c"):
            self.gateway.acquire(name, key="ops", ttl_ms=600_000)
        page = self.open("/locks")
        self.sign_in(page, "team")
        expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
        expect(page.get_by_role("row").filter(has_text="shared:b")).to_have_count(1)
        self.assertNotIn("other:c", page.content())
        page.goto(f"{self.gateway.url}/dashboard/locks/shared:b")
        expect(page.get_by_role("region", name="Holder")).to_be_visible()
        expect(page.get_by_role("button", name="Break…")).to_have_count(0)
        page.goto(f"{self.gateway.url}/dashboard/locks/team:a")
        expect(page.get_by_role("button", name="Break…")).to_be_visible()
        page.goto(f"{self.gateway.url}/dashboard")
        expect(page.get_by_text("Your key may not read the figures")).to_be_visible()

    def test_a_lock_that_the_key_may_not_see_is_told_as_such(self):
        self.forgive("status of 403")
        page = self.open("/locks/other:c")
        asked = []
        page.on("request", lambda request: asked.append(urlparse(request.url).path))
        self.sign_in(page, "team")
        expect(page.get_by_role("alert")).to_contain_text("may not")
        expect(page.locator(".live.is-live")).to_be_visible()
        # Long enough for what the answer, the stream or a look after it would ask.
        page.wait_for_timeout(2_500)
        self.assertEqual(asked.count("/locks/other:c"), 1)
        # It was known before: nothing is to be learned of who is signed in.
        self.assertEqual(asked.count("/session"), 1)

    def test_a_key_that_sees_nothing_is_told_so(self):
        page = self.open("/locks")
        self.sign_in(page, "blind")
        expect(page.get_by_text("Your key may not see any lock")).to_be_visible()
        page.get_by_role("link", name="Events", exact=True).click()
        expect(page.get_by_text("Your key may not see any lock")).to_be_visible()

    def test_a_key_that_may_acquire_and_not_see_has_the_panel_and_is_told_what_is_not_shown(self):
        self.forgive("status of 4(03|23)")
        self.gateway.acquire("taken", key="ops", owner="somebody", ttl_ms=600_000)
        page = self.open("/locks")
        self.sign_in(page, "blind")
        expect(page.locator(".live")).to_have_text("No events")
        field = page.get_by_label("You may acquire one by its name")
        field.fill("not a name")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("A name is 1 to 200")
        field.fill("mine")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1, name="mine")).to_be_visible()
        remark = page.get_by_text("You may acquire this lock, and not see it")
        expect(remark).to_be_visible()
        # A text for screen readers alone counts as visible, and is one pixel wide.
        self.assertGreater(remark.locator("xpath=..").bounding_box()["width"], 100)
        panel = page.get_by_role("region", name="Try it")
        panel.get_by_label("TTL").fill("60")
        panel.get_by_role("button", name="Acquire").click()
        panel.get_by_role("button", name="Renew").click()
        expect(panel).to_contain_text("PUT /locks/mine/renew")
        self.assertEqual(self.lock("mine")["state"], "held")
        panel.get_by_role("button", name="Release").click()
        expect(panel).to_contain_text("DELETE /locks/mine")
        self.assertEqual(self.lock("mine")["state"], "free")
        page.goto(f"{self.gateway.url}/dashboard/locks/taken")
        panel.get_by_label("Wait").fill("50")
        panel.get_by_role("button", name="Acquire").click()
        until("it waits", lambda: page.wait_for_timeout(50) or self.lock("taken")["waiter_count"] == 1)
        panel.get_by_role("button", name="Give up").click()
        until("the queue is left", lambda: page.wait_for_timeout(50) or self.lock("taken")["waiter_count"] == 0)
        self.assertNotIn("somebody", page.content())
        expect(page.get_by_text("Paused")).to_have_count(0)
        for what in ("break it", "inspect it"):
            expect(page.get_by_text(what)).to_have_count(0)

    def test_what_a_key_may_not_see_or_do_any_more_goes_at_once(self):
        for name in ("team:a", "other:c"):
            self.gateway.acquire(name, key="ops", owner=f"owner of {name}", ttl_ms=600_000)
        waiter = self.gateway.wait_for("other:c", "waits")
        page = self.open("/events")
        self.sign_in(page, "changing")
        expect(page.locator(".live.is-live")).to_be_visible()
        lease = self.gateway.acquire("other:heard", key="ops", ttl_ms=600_000)
        heard = page.get_by_role("row").filter(has_text="other:heard")
        expect(heard).to_have_count(1)
        page.get_by_role("link", name="Locks", exact=True).first.click()
        row = page.get_by_role("row").filter(has_text="other:c")
        expect(row).to_have_count(1)
        row.get_by_role("link").click()
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        # Quicker than anything that is asked again and again.
        soon = 3_000
        self.gateway.permit("changing", break_=["team:"])
        expect(dialog).to_have_count(0, timeout=soon)
        expect(page.get_by_role("button", name="Break…")).to_have_count(0, timeout=soon)
        expect(page.get_by_text("break it")).to_have_count(0)
        expect(page.get_by_role("region", name="Holder")).to_contain_text("owner of other:c")
        self.gateway.permit("changing", acquire=["team:"])
        expect(page.get_by_role("region", name="Try it")).to_have_count(0, timeout=soon)
        self.forgive("status of 403")
        self.gateway.permit("changing", view=["team:"])
        expect(page.get_by_text("owner of other:c")).to_have_count(0, timeout=soon)
        expect(page.get_by_role("alert")).to_contain_text("may not")
        page.go_back()
        expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
        expect(row).to_have_count(0)
        page.go_back()
        expect(page.get_by_role("heading", name="Events")).to_be_visible()
        self.assertNotIn("other:", page.content())
        page.get_by_role("link", name="Overview", exact=True).click()
        expect(page.get_by_role("heading", name="Health")).to_be_visible()
        self.assertNotIn("other:", page.content())
        self.gateway.permit("changing", metrics=False)
        expect(page.get_by_text("Your key may not read the figures")).to_be_visible(timeout=soon)
        expect(page.get_by_role("heading", name="Health")).to_have_count(0)
        # And what may be seen again comes again.
        self.gateway.permit("changing", view=["*"])
        page.get_by_role("link", name="Locks", exact=True).first.click()
        expect(row).to_have_count(1)
        self.gateway.call("DELETE", "/locks/other:heard", headers={"Lock-Token": lease["token"]})
        self.assertIsNone(waiter.lease)

    def test_a_lease_of_this_page_goes_back_when_its_key_may_not_acquire_any_more(self):
        page = self.open("/locks/mine")
        self.sign_in(page, "changing")
        panel = self.try_it(page)
        panel.get_by_label("TTL").fill("3600")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("button", name="Release")).to_be_visible()
        self.gateway.permit("changing", acquire=["team:"])
        expect(panel).to_have_count(0, timeout=3_000)
        until("it is given back", lambda: page.wait_for_timeout(50) or self.lock("mine")["state"] == "free")

    def test_a_key_that_hears_of_nothing_is_looked_at_again_and_again(self):
        self.forgive("status of 403")
        page = self.open("/locks/mine")
        self.sign_in(page, "blind")
        panel = page.get_by_role("region", name="Try it")
        expect(panel).to_be_visible()
        self.gateway.permit("blind", acquire=["team:"])
        expect(panel).to_have_count(0, timeout=9_000)

    def lock(self, name):
        return self.gateway.call("GET", f"/locks/{name}", key="ops")[1]

    def test_signing_out_gives_back_what_the_page_holds_and_leaves_the_queue(self):
        self.gateway.acquire("taken", key="ops", ttl_ms=600_000)
        page = self.open("/locks/mine")
        self.sign_in(page, "ops")
        panel = self.try_it(page)
        panel.get_by_label("TTL").fill("3600")
        panel.get_by_role("button", name="Acquire").click()
        expect(panel.get_by_role("button", name="Release")).to_be_visible()
        page.get_by_role("link", name="Locks", exact=True).first.click()
        page.get_by_role("row").filter(has_text="taken").locator(".of-owner").click()
        expect(page.get_by_role("heading", name="taken")).to_be_visible()
        self.try_it(page).get_by_label("Wait").fill("50")
        panel.get_by_role("button", name="Acquire").click()
        until("it waits", lambda: page.wait_for_timeout(50) or self.lock("taken")["waiter_count"] == 1)
        # What it asks for at this moment it may be refused.
        self.forgive("status of 401")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        until("it is given back", lambda: self.lock("mine")["state"] == "free")
        until("the queue is left", lambda: self.lock("taken")["waiter_count"] == 0)

    def test_who_signs_in_with_another_key_in_another_tab_is_somebody_else_here_too(self):
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        self.gateway.acquire("team:a", key="ops", ttl_ms=600_000)
        context = self.context()
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        expect(page.get_by_role("row").filter(has_text="other:c")).to_have_count(1)
        other = self.open("/locks", context=context)
        # What the page asks for in the meantime it asks for as nobody, or as somebody who may not.
        self.forgive(r"status of 40[13] ")
        other.get_by_role("button", name="Sign out").click()
        self.sign_in(other, "team")
        # At once, and not when a request is refused.
        expect(page.get_by_role("row").filter(has_text="other:c")).to_have_count(0, timeout=3_000)
        expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1)
        expect(page.get_by_role("banner")).to_contain_text("team")

    def test_a_tab_says_that_another_one_has_signed_out(self):
        self.gateway.acquire("secret-name", key="ops", ttl_ms=600_000)
        # A request may be under way.
        self.forgive("status of 401")
        context = self.context()
        page = self.open("/locks", context=context)
        self.sign_in(page, "ops")
        expect(page.get_by_role("row").filter(has_text="secret-name")).to_have_count(1)
        other = self.open("/locks", context=context)
        other.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=3_000)
        expect(page.get_by_text("Signed out in another tab.")).to_be_visible()
        self.assertNotIn("secret-name", page.content())
        # Who has done it knows.
        expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(other.locator(".why")).to_have_count(0)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_load_state("networkidle")
        expect(page.get_by_text("Signed out in another tab.")).to_be_visible()

    # A browser in which no tab hears of another: the race that word of it may lose.
    DEAF = "window.BroadcastChannel = class { postMessage() {} close() {} };"

    def shows_who_it_is(self, page, name):
        # It may have asked while nobody was signed in. Then it shows the form, and asks again when it is looked at.
        expect(page.get_by_role("banner").or_(page.get_by_role("heading", name="Sign in"))).to_be_visible()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_role("banner")).to_contain_text(name)

    def test_nothing_is_broken_as_somebody_else_who_has_signed_in_meanwhile(self):
        self.gateway.acquire("team:a", key="ops", owner="somebody", ttl_ms=600_000)
        self.forgive("status of 40[13] ")
        context = self.context()
        context.add_init_script(self.DEAF)
        page = self.open("/locks/team:a", context=context)
        self.sign_in(page, "ops")
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Reason").fill("as ops")
        self.ask_nobody(page)
        held = []
        page.route("**/break", lambda route: held.append(route))
        dialog.get_by_role("button", name="Break it now").click()
        until("the break is sent", lambda: page.wait_for_timeout(20) or held)
        other = self.open("/events", context=context)
        other.get_by_role("button", name="Sign out").click()
        # May break it too: it is not the permission that saves the holder.
        self.sign_in(other, "team")
        [cookie] = [cookie for cookie in context.cookies() if cookie["name"] == "latchgate-session"]
        # As the browser would have sent it a moment later.
        held[0].continue_(headers={**held[0].request.all_headers(), "cookie": f"{cookie['name']}={cookie['value']}"})
        self.shows_who_it_is(page, "team")
        self.assertEqual(self.lock("team:a")["holders"][0]["owner"], "somebody")

    def test_nothing_that_is_shown_is_of_one_who_has_signed_in_meanwhile(self):
        self.gateway.acquire("other:c", key="ops", ttl_ms=600_000)
        self.forgive("status of 40[13] ")
        context = self.context()
        context.add_init_script(self.DEAF)
        page = self.open("/locks", context=context)
        self.sign_in(page, "team")
        expect(page.get_by_role("banner")).to_contain_text("team")
        expect(page.get_by_text("No lock that your key may see is held")).to_be_visible()
        other = self.open("/events", context=context)
        other.get_by_role("button", name="Sign out").click()
        self.sign_in(other, "ops")
        # Asked as team, whatever the cookie says by now.
        answer = page.evaluate("import(new URL('app.js', document.baseURI)).then(({modules: {'model/api.js': {ask}}}) => ask('locks'))"
                               ".then(() => 200, (problem) => problem.status)")
        self.assertEqual(answer, 401)
        self.shows_who_it_is(page, "ops")

    def test_a_tab_that_shows_the_sign_in_form_goes_on_when_another_tab_has_signed_in(self):
        self.gateway.acquire("team:a", key="ops", ttl_ms=600_000)
        context = self.context()
        page = self.open("/locks", context=context)
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_label("API key").fill("half a key")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_load_state("networkidle")
        expect(page.get_by_label("API key")).to_have_value("half a key")
        other = self.open("/locks", context=context)
        self.sign_in(other, "team")
        expect(page.get_by_role("row").filter(has_text="team:a")).to_have_count(1, timeout=5_000)

    def test_a_key_that_reads_figures_only_sees_how_much_this_gateway_has(self):
        self.gateway.acquire("one", key="ops", ttl_ms=600_000)
        page = self.open()
        self.sign_in(page, "figures")
        tiles = page.get_by_role("region", name="Through gateway").get_by_role("listitem")
        expect(tiles.filter(has_text="Leases").first).to_contain_text("1")
        expect(tiles.filter(has_text="Waiters").first).to_contain_text("0")
