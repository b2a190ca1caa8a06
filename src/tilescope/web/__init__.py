"""The explorer: `tilescope serve` opens it in a browser.

    URL ── Page.forms ──▶ Call ── the library ──▶ value ── view ──▶ drawing ── page_html ──▶ a page
    /swizzle?mode=64B     Swizzle.named("64B")

One table holds the pages. A page reads its form's fields from the query, makes one call of the library, and shows
the value's drawing, its JSON, and the call itself as Python and as a command. The page computes nothing that Python
knows: the script marks cells that share a link, steps through a list, and asks for the next page.
"""
