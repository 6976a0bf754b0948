"""A real Chromium on the service's page; whatever its console complains of is kept."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

from tests.conftest import need

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    expect = sync_playwright = None

_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")

# Of every element that shows text of its own: its contrast with what is behind it, as WCAG 2 counts it.
_CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ink = luminance(parse(element instanceof SVGElement ? style.fill : style.color));
    const paper = luminance(behind(element));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    found.push([element.textContent.trim().slice(0, 40), ratio]);
  }
  return found;
}"""


@contextmanager
def chromium():
    """A browser without a window; a test that has none is skipped, or fails where nothing may be lacking."""
    if sync_playwright is None:
        need("the package playwright")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        need("Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One tab with storage of its own, on the page at ``url``.

    Attributes:
        complaints: errors and warnings of the console (a violated policy is one), and exceptions of scripts.
        refusals: what the browser itself notes of requests that failed.
    """

    def __init__(self, browser, url, *, width=1280, height=900, dark=False, **more):
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": height}
        self.context = browser.new_context(viewport=size, color_scheme=scheme, **more)
        self.context.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.refusals: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(url)

    def _heard(self, message):
        if message.type in ("error", "warning"):
            kind = self.refusals if message.text.startswith("Failed to load resource") else self.complaints
            kind.append(message.text)

    def enter(self, key):
        """Give the key as a person does."""
        self.page.get_by_label("API key").fill(key)
        self.page.get_by_role("button", name="Show the budget").click()
        return self

    def sees(self, where, words, *, seconds=10.0):
        """Wait until the element says it."""
        expect(self.page.locator(where)).to_contain_text(words, timeout=1000 * seconds)
        return self

    def look_again(self):
        """At once, as when the network comes back: the page need not wait for its next turn."""
        self.page.wait_for_timeout(300)  # the service remembers its numbers for a moment
        self.page.evaluate("() => dispatchEvent(new Event('online'))")
        return self

    def text(self, where):
        found = self.page.locator(where)
        return found.text_content() if found.evaluate("(one) => one instanceof SVGElement") else found.inner_text()

    def contrasts(self):
        """Of each piece of text that is to be seen."""
        return self.page.evaluate(_CONTRASTS)

    def close(self):
        self.context.close()
