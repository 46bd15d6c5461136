"""Equality of two expressions by what they mean. Imported by the grading server alone: it takes seconds and 100 MB."""

from __future__ import annotations

import logging
import re
from typing import Any, NamedTuple

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]
from sympy import Basic, I, Symbol  # type: ignore[import-untyped]

_UNITS = {
    "length": {"mm": "1", "cm": "10", "m": "1000", "km": "1000000"},
    "imperial length": {"in": "1", "ft": "12", "yd": "36", "mi": "63360"},
    "mass": {"mg": "1", "g": "1000", "kg": "1000000"},
    "time": {"s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "volume": {"ml": "1", "l": "1000"},
}
"""Units by dimension, each with its size in the smallest."""
_SPELLED = {
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inche",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "g": "gram",
    "kg": "kilogram",
    "s": "second sec",
    "min": "minute",
    "h": "hour hr",
    "ml": "mL milliliter millilitre",
    "l": "L liter litre",
}
_NAMES = {
    **{unit: unit for units in _UNITS.values() for unit in units},
    **{name: unit for unit, names in _SPELLED.items() for name in names.split()},
}
_OF_UNIT = {unit: (dimension, size) for dimension, units in _UNITS.items() for unit, size in units.items()}
_IN_TEXT = re.compile(
    r"\s*\\?\s*\\(?:text|textrm|mathrm|mbox|rm)\s*\{\s*([A-Za-z]+)\s*\.?\s*\}\s*(?:\^\s*\{?([23])\}?)?\s*"
)
_IN_WORDS = re.compile(r"(?<=[\d})])\s+([A-Za-z]{2,}|[mglLhs])\s*(?:\^\s*\{?([23])\}?)?\s*")

_RELATION = re.compile(
    r"\\(neq?|sim|mid|lor|vee|land|wedge|to|(?:long)?rightarrow|Rightarrow|implies|iff)(?![A-Za-z])|(?<=\S)\s*\\(approx)"
)
_REPLACED = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"[−–]", "-"),
        (r"\\[dtc]frac", r"\\frac"),
        (r"\\\$|\$|[€£¥₹]", ""),
        (r"(?<=\d)(?:\\[,;: ]|~|[ \u00a0\u2009\u202f]|\{,\})(?=\d{3}(?!\d))", ""),
        (r"°", r"^\\circ"),
        (r"^(-?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)$", r"\1\2\\frac{\3}{\4}"),
        (
            r"(\\(?:sin|cos|tan|cot|sec|csc))\s*(\^\s*\{?\d+\}?)?\s*[({]?\s*(\d+(?:\.\d+)?)\s*\^\s*\{?\\circ\}?\s*[)}]?",
            r"\1\2{\\left(\\frac{\3\\pi}{180}\\right)}",
        ),
    )
]
_ONE_FORMULA = re.compile(r"[^$\d\\]*\$([^$]+)\$[^$\d\\]*")
_TARGETS = (LatexExtractionConfig(), ExprExtractionConfig())
_IMAGINARY = Symbol("i", real=False)

logging.getLogger("math_verify").setLevel(logging.ERROR)


class _Quantity(NamedTuple):
    """A value's text and, where it has one, its unit: dimension with exponent, and size in the smallest."""

    value: str
    dimension: tuple[str, int] | None = None
    size: str = "1"


def judge(expected: Any, given: str) -> tuple[float, str]:
    """Returns reward and reason for an answer in LaTeX or plain text."""
    if equal(str(expected), given):
        return 1.0, "the answer is right"
    return 0.0, "the answer is another"


def equal(expected: str, given: str) -> bool:
    """Tells whether ``given`` means what ``expected`` does."""
    if set(_RELATION.findall(given)) - set(_RELATION.findall(expected)):
        return False  # "not 3", "3 or 4": the library reads one side of it
    reference, answer = _quantity(_plain(expected)), _quantity(_plain(given))
    if reference.dimension and answer.dimension:
        if reference.dimension != answer.dimension:
            return False
        if reference.size != answer.size:
            power = reference.dimension[1]
            reference, answer = (
                _Quantity(rf"({quantity.value}) \cdot {int(quantity.size) ** power}")
                for quantity in (reference, answer)
            )
    return bool(
        verify(
            _read(reference.value),
            _read(answer.value),
            timeout_seconds=None,
            allow_set_relation_comp=True,
        )
    )


def _plain(text: str) -> str:
    """Writes numbers, currency, degrees and fractions in the way that the parser reads."""
    if formula := _ONE_FORMULA.fullmatch(text):
        text = formula[1]
    for pattern, by in _REPLACED:
        text = pattern.sub(by, text)
    return text.strip()


def _quantity(text: str) -> _Quantity:
    """Splits off a unit that is known and last."""
    for pattern in (_IN_TEXT, _IN_WORDS):
        for found in pattern.finditer(text):
            word, power = found.groups()
            unit = _NAMES.get(word) or _NAMES.get(word.lower().removesuffix("s"))
            if found.end() == len(text) and found.start() > 0 and unit:
                dimension, size = _OF_UNIT[unit]
                return _Quantity(text[: found.start()].rstrip("\\ "), (dimension, int(power or 1)), size)
    return _Quantity(text)


def _read(text: str) -> list[Any]:
    """Parses an answer, with *i* as the imaginary unit where it is the only letter."""
    found = parse(f"${text}$", extraction_config=_TARGETS, parsing_timeout=None)
    return [
        item.xreplace({_IMAGINARY: I}) if isinstance(item, Basic) and item.free_symbols == {_IMAGINARY} else item
        for item in found
    ]


def _warm_up() -> None:
    """Judges one pair of each kind, so that what the parser and sympy learn is there in every child."""
    for expected, given in (
        ("1", "2"),
        (r"\frac{1}{2}", "0.5"),
        (r"\frac{3}{4}", "3/4"),
        (r"50\%", r"\frac{1}{2}"),
        (r"5\text{ cm}", r"6\text{ m}"),
        (r"3\times 10^5", r"300000"),
        (r"\sqrt{12}", r"2\sqrt{3}"),
        (r"\sqrt[3]{8}+1", "4"),
        (r"1\frac{1}{2}", "1.6"),
        (r"2\pi r^2", r"\pi r^2"),
        (r"\sin 2x", r"2\sin x\cos x"),
        (r"\cos\frac{\pi}{3}", r"\tan x"),
        (r"\ln 8", r"3\ln 2"),
        (r"\log_2 8", r"4"),
        (r"e^{2x}", r"e^x"),
        (r"(x+1)^2", r"x^2+2x+2"),
        (r"\frac{x+y}{xy}", r"\frac{1}{x}+\frac{1}{y}"),
        (r"\frac{n(n+1)}{2}", r"\frac{n(n-1)}{2}"),
        ("y=2x+1", "y=2x-1"),
        ("x=5", "x=6"),
        ("1, 2", r"x=1 \text{ or } x=3"),
        (r"\{1,2\}", r"\{2,3\}"),
        ("(1,2)", "(2,1)"),
        ("[1,2)", r"(-\infty, 3]"),
        (r"(-\infty,1)\cup(2,\infty)", r"x < 3"),
        (r"1<x<2", r"1\le x<2"),
        (r"1\pm\sqrt{2}", r"1, 2"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&5\end{bmatrix}"),
        (r"\text{Tuesday}", "Thursday"),
        ("3+4i", "3-4i"),
        (r"\binom{5}{2}", "5!"),
        (r"30^\circ", "31"),
        (r"|x|", r"\infty"),
    ):
        equal(expected, given)


_warm_up()
