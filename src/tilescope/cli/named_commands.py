"""A group of commands with a list of them: `tilescope`, and `tilescope mma`."""

from __future__ import annotations

import click

from tilescope.names import nearest_name


class NamedCommands(click.Group):
    """A group of commands which answers an unknown name with the nearest one, or with all of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names."""
        commands = self.list_commands(ctx)
        if args and args[0] not in commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            nearest = nearest_name(args[0], commands)
            hint = f"Did you mean {nearest}?" if nearest else f"Commands: {', '.join(commands)}."
            raise click.UsageError(f"No such command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)
