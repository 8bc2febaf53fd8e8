"""People reserve a lock until a time: a dialog that asks for it, what is shown of it, and its end."""

import datetime
import json
import re

from playwright.sync_api import expect

from browser import BrowserCase
from gateway import lock, until

SESSION = re.compile(r"^http://[^/]+/session$")
LIST = re.compile(r"^http://[^/]+/locks\?")
LOCK = re.compile(r"^http://[^/]+/locks/staging$")
BREAK = re.compile(r"^http://[^/]+/locks/staging/break$")

# The page counts the time that is left by `expires_in_ms`, and shows the end in the zone of the browser.
END = "2099-12-04T17:00:00Z"
SENTENCE = "until Fri 4 Dec, 18:00 (in 2d 03h) because demo"
LEFT = ((2 * 24 + 3) * 60 + 20) * 60_000


def reserved(by="alice", reason="demo", **more):
    reservation = {"until": END, "reason": reason, "reserved_by": by}
    return {
        "owner": None, "metadata": {}, "fencing_token": 7, "mode": "exclusive", "slot": None, "ttl_ms": 86_400_000,
        "expires_in_ms": LEFT, "expires_at": END, "acquired_at": "2099-12-01T12:00:00.000Z", "hold_expires_in_ms": None,
        "foreign": False, "foreign_mark": None, "group": None, "reservation": reservation, **more,
    }


def held(owner="ci-7"):
    holder = {**reserved(owner=owner, fencing_token=5, ttl_ms=600_000, expires_in_ms=500_000)}
    del holder["reservation"]
    return holder


class Faked(BrowserCase):
    """The lock `staging` as the tests say, for a user with the key `alice` or without a key."""

    def faked(self, holders=(), by="alice", without=(), answers=(), ends=None, **options):
        context = self.context(timezone_id="Europe/Berlin", **options)
        self.holders = list(holders)
        self.acquires, self.keys, self.breaks, self.unanswered = [], [], [], []
        self.addCleanup(lambda: [route.abort() for route in self.unanswered])
        answers = list(answers)
        permissions = {name: [] if name in without else ["*"] for name in ("acquire", "view", "break", "check", "reserve")}
        session = {
            "authentication": by is not None, "signed_in": by is not None, "name": by, "max_ttl_ms": None,
            "permissions": {**permissions, "metrics": True}, "expires_in_ms": None, "expires_at": None,
        }

        def shape():
            return {"name": "staging", "holders": self.holders, "holder_count": len(self.holders), "waiter_count": 0}

        def one(route):
            if route.request.method == "GET":
                return route.fulfill(json={**shape(), "state": "held" if self.holders else "free", "waiters": []})
            if route.request.method == "DELETE":
                self.holders = []
                return route.fulfill(status=204)
            self.acquires.append(json.loads(route.request.post_data))
            self.keys.append(route.request.headers.get("idempotency-key"))
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if answer == 201:
                self.holders = [reserved(by)]
                lease = {**reserved(by), "name": "staging", "token": "x" * 43, "waited_ms": 0}
                return route.fulfill(status=201, json=lease)
            if answer is None:
                # The page ends this request itself.
                return self.unanswered.append(route)
            if answer == "lost":
                return route.abort()
            return route.fulfill(status=answer["status"], json=answer)

        def ended(route):
            self.breaks.append(json.loads(route.request.post_data))
            if ends:
                return route.fulfill(status=ends["status"], json=ends)
            self.holders = []
            return route.fulfill(json=shape())

        context.route(SESSION, lambda route: route.fulfill(json=session))
        context.route(LIST, lambda route: route.fulfill(json={"locks": [shape()] if self.holders else [], "next_cursor": None}))
        context.route(LOCK, one)
        context.route(BREAK, ended)
        return context

    def ask(self, page, at="2099-12-04T18:00", reason="demo"):
        page.get_by_role("button", name="Reserve…").click()
        dialog = page.get_by_role("dialog", name="Reserve the lock")
        dialog.get_by_label("Until").fill(at)
        dialog.get_by_label("Reason").fill(reason)
        return dialog


def problem(code, status, detail, **more):
    return {"type": f"/problems/{code}", "title": code.capitalize(), "status": status, "detail": detail, "code": code, **more}


HELD = problem("locked", 423, "Another caller holds the lock.", holders=[], holder_count=1, waited_ms=0, waiters=0)


class Shown(Faked):
    def test_on_the_page_of_the_lock(self):
        page = self.open("/locks/staging", context=self.faked([reserved()]))
        panel = page.get_by_role("region", name="Holder")
        expect(panel).to_contain_text(f"Reserved by alice {SENTENCE}")
        expect(page.locator(".title .state")).to_have_text("reserved")
        # A reservation is not renewed: its TTL says nothing. Two thirds of it are left.
        expect(panel).not_to_contain_text("TTL")
        expect(panel.locator(".bar i")).to_have_attribute("style", re.compile(r"scaleX\(0\.66"))
        for width in (360, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)

    def test_without_keys_it_names_nobody(self):
        page = self.open("/locks/staging", context=self.faked([reserved(None, owner="anna")], by=None))
        panel = page.get_by_role("region", name="Holder")
        expect(panel).to_contain_text(f"Reserved {SENTENCE}")
        expect(panel).to_contain_text("Owneranna")

    def test_a_gateway_may_leave_the_name_out(self):
        holder = reserved()
        del holder["reservation"]["reserved_by"]
        page = self.open("/locks/staging", context=self.faked([holder], by=None))
        expect(page.get_by_role("region", name="Holder")).to_contain_text(f"Reserved {SENTENCE}")
        page.goto(f"{self.gateway.url}/dashboard/locks")
        expect(page.locator(".row.reserved .of-owner")).to_contain_text("Reserved until Fri 4 Dec, 18:00 because demo")

    def test_in_the_list(self):
        page = self.open("/locks", context=self.faked([reserved(reason="demo " * 30)]))
        row = page.get_by_role("row").filter(has_text="staging")
        expect(row.locator(".state")).to_have_text("reserved")
        expect(row.locator(".of-owner")).to_have_text(re.compile(r"Reserved by\s*alice until Fri 4 Dec, 18:00 because demo demo"))
        expect(row.locator(".of-left")).to_contain_text("2d 03h")
        expect(row.locator(".bar i")).to_have_attribute("style", re.compile(r"scaleX\(0\.66"))
        expect(row.locator(".reservation")).to_have_attribute("title", re.compile("Reserved by alice until Fri 4 Dec, 18:00 because demo"))
        for width in (360, 390, 768, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assert_fits(page)
            # One line, in which the end of the reservation can be read.
            cell = row.locator(".of-owner").bounding_box()
            self.assertLess(cell["height"], 30, width)
            end = row.locator("time").last.bounding_box()
            self.assertLessEqual(end["x"] + end["width"], cell["x"] + cell["width"] + 1, width)

    def test_foreign_text_stays_text(self):
        page = self.open("/locks/staging", context=self.faked([reserved("eve\u202e", reason="<b>\u200bdemo</b>")]))
        panel = page.get_by_role("region", name="Holder")
        expect(panel).to_contain_text("eveU+202E")
        expect(panel).to_contain_text("because <b>U+200Bdemo</b>")


class Reserving(Faked):
    def test_the_ends_that_are_wanted_most_take_one_press(self):
        # A Wednesday at noon, a Friday at noon, and a Friday night, in Berlin.
        for now, words, chosen in (
            ("2026-12-02T11:00:00Z", ["1 hour", "Today 18:00", "Friday 18:00"], {"1 hour": "2026-12-02T13:00", "Today 18:00": "2026-12-02T18:00", "Friday 18:00": "2026-12-04T18:00"}),
            ("2026-12-04T11:00:00Z", ["1 hour", "Today 18:00"], {"Today 18:00": "2026-12-04T18:00"}),
            ("2026-12-04T20:00:00Z", ["1 hour", "Tomorrow 18:00", "Friday 18:00"], {"Tomorrow 18:00": "2026-12-05T18:00", "Friday 18:00": "2026-12-11T18:00"}),
        ):
            context = self.faked(answers=[201])
            page = context.new_page()
            page.clock.install(time=now)
            page.goto(f"{self.gateway.url}/dashboard/locks/staging")
            page.get_by_role("button", name="Reserve…").click()
            picks = page.get_by_role("dialog").get_by_role("group", name="Quick picks").get_by_role("button")
            expect(picks).to_have_text(words)
            for pick, until in chosen.items():
                picks.filter(has_text=pick).click()
                expect(page.get_by_label("Until", exact=True)).to_have_value(until)
                expect(picks.filter(has_text=pick)).to_have_attribute("aria-pressed", "true")
            context.close()

    def test_asks_until_when_and_why_and_shows_the_result(self):
        page = self.open("/locks/staging", context=self.faked(answers=[201]))
        dialog = self.ask(page)
        expect(dialog).to_contain_text("Fri 4 Dec, 18:00 CET (Europe/Berlin), in ")
        expect(dialog.get_by_label("Your name")).to_have_count(0)
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_text("Reserved until Fri 4 Dec, 18:00.")).to_be_visible()
        expect(page.get_by_role("region", name="Holder")).to_contain_text(f"Reserved by alice {SENTENCE}")
        self.assertEqual(self.acquires, [{"reserve": {"until": END, "reason": "demo"}}])
        # The page keeps no token of it.
        self.assertNotIn("x" * 43, page.content())
        self.assertEqual(page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])").count("x" * 43), 0)

    def test_without_keys_it_asks_for_a_name(self):
        page = self.open("/locks/staging", context=self.faked(by=None, answers=[201]))
        dialog = self.ask(page)
        dialog.get_by_label("Your name").fill("anna")
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(dialog).to_have_count(0)
        self.assertEqual(self.acquires, [{"reserve": {"until": END, "reason": "demo"}, "owner": "anna"}])

    def test_proposes_a_full_hour(self):
        page = self.open("/locks/staging", context=self.faked())
        page.get_by_role("button", name="Reserve…").click()
        expect(page.get_by_role("dialog").get_by_label("Until")).to_have_value(re.compile(r":00$"))
        expect(page.get_by_role("dialog")).to_contain_text(re.compile("in (1h|2h)"))

    def test_works_with_the_keyboard(self):
        page = self.open("/locks/staging", context=self.faked(answers=[201]))
        button = page.get_by_role("button", name="Reserve…")
        button.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Reserve the lock")
        expect(dialog.get_by_label("Until")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(button).to_be_focused()
        page.keyboard.press("Enter")
        dialog.get_by_label("Reason").focus()
        page.keyboard.type("demo")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(button).to_be_focused()
        self.assertEqual(len(self.acquires), 1)

    def test_errors_stand_beside_their_fields(self):
        too_far = problem("invalid-request", 400, "`reserve.until` is too late.",
                          errors=[{"field": "reserve.until", "reason": "is 73 years ahead; allowed are 30 days"}])
        self.forgive("status of 400")
        page = self.open("/locks/staging", context=self.faked(answers=[too_far]))
        dialog = self.ask(page, at="2020-01-01T10:00", reason=" ")
        page.keyboard.press("Enter")
        at, reason = dialog.get_by_label("Until"), dialog.get_by_label("Reason")
        expect(at).to_be_focused()
        expect(at).to_have_accessible_description(re.compile("This time is over."))
        expect(at).to_have_attribute("aria-invalid", "true")
        expect(reason).to_have_accessible_description("Enter a reason.")
        at.fill("")
        page.keyboard.press("Enter")
        expect(at).to_have_accessible_description(re.compile("Enter a date and a time."))
        self.assertEqual(self.acquires, [])
        at.fill("2099-12-04T18:00")
        reason.fill("demo")
        page.keyboard.press("Enter")
        expect(at).to_have_accessible_description(re.compile("The time is 73 years ahead; allowed are 30 days"))
        expect(at).to_be_focused()
        expect(reason).not_to_have_attribute("aria-invalid", "true")
        for width in (360, 390, 1440):
            page.set_viewport_size({"width": width, "height": 844})
            self.assertFalse(dialog.evaluate("(dialog) => dialog.scrollWidth > dialog.clientWidth + 1"), width)

    def test_a_problem_that_concerns_no_field_is_shown_with_its_detail(self):
        cannot = problem("not-supported", 422, "A quorum store reserves no lock.")
        self.forgive("status of 4(03|22)")
        for answer in (cannot, problem("forbidden", 403, "The key may not reserve this lock.")):
            page = self.open("/locks/staging", context=self.faked(answers=[answer]))
            dialog = self.ask(page)
            page.keyboard.press("Enter")
            expect(dialog.get_by_role("alert")).to_contain_text(answer["detail"])

    def test_a_held_lock_is_refused_and_then_waited_for_under_one_key(self):
        self.forgive("status of 423")
        page = self.open("/locks/staging", context=self.faked([held()], answers=[HELD, HELD, 201]))
        dialog = self.ask(page)
        expect(dialog).to_contain_text("Held byci-7")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("Another caller holds the lock.")
        dialog.get_by_label("Wait in the queue").check()
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(dialog).to_contain_text("Waiting for")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("region", name="Holder")).to_contain_text("Reserved by alice")
        self.assertEqual([asked.get("wait_ms") for asked in self.acquires], [None, 25_000, 25_000])
        self.assertEqual(len({*self.keys}), 2)
        self.assertEqual(self.keys[1], self.keys[2])

    def test_a_wait_that_is_given_up_leaves_the_queue(self):
        self.forgive("status of 423", "ERR_FAILED")
        page = self.open("/locks/staging", context=self.faked([held()], answers=[None, HELD]))
        dialog = self.ask(page)
        dialog.get_by_label("Wait in the queue").check()
        dialog.get_by_label("Reason").press("Enter")
        expect(dialog).to_contain_text("Waiting for")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        until("the queue is left", lambda: page.wait_for_timeout(20) or len(self.acquires) == 2)
        self.assertEqual([asked.get("wait_ms") for asked in self.acquires], [25_000, None])
        self.assertEqual(self.keys[0], self.keys[1])

    def test_a_lock_that_is_granted_while_the_wait_is_given_up_is_released(self):
        self.forgive("ERR_FAILED")
        page = self.open("/locks/staging", context=self.faked([held()], answers=[None, 201]))
        dialog = self.ask(page)
        dialog.get_by_label("Wait in the queue").check()
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        dialog.get_by_role("button", name="Give up").click()
        until("it is released", lambda: page.wait_for_timeout(20) or (len(self.acquires) == 2 and self.holders == []))

    def test_an_answer_that_is_lost_is_asked_for_again_under_the_same_key(self):
        self.forgive("ERR_FAILED")
        page = self.open("/locks/staging", context=self.faked(answers=["lost", 201]))
        dialog = self.ask(page)
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("The lock may be reserved. Asking again is safe")
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(dialog).to_have_count(0)
        self.assertEqual(self.keys[0], self.keys[1])

    def test_is_offered_to_those_alone_who_may(self):
        for without in (["reserve"], ["acquire"]):
            page = self.open("/locks/staging", context=self.faked(without=without))
            expect(page.locator(".title .state")).to_have_text("free")
            expect(page.get_by_role("button", name="Reserve…")).to_have_count(0)
            expect(page.locator(".curl")).not_to_contain_text("reserve it")

    def test_is_not_offered_on_a_quorum(self):
        context = self.faked()
        context.route("**/readyz", lambda route: route.fulfill(json={"status": "ready", "checks": [{"name": "votes", "status": "ok"}]}))
        page = self.open("/locks/staging", context=context)
        expect(page.locator(".title .state")).to_have_text("free")
        expect(page.get_by_role("button", name="Reserve…")).to_have_count(0)

    def test_a_lock_that_may_not_be_seen_can_be_reserved(self):
        page = self.open("/locks/staging", context=self.faked(without=["view"], answers=[201]))
        dialog = self.ask(page)
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        self.assertEqual(len(self.acquires), 1)


class Extending(Faked):
    def test_sends_the_new_time_with_the_fencing_token(self):
        page = self.open("/locks/staging", context=self.faked([reserved()], answers=[201]))
        page.get_by_role("button", name="Extend…").click()
        dialog = page.get_by_role("dialog", name="Extend the reservation")
        expect(dialog.get_by_label("Until")).to_have_value("2099-12-04T19:00")
        expect(dialog.get_by_label("Reason")).to_have_value("demo")
        expect(dialog.get_by_role("checkbox")).to_have_count(0)
        dialog.get_by_role("button", name="Extend", exact=True).click()
        expect(dialog).to_have_count(0)
        self.assertEqual(self.acquires, [{"reserve": {"until": "2099-12-04T18:00:00Z", "reason": "demo"}, "extends": 7}])

    def test_a_refusal_is_shown(self):
        changed = problem("holder-changed", 409, "another lease holds the lock")
        self.forgive("status of 409")
        page = self.open("/locks/staging", context=self.faked([reserved()], answers=[changed]))
        page.get_by_role("button", name="Extend…").click()
        dialog = page.get_by_role("dialog", name="Extend the reservation")
        dialog.get_by_role("button", name="Extend", exact=True).click()
        expect(dialog).to_contain_text("another lease holds the lock")

    def test_is_offered_for_the_own_reservation_alone(self):
        for by, without in (("bob", ()), ("alice", ("reserve",))):
            page = self.open("/locks/staging", context=self.faked([reserved()], by=by, without=without))
            expect(page.get_by_role("region", name="Holder")).to_contain_text("Reserved by alice")
            expect(page.get_by_role("button", name="Extend…")).to_have_count(0)


class Ending(Faked):
    def test_whoever_reserved_it_ends_it_without_the_permission_to_break(self):
        page = self.open("/locks/staging", context=self.faked([reserved()], without=["break"]))
        expect(page.locator(".curl")).to_contain_text("end the reservation")
        page.get_by_role("button", name="End reservation…").click()
        dialog = page.get_by_role("dialog", name="End the reservation")
        expect(dialog.get_by_label("Reason")).to_be_focused()
        # There is a reason already: Enter is enough.
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.locator(".title .state")).to_have_text("free")
        self.assertEqual(self.breaks, [{"reason": "no longer needed", "fencing_token": 7}])

    def test_without_keys_anybody_ends_it(self):
        page = self.open("/locks/staging", context=self.faked([reserved(None)], by=None))
        page.get_by_role("button", name="End reservation…").click()
        dialog = page.get_by_role("dialog", name="End the reservation")
        dialog.get_by_label("Reason").fill("done early")
        dialog.get_by_role("button", name="End the reservation").click()
        expect(dialog).to_have_count(0)
        self.assertEqual(self.breaks, [{"reason": "done early", "fencing_token": 7}])

    def test_somebody_else_breaks_it_if_permitted_at_once_or_later(self):
        page = self.open("/locks/staging", context=self.faked([reserved("bob")]))
        expect(page.get_by_role("button", name="End reservation…")).to_have_count(0)
        page.get_by_role("button", name="Break…").click()
        dialog = page.get_by_role("dialog", name="Break the lock")
        expect(dialog).to_contain_text("Reserved by bob until Fri 4 Dec, 18:00 because demo")
        expect(dialog.get_by_role("radio", name="Break now")).to_be_checked()
        expect(dialog).to_contain_text("No client renews a reservation")
        dialog.get_by_label("Reason").fill("the migration has to run")
        dialog.get_by_role("radio", name="Ask first").check()
        dialog.get_by_label("Request a release").select_option("60000")
        dialog.get_by_role("button", name="Request release").click()
        expect(dialog).to_have_count(0)
        self.assertEqual(self.breaks, [{"reason": "the migration has to run", "fencing_token": 7, "grace_ms": 60_000}])

    def test_somebody_else_without_the_permission_to_break_ends_nothing(self):
        page = self.open("/locks/staging", context=self.faked([reserved("bob")], without=["break"]))
        expect(page.locator(".title .state")).to_have_text("reserved")
        for name in ("End reservation…", "Break…"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)

    def test_a_reservation_that_is_over_meanwhile_is_not_ended(self):
        page = self.open("/locks/staging", context=self.faked([reserved()]))
        page.get_by_role("button", name="End reservation…").click()
        dialog = page.get_by_role("dialog", name="End the reservation")
        self.holders = [held("ci-9")]
        # The page looks anew every ten seconds.
        expect(dialog.get_by_role("alert")).to_have_text("The reservation is over by now: there is nothing to end.")
        self.assertEqual(self.breaks, [])

    def test_a_refusal_is_shown(self):
        self.forgive("status of 403")
        refusal = problem("forbidden", 403, "The key may not break this lock.")
        page = self.open("/locks/staging", context=self.faked([reserved()], ends=refusal))
        page.get_by_role("button", name="End reservation…").click()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The key may not break this lock.")


def tomorrow():
    """A time as the browser's field writes it, in UTC."""
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)).strftime("%Y-%m-%dT%H:00")


class OfTheGateway(BrowserCase):
    """Nothing is faked here."""

    KEYS = {
        "alice": ["--acquire", "*", "--view", "*", "--reserve", "*"],
        "bob": ["--acquire", "*", "--view", "*", "--reserve", "*"],
    }

    def test_is_reserved_and_ended_by_one_key_and_not_by_another(self):
        page = self.open("/locks/staging", timezone_id="UTC")
        self.sign_in(page, "alice")
        page.get_by_role("button", name="Reserve…").click()
        dialog = page.get_by_role("dialog", name="Reserve the lock")
        dialog.get_by_label("Until").fill(tomorrow())
        dialog.get_by_label("Reason").fill("demo")
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("region", name="Holder")).to_contain_text(re.compile("Reserved by alice until .* because demo"))
        other = self.open("/locks/staging")
        self.sign_in(other, "bob")
        expect(other.get_by_role("region", name="Holder")).to_contain_text("Reserved by alice until")
        expect(other.get_by_role("button", name="End reservation…")).to_have_count(0)
        page.get_by_role("button", name="End reservation…").click()
        page.keyboard.press("Enter")
        expect(page.locator(".title .state")).to_have_text("free")
        expect(other.locator(".title .state")).to_have_text("free")

    def test_begins_after_the_holder(self):
        lease = self.gateway.acquire("staging", key="alice", owner="ci-7", ttl_ms=600_000)
        page = self.open("/locks/staging")
        self.sign_in(page, "alice")
        page.get_by_role("button", name="Reserve…").click()
        dialog = page.get_by_role("dialog", name="Reserve the lock")
        dialog.get_by_label("Reason").fill("demo")
        dialog.get_by_label("Wait in the queue").check()
        dialog.get_by_role("button", name="Reserve", exact=True).click()
        expect(page.locator(".queue tbody tr")).to_have_count(1)
        self.gateway.call("DELETE", lock("staging"), headers={"Lock-Token": lease["token"]})
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("region", name="Holder")).to_contain_text("Reserved by alice until")

    def test_a_time_that_is_too_far_ahead_is_refused_beside_its_field(self):
        self.forgive("status of 400")
        page = self.open("/locks/staging")
        self.sign_in(page, "alice")
        page.get_by_role("button", name="Reserve…").click()
        dialog = page.get_by_role("dialog", name="Reserve the lock")
        dialog.get_by_label("Until").fill("2099-12-04T18:00")
        dialog.get_by_label("Reason").fill("demo")
        page.keyboard.press("Enter")
        expect(dialog.get_by_label("Until")).to_have_attribute("aria-invalid", "true")
