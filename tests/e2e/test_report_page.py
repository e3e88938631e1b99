"""The benchmark report in a real browser: every chart is drawn, nothing is fetched, nothing fails, and it fits a phone."""

import os
import subprocess
from pathlib import Path

import pytest
from pages import browser, watch  # noqa: F401, the fixture

ROOT = Path(__file__).parents[2]
PAGES = ["page", "engines", "single", "empty", "hostile", "compared"]
SCREENS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "device_scale_factor": 2},
}


@pytest.fixture(scope="module")
def pages(new_folder):
    """A directory with pages of made-up results."""
    directory = new_folder("report")
    cache = os.environ.get("TENON_CACHE", os.path.expanduser("~/.cache/tenon"))
    environment = {"CARGO_TARGET_DIR": f"{cache}/target", **os.environ}
    command = ["cargo", "run", "--quiet", "-p", "report", "--example", "fixture", "--", str(directory)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=900)
    return directory


@pytest.fixture
def opened(browser, pages, request):
    """Opens a page on a screen; afterwards nothing may have been fetched, logged or thrown."""
    contexts, troubles = [], []

    def open_page(name, screen="desktop"):
        context = browser.new_context(**SCREENS[screen])
        contexts.append(context)
        tab = context.new_page()
        address = (pages / f"{name}.html").as_uri()
        watch(tab, lambda url: url == address or url.startswith("data:"), troubles)
        tab.goto(address)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def charts(tab):
    """For each chart: whether it says it is drawn, its marks, and its height."""
    return tab.evaluate(
        """[...document.querySelectorAll("[data-chart]")].map((place) => {
            const svg = place.querySelector("svg");
            const marks = svg ? svg.querySelectorAll("path[d], rect[width]").length : 0;
            return { drawn: place.dataset.drawn === "true", marks, height: svg ? svg.getBoundingClientRect().height : 0,
                     hidden: place.closest("details:not([open])") !== null, title: place.getAttribute("aria-label") };
        })"""
    )


@pytest.mark.parametrize("screen", SCREENS)
def test_every_chart_is_drawn(opened, screen):
    tab = opened("page", screen)
    found = charts(tab)
    assert len(found) > 50
    for chart in found:
        assert chart["drawn"] and chart["marks"] > 2, chart
        assert chart["hidden"] or chart["height"] > 40, chart
    titles = {chart["title"] for chart in found}
    assert {"Operations per second", "Inserts per second", "Write amplification", "Size on disk", "getLinkList"} <= titles


def test_a_line_has_the_data_of_its_configuration(opened):
    tab = opened("page")
    names = tab.evaluate(
        """[...document.querySelectorAll("[data-chart]")].find((place) => place.ariaLabel.startsWith("Inserts per second"))
           .querySelectorAll("text.end").values().map((text) => text.textContent).toArray().sort()"""
    )
    assert names == ["btree", "btree zstd", "rocksdb"]


def test_pointing_at_a_chart_shows_figures(opened):
    tab = opened("page")
    plot = tab.locator("[data-chart][aria-label='Inserts per second']")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = plot.locator("g[aria-label=tip] text")
    tip.first.wait_for(timeout=60_000)
    assert "rocksdb" in tip.first.text_content()


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_page_is_no_wider_than_the_screen(opened, name, screen):
    tab = opened(name, screen)
    width, screen_width = tab.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= screen_width
    assert tab.locator("h1").count() == 1


def test_text_of_results_is_only_text(opened):
    tab = opened("hostile")
    assert tab.title() != "broken"
    assert tab.locator("img").count() == 0
    assert "<img src=x" in tab.locator("h1").text_content()
    found = charts(tab)
    assert found and all(chart["drawn"] for chart in found)


def test_charts_follow_the_window(opened):
    tab = opened("page")
    wide = tab.evaluate("document.querySelector('[data-chart] svg').getAttribute('width')")
    tab.set_viewport_size({"width": 600, "height": 900})
    tab.wait_for_function("wide => document.querySelector('[data-chart] svg').getAttribute('width') !== wide", arg=wide)
    assert all(chart["drawn"] for chart in charts(tab))


def test_it_prints_on_paper(opened):
    tab = opened("page", "dark")
    printed = tab.pdf(format="A4", print_background=True)
    assert printed.startswith(b"%PDF") and len(printed) > 100_000
    tab.emulate_media(media="print")
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
