"""Renders a chat template given as JSON on standard input; run as a process of its own (``protocol.tensor.chat``).

The environment is the one that transformers documents for templates, without the clock.
"""

import json
import resource
import sys
from typing import NoReturn

CPU_SECONDS, MEMORY_BYTES, OUTPUT_CHARACTERS = 2, 1 << 29, 1 << 20


def refuse(message: str) -> NoReturn:
    """Ends the rendering: what ``raise_exception`` of a template does."""
    raise SystemExit(message)


def main() -> None:
    """Reads template, names and message; writes the text up to where the answer begins."""
    given = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from jinja2.exceptions import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = refuse
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    messages = [{"role": "user", "content": given["message"]}]
    try:
        template = environment.from_string(given["template"])
        text = template.render(messages=messages, tools=None, add_generation_prompt=True, **given["names"])
    except (TemplateError, MemoryError, ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        refuse(f"{type(error).__name__} {error}")
    sys.stdout.write(text[:OUTPUT_CHARACTERS])


if __name__ == "__main__":
    main()
