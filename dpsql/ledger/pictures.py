"""The pictures of the report: burn-down, epsilon-delta curve, trade-off curve, attacker's certainty,
groups.
"""

from __future__ import annotations

from html import escape
from typing import Any

from dpsql.ledger.guarantee import percent
from dpsql.ledger.svg import Axis, Picture

_FLOOR = 1e-12
_LINES = [("whole budget", "second", "7 4"), ("spent so far", "first", "")]


def pictures(data: dict[str, Any]) -> str:
    """All figures as HTML, each with a caption that says in words what it shows."""
    drawn = data["pictures"]
    figures = [
        _figure("burn-down", burn_down(drawn["burn_down"]), wide=True),
        _figure("epsilon-delta", epsilon_delta(drawn["epsilon_delta"], data["left"])),
        _figure("trade-off", tradeoff(drawn["tradeoff"])),
        _figure("attacker", attacker(drawn["attacker"])),
        _figure("groups", groups(drawn["groups"])),
    ]
    return f'<div class="gallery">{"".join(figures)}</div>'


def burn_down(data: dict[str, Any]) -> Picture:
    """Epsilon left after each charge."""
    steps, limit, charges = data["steps"], data["limit"], max(1, data["charges"])
    lowest = max(-limit / 4, min([0.0, *(mark["level"] for mark in data["refused"])]))
    picture = Picture(
        "Budget left after each charge",
        "The largest ε that one more statement could have had. Each step is a charge, each hollow mark a "
        "refused statement at the level it asked for.",
        Axis.counts("charges", charges),
        Axis.linear("ε left", lowest, limit * 1.08),
        width=980,
        height=320,
    )
    picture.line([(0, limit), (charges, limit)], "quiet", "3 4")
    picture.label(charges, limit, f"limit ε={limit:.4g}", kind="quiet", anchor="end", dx=0)
    if lowest < 0:
        picture.line([(0, 0), (charges, 0)], "quiet")
    corners: list[tuple[float, float]] = []
    for step in steps:
        corners += [(step["charges"], corners[-1][1])] if corners else []
        corners.append((step["charges"], step["left"]))
    if len(corners) > 1:
        picture.line(corners, "first")
    if len(steps) <= 60:
        for step in steps:
            picture.dot(step["charges"], step["left"], "first", title=step["text"])
    for mark in data["refused"]:
        picture.dot(mark["charges"], mark["level"], "second", hollow=True, title=f"refused: {mark['text']}")
    return picture


def epsilon_delta(data: dict[str, Any], left: dict[str, Any]) -> Picture:
    """Delta as a function of epsilon, for the promise and for what was spent."""
    limit = left["limit"]
    text = (
        "How likely (δ, logarithmic) the loss of one unit may exceed each ε: for the whole budget, and "
        "for what was charged so far. Lower is more private."
    )
    x, y = Axis.linear("ε", 0, data["epsilon"][-1]), Axis.powers("δ", _FLOOR, 1)
    picture = Picture("Privacy profile", text, x, y)
    for name, kind in (("promise", "second"), ("spent", "first")):
        points = [(e, max(d, _FLOOR)) for e, d in zip(data["epsilon"], data[name], strict=True)]
        end = next((i for i, (_, d) in enumerate(points) if d <= _FLOOR), len(points) - 1)
        if end == 0:
            continue
        picture.line(points[: end + 1], kind, "" if kind == "first" else "7 4")
    picture.key(_LINES, data["epsilon"][-1], 10**-1.5)
    picture.upright(limit["epsilon"], f"ε={limit['epsilon']:.4g}")
    return picture


def tradeoff(data: dict[str, Any]) -> Picture:
    """The trade-off between the two errors of an attacker who tests for one unit."""
    text = (
        "An attacker who tests whether one unit is in the data: the share of false alarms against the least "
        "share of misses. The diagonal is guessing, perfect privacy; the corner at 0 would be certainty."
    )
    picture = Picture(
        "Trade-off", text, Axis.linear("false alarms", 0, 1, "%"), Axis.linear("misses, at least", 0, 1, "%")
    )
    picture.line([(0, 1), (1, 0)], "quiet", "3 4")
    for name, kind in (("promise", "second"), ("spent", "first")):
        picture.line([(float(a), float(b)) for a, b in data[name]], kind, "" if kind == "first" else "7 4")
    picture.key([("guessing", "quiet", "3 4"), *reversed(_LINES)], 1, 0.95)
    return picture


def attacker(data: dict[str, Any]) -> Picture:
    """The highest certainty about one unit, as a function of epsilon."""
    (limit, most), (spent, sure) = data["promise"], data["spent"]
    text = (
        f"The highest certainty about one unit that the answers allow to somebody who gave even odds before: "
        f"{percent(sure)} by now, {percent(most)} when the budget is used up."
    )
    curve = [(float(x), float(y)) for x, y in data["curve"]]
    picture = Picture(
        "Attacker's certainty", text, Axis.linear("ε", 0, curve[-1][0]), Axis.linear("certainty", 0.5, 1, "%")
    )
    picture.area(curve)
    picture.line(curve, "first")
    picture.dot(limit, most, "second")
    picture.label(limit, most, f"whole budget {percent(most)}", kind="second", dx=10, dy=16)
    if spent:
        picture.dot(spent, sure, "first")
        if abs(spent - limit) > 0.02 * curve[-1][0]:
            picture.label(spent, sure, f"by now {percent(sure)}", kind="first", dx=10, dy=16)
    return picture


def groups(data: list[tuple[int, float, float, float]]) -> Picture:
    """Certainty about one to five units together."""
    text = "The same when several units belong together, a family say: k units have k times the ε." + (
        f" The chance of failure grows too: δ={data[0][2]:.2g} for one, δ={data[-1][2]:.2g} for five."
        if data[0][2]
        else ""
    )
    x = Axis("units together", 0.4, 5.6, tuple((float(k), str(k)) for k, *_ in data))
    picture = Picture("Group privacy", text, x, Axis.linear("certainty", 0.5, 1.0, "%"))
    for k, epsilon, _, sure in data:
        picture.bar(k, sure, 0.62)
        told = percent(sure).replace("over ", ">")
        picture.label(k, sure, told, anchor="middle", dx=0, dy=18 if sure > 0.93 else -8)
        picture.label(k, 0.5, f"ε={epsilon:.3g}", kind="quiet", anchor="middle", dx=0, dy=-9)
    return picture


def _figure(name: str, picture: Picture, wide: bool = False) -> str:
    return (
        f'<figure id="picture-{name}"{" class=wide" if wide else ""}><h3>{escape(picture.title)}</h3>'
        f"<figcaption>{escape(picture.text)}</figcaption>{picture.svg()}</figure>"
    )
