"""Pages to keep and to send: one self-contained HTML file, or Markdown to paste into an
issue.
"""

from __future__ import annotations

import html
from collections.abc import Mapping

from steptime._tables import Table

_STYLE = """
:root { color-scheme: light dark; --bar: #2a6fb0; --line: #8886; }
@media (prefers-color-scheme: dark) { :root { --bar: #6aaee8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.3rem; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 0.3rem 1rem 0.3rem 0;
         border-bottom: 1px solid var(--line); }
td.bar { min-width: 14rem; }
td.bar div { height: 0.9rem; background: var(--bar); }
p { margin: 0.5rem 0; overflow-wrap: anywhere; }
"""


def html_page(title: str, table: Table, shares: Mapping[str, float]) -> str:
    """A page without scripts, pictures and network: the table, a bar for the share of
    each row that has one by its first cell, and the notes.
    """
    rows = []
    for row in table.rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        width = 100 * shares.get(row[0], 0.0)
        bar = f'<td class="bar"><div style="width:{width:.1f}%"></div></td>'
        rows.append(f"<tr>{cells}{bar}</tr>")
    headings = "".join(f'<th scope="col">{html.escape(h)}</th>' for h in table.headings)
    notes = "\n".join(f"<p>{html.escape(note)}</p>" for note in table.notes)
    body = "\n".join(rows)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(table.title)}</h1>
<table>
<thead><tr>{headings}<th scope="col"><span aria-hidden="true"></span></th></tr></thead>
<tbody>
{body}
</tbody>
</table>
{notes}
</body>
</html>
"""


def markdown(table: Table) -> str:
    """The table as GitHub's Markdown, under its title, the notes as a list."""
    lines = [f"**{_escaped(table.title)}**", ""]
    lines.append(_row(table.headings))
    lines.append(_row(["---"] * len(table.headings)))
    lines += map(_row, table.rows)
    lines.append("")
    lines += [f"- {_escaped(note)}" for note in table.notes]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Text whose signs Markdown leaves as they are."""
    for sign in "\\|*_<>`#":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
