"""The reference of the command line, from the commands themselves, at the end of cli.md."""

import re
from collections.abc import Sequence
from typing import Any

import typer
from sphinx.application import Sphinx

from twinrank.cli import app as command_line

PAGE = "cli"


def commands() -> dict[str, Any]:
    """All commands by name."""
    group: Any = typer.main.get_command(command_line)
    return dict(sorted(group.commands.items()))


def reference() -> str:
    """All commands as Markdown; what most share, about reading data, is told once."""
    found = commands()
    reading = [one for one in found.values() if "cache_dir" in _names(one)]
    shared = set.intersection(*map(_names, reading)) - {"data", "out"}
    parts = [_command(one, shared if one in reading else set()) for one in found.values()]
    about = ", ".join(f"`{one.name}`" for one in reading)
    return "\n\n".join(
        [*parts, "## Options of data", f"Of {about}.", _table(_merged(reading, shared))]
    )


def _names(command: Any) -> set[str]:
    return {one.name for one in command.params}


def _merged(commands: Sequence[Any], shared: set[str]) -> list[tuple[Any, str]]:
    """Each shared option with its default, and with which commands have another."""
    rows = []
    for one in commands[0].params:
        if one.name not in shared:
            continue
        by_default: dict[str, list[str]] = {}
        for command in commands:
            same = next(p for p in command.params if p.name == one.name)
            by_default.setdefault(_default(same), []).append(command.name)
        common = max(by_default, key=lambda default: len(by_default[default]))
        others = [f"{d} of {', '.join(n)}" for d, n in by_default.items() if d != common]
        rows.append((one, "; ".join([common, *others])))
    return rows


def _command(command: Any, shared: set[str]) -> str:
    """One command: what it does, its examples, its arguments and options."""
    told, _, examples = re.sub("[\b]", "", command.help).partition("Example")
    own = [p for p in command.params if p.name not in shared]
    arguments = [p for p in own if not p.opts[0].startswith("-")]
    usage = " ".join(["twinrank", command.name, *map(_placeholder, arguments), "[OPTIONS]"])
    parts = [f"## twinrank {command.name}", told.strip(), f"```text\n{usage}\n```"]
    if lines := re.findall("twinrank .*", examples):
        parts.append("```sh\n" + "\n".join(lines) + "\n```")
    parts.append(_table([(one, _default(one)) for one in own]))
    if shared:
        parts.append("It also takes the [options of data](#options-of-data).")
    return "\n\n".join(parts)


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("[]")
    name += "…" if argument.nargs == -1 and "." not in name else ""
    return name if argument.required else f"[{name}]"


def _table(options: Sequence[tuple[Any, str]]) -> str:
    """A row for each: its names, what it means, its default."""
    rows = ["| | |", "|---|---|"]
    for one, default in options:
        names = [*one.opts, *one.secondary_opts]
        if not names[0].startswith("-"):
            names = [_placeholder(one).strip("[]")]
        if one.help and not one.hidden:
            shown = ", ".join(f"`{name}`" for name in names)
            unless = f" Default: {default}." if default else ""
            rows.append(f"| {shown} | {_cell(one.help)}{unless} |")
    return "\n".join(rows)


def _default(option: Any) -> str:
    value = option.default
    return "" if value in (None, "") or isinstance(value, bool) else f"`{value}`"


def _cell(text: str) -> str:
    """Text that Markdown leaves as it is."""
    for sign in "\\|*_<$[":
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())


def _fill(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == PAGE:
        source[0] += "\n" + reference()


def _always_outdated(_app: Sphinx, _env: Any, _added: Any, _changed: Any, _gone: Any) -> list[str]:
    return [PAGE]  # it depends on code, not on its own text alone


def setup(app: Sphinx) -> dict[str, Any]:
    """Fill the page when it is read."""
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", _always_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
