"""What tests ask of a page in the browser."""

PATIENCE_MS = 60_000  # a build beside the tests may take all cores


def address_of(page):
    """Where the page is now: playwright's own word for it comes a little later."""
    return page.evaluate("location.href")


def settled(page):
    """Wait until the page has asked for, and shows, the state of its form."""
    page.locator("body:not(.busy)").wait_for()
