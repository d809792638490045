"""The plot of a benchmark: what a card's time is made of, as an SVG of our own making, readable on light and dark.

Pure: a result in, text out.
"""

from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, BAR, GAP, TOP = 760, 150, 30, 18, 46
# Beside podman's own start, not in a row with the rest.
BESIDE = ("imports", "plan")
COLOURS = {
    "start": "#1b6ca8",
    "parse": "#2f86c6",
    "spawn": "#57a4dc",
    "podman to hook": "#9aa3ad",
    "hook": "#d1495b",
    "podman to stage 2": "#b3bac2",
    "stage 2": "#e07a3f",
    "worker and podman's end": "#c8cdd3",
    "clean-up": "#3f9f7f",
}
PLAIN = "#9aa3ad"


def svg(result: dict[str, Any]) -> str:
    """Return the plot: a bar for plain podman, one for a card cut into its phases, and a legend."""
    run = result["run"]
    parts = [(name, value) for name, value in run["phases"].items() if name not in BESIDE]
    plain = run["wall"]["plain"]["median"]
    total = sum(value for _, value in parts)
    scale = (WIDTH - LEFT - 70) / max(plain, total)
    body = [_text(10, 24, f"card-run -- true against podman run: {run['wall']['ratio']['median']:.2f} x", size=15)]
    body += [_text(10, TOP + 20, "podman run"), _box(LEFT, TOP, plain * scale, PLAIN, "podman run")]
    body.append(_text(LEFT + plain * scale + 6, TOP + 20, f"{plain:.0f} ms"))
    at, row = float(LEFT), TOP + BAR + GAP
    body.append(_text(10, row + 20, "card-run"))
    for name, value in parts:
        body.append(_box(at, row, value * scale, COLOURS[name], f"{name}: {value:.1f} ms"))
        at += value * scale
    body.append(_text(at + 6, row + 20, f"{total:.0f} ms"))
    row += BAR + GAP
    for number, (name, value) in enumerate(parts):
        x, y = 10 + 250 * (number % 3), row + 20 * (number // 3)
        body += [
            _box(x, y, 12, COLOURS[name], name, height=12),
            _text(x + 18, y + 11, f"{name} {value:.1f} ms", size=12),
        ]
    height = row + 20 * ((len(parts) + 2) // 3) + 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">'
    back = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, back, *body, "</svg>"]) + "\n"


def _box(  # noqa: PLR0913 - a rectangle has as many
    x: float, y: float, width: float, colour: str, title: str, *, height: int = BAR
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height}"'
    return f'<rect {place} fill="{colour}"><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, text: str, *, size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#24292f">{escape(text)}</text>'
