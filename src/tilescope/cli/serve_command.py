"""`tilescope serve`: the explorer in a browser, or one of its pages as a file."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from tilescope.cli.command import Number, output_file, write_to
from tilescope.cli.manual import ManualCommand
from tilescope.errors import RuleError
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

SERVE_HOST = rule(
    "serve-host",
    "The explorer listens on an address of this machine.",
    argument="--host",
    found="{host} is no address of this machine: {reason}",
    limit="127.0.0.1 for this machine alone, 0.0.0.0 for every network it is in, or one of its own addresses",
    fix="Leave --host out, or use --host 0.0.0.0 to reach it from other machines.",
    source="the command line; the addresses of a machine are its own, so no example runs",
)


@click.command(cls=ManualCommand)
@click.option("--port", type=Number(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; any other opens it to other machines."
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--export", "url", metavar="URL", help="Write the page at URL as one file that needs no server.")
@click.option("-o", "--out", "path", type=output_file, metavar="FILE", help="Where --export writes; - is stdout.")
def serve(port: int, host: str, no_browser: bool, url: str | None, path: Path | None) -> None:
    """Open the explorer in a browser: every page has an address to keep and to send."""
    if (url is None) != (path is None):
        raise click.UsageError("--export URL and -o FILE belong together.")
    if url is not None and path is not None:
        from tilescope.web.rendering import export_page

        write_to(path, export_page(url).encode())
        return
    _serve(host, port, open_browser=not no_browser)


def _serve(host: str, port: int, *, open_browser: bool) -> None:
    """Serve until interrupted; the address is printed once the port is taken."""
    from tilescope.web.application import is_loopback
    from tilescope.web.serving import open_listener, server, warm_up

    try:
        listener = open_listener(host, port)
    except OSError as error:
        raise _refusal(host, port, error) from None
    with listener:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}/"
        click.echo(f"tilescope explorer at {address} (Ctrl+C ends it)")
        if not is_loopback(host):
            click.echo("Everyone who reaches this machine can use it.", err=True)
        if open_browser:
            import webbrowser

            webbrowser.open(address)
        threading.Thread(target=warm_up, daemon=True).start()
        server(host).run(sockets=[listener])


def _refusal(host: str, port: int, error: OSError) -> RuleError:
    """Why nothing listens: the address is not one of this machine, or the port is not free."""
    import errno
    import socket

    reason = error.strerror or str(error)
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return SERVE_HOST.error(host=host, reason=reason)
    if error.errno == errno.EACCES:
        return SERVE_PORT.error(host=host, port=port, reason=f"{reason} (ports below 1024 belong to the system)")
    return SERVE_PORT.error(host=host, port=port, reason=reason)


COMMANDS = (serve,)
