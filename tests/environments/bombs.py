"""Fifty answers to questions of mathematics that take for ever, or all memory, to be judged by a symbolic checker."""

from __future__ import annotations

_TOWERS = [
    r"9^{9^{9^{9}}}",
    "9**9**9**9",
    r"2^{2^{2^{2^{2^{2}}}}}",
    r"(10^{9})!",
    "100000!",
    r"(3!)!!!!!",
    r"7^{10^{12}}",
]
_SUMS = [
    r"\sum_{n=1}^{10^9} \frac{1}{n^2+n!}",
    r"\sum_{k=0}^{10^7} \binom{10^7}{k}",
    r"\prod_{n=1}^{10^6} (1+\frac{x}{n})",
    r"\lim_{x \to 0} \frac{\sin(\sin(\sin(\sin x)))-\tan(\tan(\tan x))}{x^{41}}",
    r"\int_0^1 \frac{x^{99} \sin(x^{17}) \ln(1+x^{13})}{1+x^{31}} dx",
    r"\int e^{x^{x^{x}}} dx",
]
_LARGE = [
    "(a+b+c+d+e+f)^{60}",
    "(x+y+z)^{300}",
    r"(1+\sqrt{2}+\sqrt{3}+\sqrt{5}+\sqrt{7})^{200}",
    r"\sqrt{2+\sqrt{3+\sqrt{5+\sqrt{7+\sqrt{11+\sqrt{13+\sqrt{17}}}}}}}^{51}",
    r"x^{64}-1=(x-1)(x+1)(x^2+1)(x^4+1)(x^8+1)(x^{16}+1)(x^{32}+1)",
    r"\operatorname{zeros}(100000,100000)",
    r"\operatorname{eye}(100000)",
    "9" * 2000,
    "0." + "3" * 1900,
    "1" + "0" * 1900 + "/7",
]
_NESTED = [
    left * count + middle + right * count
    for left, middle, right, count in (
        (r"\frac{1}{", "2", "}", 150),
        ("(", "1", ")", 900),
        (r"\sin(", "x", ")", 60),
        (r"\sqrt{", "2", "}", 200),
        (r"\left(", "x+1", r"\right)^2", 60),
        ("[", "1", "]", 700),
        (r"\{", "1", r"\}", 500),
        ("|", "x", "|", 500),
        (r"\log(", "x", ")", 100),
        ("-", "1", "", 1900),
        (r"\text{", "1", "}", 250),
        ("{", "1", "}", 900),
    )
]
_LONG = [
    "1+" * 500_000 + "1",
    "+".join(f"x_{{{n}}}" for n in range(300)),
    ",".join(str(n) for n in range(500)),
    r"\{" + ",".join(f"\\sqrt{{{n}}}" for n in range(2, 150)) + r"\}",
    r"\begin{pmatrix}" + r"\\".join("&".join("x" * 1 for _ in range(20)) for _ in range(20)) + r"\end{pmatrix}",
    r"\cup".join(f"({n},{n + 1})" for n in range(150)),
    "*".join(f"(x-{n})" for n in range(200)),
    "=".join("x" for _ in range(900)),
    "\\frac" * 300,
    "^" * 2000,
    "_{1" * 500,
    "\\" * 2000,
    "\x00\ud800",
    "𝟗^" * 600,
    "{" * 2000,
]
BOMBS = [*_TOWERS, *_SUMS, *_LARGE, *_NESTED, *_LONG]
