"""Pages in a real browser: what they show, whether text fits, and whether it can be read."""

import itertools
import json

import numpy as np

TEXT_BOXES = """
    return [...document.querySelectorAll('svg')].map(s => {
        const {left, right, top, bottom} = s.getBoundingClientRect();
        return [[left, right, top, bottom], [...s.querySelectorAll('text')].map(t => {
            const box = t.getBoundingClientRect();
            const {fill, fontSize} = getComputedStyle(t);
            const pixels = parseFloat(fontSize) * s.getScreenCTM().a;
            return [t.textContent, fill, pixels, box.left, box.right, box.top, box.bottom];
        })];
    })"""


def look_at(browser, address, *, width=1000, scheme="light"):
    """Opens a page in a window of this width."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(address)
    assert browser.get_log("browser") == []


def look(browser, page, *, width=1000, scheme="light"):
    """Opens a page and returns the numbers on it."""
    look_at(browser, page.as_uri(), width=width, scheme=scheme)
    return browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('data')].map(d => [d.id, [d.value, d.textContent]]))"
    )


def assert_text_fits(browser, width, texts_at_least=9):
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    for (left, right, top, bottom), texts in browser.execute_script(TEXT_BOXES):
        assert len(texts) >= texts_at_least  # ticks, labels of axes and lines
        for text, _, pixels, low, high, above, below in texts:
            assert pixels >= 8 and left <= low and high <= right and top <= above and below <= bottom, text
        for (first, _, _, *one), (second, _, _, *other) in itertools.combinations(texts, 2):
            apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
            assert apart, (first, second)


def assert_readable(browser, scheme):
    page, card, *texts = browser.execute_script(
        "const style = e => getComputedStyle(document.querySelector(e)); "
        "return [style('body').backgroundColor, style('.card').backgroundColor, style('h1').color, "
        "style('.soft, .interval').color]"
    )
    assert (luminance(page) > 0.5) == (scheme == "light")
    pairs = [(page, text) for text in texts]
    pairs += [(card, fill) for _, drawn in browser.execute_script(TEXT_BOXES) for _, fill, *_ in drawn]
    for background, colour in set(pairs):
        low, high = sorted((luminance(background), luminance(colour)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (background, colour)  # WCAG AA


def luminance(colour):
    """Relative luminance of "rgb(r, g, b)", as WCAG defines it."""
    channels = np.array([int(part) for part in colour[4:-1].split(",")]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def requests_of(browser, origin):
    """Returns the addresses that pages from this origin have asked for since the last call."""
    found = set()
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent" and message["params"]["documentURL"].startswith(origin):
            found.add(message["params"]["request"]["url"])
    return found
