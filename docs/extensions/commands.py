"""The command reference at the end of cli.md, generated from the commands."""

import re
from collections.abc import Sequence
from typing import Any

import typer
from sphinx.application import Sphinx

from twinrank.cli import EXIT_CODES
from twinrank.cli import app as command_line

PAGE = "cli"
OUTPUT = {"as_json", "quiet"}


def commands() -> dict[str, Any]:
    """All commands by name."""
    group: Any = typer.main.get_command(command_line)
    return dict(sorted(group.commands.items()))


def reference() -> str:
    """All commands as Markdown; the options that they share are listed once."""
    all_commands = list(commands().values())
    reading = [command for command in all_commands if "cache_dir" in _names(command)]
    shared = set.intersection(*map(_names, reading)) - {"data", "out", "output"} - OUTPUT
    parts = [_command(c, shared if c in reading else set()) for c in all_commands]
    names = ", ".join(f"`{command.name}`" for command in reading)
    parts += ["## Data options", f"These options belong to {names}."]
    parts += [_table(_merged(reading, shared)), "## Output options", "All commands have these."]
    parts += [_table(_merged(all_commands, OUTPUT)), "## Exit codes", _codes()]
    return "\n\n".join(parts)


def _codes() -> str:
    rows = [f"| {code} | {text} |" for code, text in EXIT_CODES.items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def _names(command: Any) -> set[str]:
    return {option.name for option in command.params}


def _merged(commands: Sequence[Any], shared: set[str]) -> list[tuple[Any, str]]:
    """Each shared option with its default, and the commands that have another default."""
    rows = []
    for option in commands[0].params:
        if option.name not in shared:
            continue
        by_default: dict[str, list[str]] = {}
        for command in commands:
            same = next(p for p in command.params if p.name == option.name)
            by_default.setdefault(_default(same), []).append(command.name)
        common = max(by_default, key=lambda default: len(by_default[default]))
        others = [f"{d} for {', '.join(n)}" for d, n in by_default.items() if d != common]
        rows.append((option, "; ".join([common, *others])))
    return rows


def _command(command: Any, shared: set[str]) -> str:
    """One command: its description, examples, arguments and options."""
    description, _, examples = re.sub("[\b]", "", command.help).partition("Example")
    own = [p for p in command.params if p.name not in shared | OUTPUT]
    arguments = [p for p in own if not p.opts[0].startswith("-")]
    usage = " ".join(["twinrank", command.name, *map(_placeholder, arguments), "[OPTIONS]"])
    parts = [f"## twinrank {command.name}", description.strip(), f"```text\n{usage}\n```"]
    if lines := re.findall("twinrank .*", examples):
        parts.append("```sh\n" + "\n".join(lines) + "\n```")
    parts.append(_table([(option, _default(option)) for option in own]))
    data = "the [data options](#data-options) and " if shared else ""
    parts.append(f"It also takes {data}the [output options](#output-options).")
    return "\n\n".join(parts)


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper().strip("[]")
    name += "…" if argument.nargs == -1 and "." not in name else ""
    return name if argument.required else f"[{name}]"


def _table(options: Sequence[tuple[Any, str]]) -> str:
    """A row for each option: its names, its meaning and its default."""
    rows = ["| option | meaning |", "|---|---|"]
    for option, default in options:
        names = [*option.opts, *option.secondary_opts]
        if not names[0].startswith("-"):
            names = [_placeholder(option).strip("[]")]
        if option.help and not option.hidden:
            shown = ", ".join(f"`{name}`" for name in names)
            stated = f" Default: {default}." if default else ""
            rows.append(f"| {shown} | {_cell(option.help)}{stated} |")
    return "\n".join(rows)


def _default(option: Any) -> str:
    value = option.default
    return "" if value in (None, "") or isinstance(value, bool) else f"`{value}`"


def _cell(text: str) -> str:
    """Text that Markdown leaves as it is; help of commands escapes brackets for terminals."""
    text = text.replace("\\[", "[")
    for sign in "\\|*_<$[":
        text = text.replace(sign, "\\" + sign)
    return " ".join(text.split())


def _append_reference(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == PAGE:
        source[0] += "\n" + reference()


def _always_outdated(_app: Sphinx, _env: Any, _added: Any, _changed: Any, _gone: Any) -> list[str]:
    return [PAGE]  # it also depends on the code of the commands


def setup(app: Sphinx) -> dict[str, Any]:
    """Append the reference when the page is read."""
    app.connect("source-read", _append_reference)
    app.connect("env-get-outdated", _always_outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
