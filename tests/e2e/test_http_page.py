"""The monitoring page in a real browser: it is drawn, it moves, nothing is fetched from elsewhere, and it fits a phone."""

import os
import threading
import time

import pytest
from pages import browser, watch  # noqa: F401, the fixture
from server import Server
from test_http import http_port

SCREENS = {
    "laptop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "device_scale_factor": 2},
}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def served(new_folder):
    """A server that is used all the time, by operations that count as slow."""
    with Server(new_folder("page"), options=["--httpPort", "0", "--slowms", "0"]) as made:
        ends = threading.Event()

        def use():
            with made.client() as client:
                number = 0
                while not ends.wait(0.01):
                    number += 1
                    client.shop.orders.insert_one({"_id": number, "n": number})
                    client.shop.orders.find_one({"n": number})
                    client.shop[HOSTILE].update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)

        user = threading.Thread(target=use)
        user.start()
        yield made
        ends.set()
        user.join()


@pytest.fixture
def opened(browser, served):
    """Opens the page on a screen; afterwards nothing may have come from elsewhere, been logged or thrown."""
    contexts, troubles = [], []
    address = f"http://127.0.0.1:{http_port(served)}/"

    def open_page(screen="laptop"):
        context = browser.new_context(**SCREENS[screen])
        contexts.append(context)
        tab = context.new_page()
        watch(tab, lambda url: url in (address, f"{address}status.json") or url.startswith("data:"), troubles)
        tab.goto(address)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def until(tab, expression, arg=None, seconds=60):
    """Waits for the expression to be true. `wait_for_function` needs `eval`, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not (found := tab.evaluate(expression, arg)):
        assert time.monotonic() < end, expression
        tab.wait_for_timeout(50)
    return found


def drawn(tab, charts):
    for chart in charts:
        tab.locator(f"[data-chart][aria-label='{chart}'][data-drawn=true]").wait_for(timeout=60_000)


@pytest.mark.parametrize("screen", SCREENS)
def test_charts_and_tables_are_filled_and_fit(opened, screen):
    tab = opened(screen)
    drawn(tab, ["Operations per second", "Latency", "Cache", "Log", "Group commit", "Connections", "Network"])
    tab.locator("#collections td", has_text="shop.orders").wait_for(timeout=60_000)
    tab.locator("#slow td", has_text="COLLSCAN").first.wait_for(timeout=60_000)
    assert tab.locator("#words li").count() > 5
    assert "engine" in tab.locator("#about").text_content()
    inserts = tab.locator("[data-chart][aria-label='Operations per second'] li", has_text="insert").locator("b")
    until(tab, "figure => parseFloat(figure.textContent) > 0", inserts.element_handle())
    width, screen_width = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= screen_width
    for chart in tab.evaluate(
        """[...document.querySelectorAll("[data-chart]")].map(place => [place.ariaLabel, place.querySelector("svg").getBoundingClientRect().height,
            [...place.querySelectorAll("path")].map(path => path.getAttribute("d") ?? "").join("")])"""
    ):
        assert chart[1] > 80 and "NaN" not in chart[2], chart
    if keep := os.environ.get("TENON_SCREENSHOTS"):
        until(tab, "samples.length > 15")
        tab.screenshot(path=f"{keep}/{screen}.png", full_page=True)


def test_colours_are_those_of_the_system(opened):
    ground = lambda tab: tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground(opened("dark")) != ground(opened("laptop"))


def test_names_are_only_text(opened):
    tab = opened()
    tab.locator("#collections td", has_text=HOSTILE).first.wait_for(timeout=60_000)
    assert tab.locator("img").count() == 0


def test_pointing_at_a_chart_shows_the_figures_of_then(opened):
    tab = opened()
    until(tab, "samples.length > 3")
    plot = tab.locator("[data-chart][aria-label='Cache'] svg")
    box = plot.bounding_box()
    tab.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    assert plot.locator(".hair").get_attribute("visibility") == "visible"
    tab.mouse.move(1, 1)
    assert plot.locator(".hair").get_attribute("visibility") == "hidden"


def test_nobody_is_asked_while_nobody_looks(opened):
    tab = opened()
    until(tab, "samples.length > 1")
    hide = """hidden => { Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
                          document.dispatchEvent(new Event("visibilitychange")); }"""
    tab.evaluate(hide, True)
    until(tab, "!asks")
    seen = tab.evaluate("samples.length")
    assert tab.evaluate("timer") is None
    tab.evaluate(hide, False)
    until(tab, "seen => samples.length > seen", seen)


@pytest.mark.parametrize(
    "engine, options, said, unsaid",
    [
        ("btree", [], ["lose 0 that are not on disk yet", "is evicted"], ["There is no log"]),
        ("btree", ["--nojournal"], ["There is no log", "is evicted"], ["replayed", "outlives"]),
        ("inMemory", [], ["nothing is evicted"], ["is evicted and read again"]),
    ],
)
def test_no_more_is_promised_than_is_kept(browser, tmp_path, engine, options, said, unsaid):
    """The page told of a log that was not there, and of an eviction that an engine does not do."""
    with Server(tmp_path, engine, options=["--httpPort", "0", *options]) as server:
        server.client(journal="--nojournal" not in options).shop.c.insert_one({})
        context = browser.new_context(**SCREENS["laptop"])
        tab = context.new_page()
        tab.goto(f"http://127.0.0.1:{http_port(server)}/")
        words = tab.locator("#words")
        for sentence in said:
            words.get_by_text(sentence).first.wait_for(timeout=60_000)
        text = words.text_content()
        assert not [sentence for sentence in unsaid if sentence in text], text
        context.close()


def test_a_server_that_is_gone_is_told_of(browser, tmp_path):
    with Server(tmp_path, options=["--httpPort", "0"]) as server:
        context = browser.new_context(**SCREENS["laptop"])
        tab = context.new_page()
        tab.goto(f"http://127.0.0.1:{http_port(server)}/")
        tab.locator("#state.live").wait_for(timeout=60_000)
        server.stop()
        tab.locator("#state.lost").wait_for(timeout=60_000)
        context.close()
