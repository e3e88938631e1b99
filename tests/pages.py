"""What tests of pages share: a browser, and what a page must not do."""

import shutil

import pytest
from playwright.sync_api import sync_playwright


@pytest.fixture(scope="module")
def browser():
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    # Without one of the system's, the one that `playwright install` brought.
    path = next(filter(None, found), None)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


def watch(tab, is_allowed, troubles):
    """Notes what a tab fetches that is not allowed, logs, throws or asks."""
    tab.on("request", lambda sent: is_allowed(sent.url) or troubles.append(f"fetched {sent.url}"))
    tab.on("console", lambda message: troubles.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
