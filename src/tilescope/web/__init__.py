"""The explorer: `tilescope serve` opens it in a browser.

    URL ── Form ──▶ Asked ── the question ──▶ Answer ── view ──▶ Sheet ── page.html ──▶ a page
    /swizzle?mode=64B        Swizzle.named("64B")

questions/menu.py has the table of pages. A form parses its fields from the query and asks its question, as a command
does; the page shows the answer's drawing, its JSON, and the question itself as Python and as a command. The page
computes nothing that Python computes: the script marks cells that share a link, steps through a list, and requests the
next page.
"""
