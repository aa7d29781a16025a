"""A person at the desk, without a browser: reads pages and presses buttons by their words."""

import re
import uuid
from html.parser import HTMLParser

from samples import MINUTE, TUESDAY_NOON
from stored_messages import key_named, store
from texting.access.keys import ApiKey, Role
from texting.replies.model import Reply

LETTERS = str.maketrans("0123456789", "abcdefghij")
UNDONE = {"approved": "Approval", "refused": "Refusal", "cancelled": "Cancellation"}
PAGES = ("/desk/", "/desk/replies", "/desk/messages", "/desk/do-not-call", "/desk/keys")


class Page(HTMLParser):
    """A page's text, links and forms, with the fields that each form would send."""

    def __init__(self, html):
        super().__init__()
        self.forms, self.words, self.links, self.elements = [], [], [], []
        self._button = None
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.elements.append((tag, attrs))
        if tag == "form":
            self.forms.append(attrs | {"inputs": [], "boxes": [], "buttons": []})
        elif tag == "input" and attrs.get("type") == "checkbox":
            self.forms[-1]["boxes"].append((attrs["name"], attrs["value"], "checked" in attrs))
        elif tag == "input" and (attrs.get("type") != "radio" or "checked" in attrs):
            self.forms[-1]["inputs"].append((attrs["name"], attrs.get("value", "")))
        elif tag == "button" and "disabled" not in attrs:
            self._button = attrs | {"words": ""}
            self.forms[-1]["buttons"].append(self._button)
        elif tag == "a":
            self.links.append(attrs["href"])

    def handle_endtag(self, tag):
        if tag == "button":
            self._button = None

    def handle_data(self, data):
        self.words.append(data)
        if self._button:
            self._button["words"] += data

    def buttons(self, words):
        """The buttons of these words, each with its form."""
        return [
            (form, button)
            for form in self.forms
            for button in form["buttons"]
            if button["words"].strip() == words
        ]


class Visitor:
    """A person with a browser of their own."""

    def __init__(self, app, prefix=""):
        self.client = app.test_client()
        self.prefix = prefix
        self.at = self._page = None

    def open(self, path="/desk/"):
        return self._keep(path, self.client.get(path, **self._mounted()))

    def read(self, path="/desk/"):
        """Open a page; return its text."""
        self.open(path)
        return self.page.text

    def press(self, words, message=None, selected=(), follow=True, on=None, **fields):
        """Press a button, by default the first with these words; follow a redirect if asked to.

        With `on`, open that page first.
        """
        if on:
            self.open(on)
        found = self.page.buttons(words)
        if message:
            values = [button.get("value", "").replace("-", "") for _, button in found]
            found = [each for each, v in zip(found, values, strict=True) if message.id.hex in v]
        (form, button), *_ = found
        sent = [*form["inputs"], *((n, v) for n, v, checked in form["boxes"] if checked)]
        sent = [(n, v) for n, v in sent if n not in fields] + [*fields.items()]
        sent += [("id", str(each.id)) for each in selected]
        if "name" in button:
            sent.append((button["name"], button.get("value", "")))
        return self.post(form.get("action") or self.at, sent, follow)

    def post(self, path, sent, follow=True):
        data = {}
        for name, value in sent:
            data.setdefault(name, []).append(value)
        path = path.removeprefix(self.prefix) if self.prefix else path
        response = self.client.post(path, data=data, **self._mounted())
        if response.status_code == 303 and follow:
            return self.open(response.location.removeprefix(self.prefix).partition("#")[0])
        return self._keep(path, response)

    def send(self, path, **fields):
        """Send a form of the session, whatever page is open."""
        return self.post(path, [("csrf_token", self.token), *fields.items()])

    def sign_in(self, key):
        """Give a key; the page behind it opens when somebody looks at `page`."""
        self.open()
        response = self.press("Sign in", follow=False, key=key)
        if response.status_code == 303:
            self.at = self._page = None
        return response

    @property
    def page(self):
        if self._page is None:
            self.open()
        return self._page

    @property
    def token(self):
        return next(v for form in self.page.forms for n, v in form["inputs"] if n == "csrf_token")

    def _mounted(self):
        return {"environ_overrides": {"SCRIPT_NAME": self.prefix}} if self.prefix else {}

    def _keep(self, path, response):
        self.at, self.response, self._page = path, response, Page(response.text)
        return response


def rows(visitor):
    """What stands in a list from top to bottom: "text 3", "reply one", or the words of a result."""
    listed = visitor.response.text.partition('<ol class="cards">')[2].partition("</ol>")[0]
    rows = []
    for item in re.split('<li class="(?=card|notice)', listed)[1:]:
        words = " ".join(re.sub("<[^>]*>", " ", f"<{item}").split())
        named = item.startswith("card") and re.search(r"text \d+|reply (?!to)\w+", words)
        rows.append(named[0] if named else words)
    return rows


def is_out(visitor):
    visitor.open("/desk/")
    return bool(visitor.page.buttons("Sign in"))


def copy_of(visitor, app):
    """Somebody who has stolen the cookie."""
    thief = Visitor(app)
    cookie = visitor.client.get_cookie("desk", path="/desk/")
    thief.client.set_cookie("desk", cookie.value, path="/desk/")
    return thief


def next_page(visitor):
    links = (link for link in visitor.page.links if "after=" in link and "select=" not in link)
    return next(links, None)


def walk(visitor, path):
    """The texts of this page and all that follow it."""
    while path:
        visitor.open(path)
        yield re.findall(r"text \d+", visitor.page.text)
        path = next_page(visitor)


def signed_in(app, *key, prefix="", **more):
    """A visitor with a new key."""
    visitor = Visitor(app, prefix)
    visitor.sign_in(issue(*key, **more))
    return visitor


def issue(name, group=None, role=Role.APPROVER, **more):
    return ApiKey.issue(name, group, TUESDAY_NOON, role=role, **more)


def ask(text="Hello", key="shop", group="front", **columns):
    """Store a text of the group that waits for approval."""
    shared = {"manual_mode": True, "available_to_group": True}
    return store(message=text, key=key_named(key, group), **shared | columns)


def unlike(number):
    """A text that is like no other of these: it differs from each in four words."""
    return f"text {number}" + f" {str(number).translate(LETTERS)}" * 4


def ask_many(count, first=0, **columns):
    return [
        ask(unlike(number), send_at=TUESDAY_NOON + number * MINUTE, **columns)
        for number in range(first, first + count)
    ]


def reply(n, **columns):
    """Store an unread reply that its group may see; the larger n, the older it is."""
    shared = {"key": key_named("shop", "front").id, "available_to_group": True}
    at = {"at": TUESDAY_NOON - n * MINUTE, "received_at": TUESDAY_NOON}
    about = {"id": uuid.uuid4(), "carrier": "x", "number": f"+1212555{n:04}", "text": f"reply {n}"}
    return Reply.create(**about | at | shared | columns)


def guarded(response):
    policy = response.headers["Content-Security-Policy"]
    return (
        policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        and "frame-ancestors 'none'" in policy
        and "form-action 'self'" in policy
        and "unsafe" not in policy
        and response.headers["Cache-Control"] == "no-store"
        and response.headers["X-Content-Type-Options"] == "nosniff"
        and response.headers["Referrer-Policy"] == "same-origin"
    )
