"""``python -m deploy.watching``: writes the table of metrics and the dashboards anew from the code."""

from __future__ import annotations

from deploy.watching.dashboards import DASHBOARDS, FOLDER, as_file
from deploy.watching.metrics import TABLE, metrics, table


def main() -> None:
    """Writes the files that follow from the code."""
    TABLE.write_text(table(metrics()))
    FOLDER.mkdir(exist_ok=True)
    for role in DASHBOARDS:
        (FOLDER / f"{role}.json").write_text(as_file(role))


if __name__ == "__main__":
    main()
