"""`tilescope serve`: the explorer in a browser, or one of its pages as a file."""

from __future__ import annotations

from pathlib import Path

import click

from tilescope.cli.command import output_file, write_to
from tilescope.rule import rule

SERVE_PORT = rule(
    "serve-port",
    "The explorer listens on a port that no other program has taken.",
    argument="--port",
    found="cannot listen on {host}, port {port}: {reason}",
    limit="a port that is free",
    fix="Use --port 0.",
    source="the command line; the ports of a machine are its own, so no example runs",
)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; any other opens it to other machines."
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--export", "url", metavar="URL", help="Write the page at URL as one file that needs no server.")
@click.option("-o", "--out", "path", type=output_file, metavar="FILE", help="Where --export writes; - is stdout.")
def serve(port: int, host: str, no_browser: bool, url: str | None, path: Path | None) -> None:
    """Open the explorer in a browser: every page of it is an address that can be kept and sent.

    \b
    tilescope serve
    tilescope serve --port 9000 --no-browser
    tilescope serve --export "/swizzle?mode=64B" -o swizzle.html
    """  # noqa: D301  \b keeps the lines below it apart
    if (url is None) != (path is None):
        raise click.UsageError("--export URL and -o FILE belong together.")
    if url is not None and path is not None:
        from tilescope.web.rendering import exported

        write_to(path, exported(url).encode())
        return
    _serve(host, port, open_browser=not no_browser)


def _serve(host: str, port: int, *, open_browser: bool) -> None:
    """Serve until interrupted; the address is printed once the port is taken."""
    import socket

    import uvicorn

    from tilescope.web.application import application, is_loopback

    app = application(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            reason = error.strerror or str(error)
            raise SERVE_PORT.error(host=host, port=port, reason=reason) from None
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}/"
        click.echo(f"tilescope explorer at {address} (Ctrl+C ends it)")
        if not is_loopback(host):
            click.echo("Everyone who reaches this machine can use it.", err=True)
        if open_browser:
            import webbrowser

            webbrowser.open(address)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


COMMANDS = (serve,)
