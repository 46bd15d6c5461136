"""Grafana dashboards, one a role: few panels, each a question that its operator asks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("dashboards")
WIDE, HIGH, COLUMNS = 8, 7, 3
"""Size of a panel on Grafana's grid, of 24 columns."""

_SELECTED = re.compile(r"\b((?:assize|process)_\w+)(?:\{([^}]*)\})?")
"""A metric in a query, with the conditions on its labels."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph: lines of ``queries``, PromQL by legend, in Grafana's name of a unit."""

    title: str
    unit: str
    queries: dict[str, str]


def _panel(title: str, unit: str = "short", **queries: str) -> Panel:
    return Panel(title, unit, {legend.replace("_", " "): query for legend, query in queries.items()})


PROCESS = (
    _panel("Last pass without error", "s", ago="time() - assize_last_tick_timestamp_seconds"),
    _panel("Failed passes a minute", failed='60 * rate(assize_ticks_total{outcome!="ok"}[5m])'),
    _panel("Disk free", "bytes", free="assize_disk_free_bytes"),
    _panel("Memory", "bytes", resident="process_resident_memory_bytes"),
)
CHAIN = (
    _panel("Blocks behind its endpoint", behind="assize_chain_head_block - assize_chain_read_block"),
    _panel("Age of the newest block", "s", age="time() - assize_chain_head_timestamp_seconds"),
    _panel("Blocks not final", waiting="assize_chain_head_block - assize_chain_final_block"),
    _panel(
        "RPC requests a second",
        asked="rate(assize_rpc_seconds_count[5m])",
        failed="rate(assize_rpc_failures_total[5m])",
        disagreed="rate(assize_rpc_disagreements_total[5m])",
    ),
    _panel("RPC endpoint in use", endpoint="assize_rpc_endpoint_in_use"),
)
SENDING = (
    _panel("Transactions pending", pending="assize_sender_pending_intents"),
    _panel("Gas left", balance="assize_gas_balance_coins"),
    _panel("Gas spent a day", spent="86400 * rate(assize_gas_spent_coins_total[6h])"),
)
NODE = (
    _panel("Bond", held="assize_bond_tokens", required="assize_bond_required_tokens"),
    _panel("May be listed or drawn", listable="assize_node_listable"),
)
HTTP = (
    _panel("Requests a second", by_status="sum by (instance, status) (rate(assize_http_request_seconds_count[5m]))"),
    _panel(
        "Slowest one in a hundred requests, by route",
        "s",
        p99="histogram_quantile(0.99, sum by (instance, route, le) (rate(assize_http_request_seconds_bucket[5m])))",
    ),
)

DASHBOARDS: dict[str, tuple[Panel, ...]] = {
    "coordinator": (
        _panel("Rounds under way", rounds="assize_coordinator_rounds"),
        _panel("Last round opened", "s", ago="time() - assize_coordinator_newest_round_timestamp_seconds"),
        _panel("Jobs an hour by verdict", jobs="clamp_min(delta(assize_coordinator_jobs[1h]), 0)"),
        _panel("Void rounds an hour", void="clamp_min(delta(assize_coordinator_rounds_void[1h]), 0)"),
        _panel("Rounds that the escrow pays for", rounds="assize_coordinator_escrow_rounds"),
        _panel("Nodes with a lease", nodes="assize_coordinator_leased_nodes"),
        _panel("Claims not on chain yet", claims="assize_coordinator_pending_claims"),
        _panel(
            "Uploads and claims a minute",
            uploads="60 * rate(assize_coordinator_uploads_total[5m])",
            claims="60 * rate(assize_coordinator_claims_total[5m])",
        ),
        _panel("Events that webhooks have not taken", waiting="assize_coordinator_webhook_waiting"),
        _panel("Failures of webhooks in a row", failures="assize_coordinator_webhook_failures"),
        _panel("Uploaded", "Bps", bytes="rate(assize_coordinator_uploaded_bytes_total[5m])"),
        *HTTP,
        *SENDING,
        *CHAIN,
        *PROCESS,
    ),
    "worker": (
        _panel("Jobs an hour by outcome", jobs="increase(assize_worker_jobs_ended_total[1h])"),
        _panel("Last job handed in", "s", ago="time() - assize_worker_last_job_timestamp_seconds"),
        _panel("Credits an hour", earned="increase(assize_worker_earned_tokens_total[1h])"),
        _panel("Tokens a second", tokens="assize_worker_tokens_per_second"),
        _panel("Listed", listed="assize_worker_listed"),
        _panel("Version of the weights", loaded="assize_worker_version", on_chain="assize_run_version"),
        _panel("Share of time by part", "percentunit", share="rate(assize_worker_seconds_sum[5m])"),
        _panel(
            "Weights received",
            "Bps",
            received="rate(assize_worker_weights_received_bytes_total[5m])",
            without_deltas="rate(assize_worker_weights_whole_bytes_total[5m])",
        ),
        *NODE,
        *SENDING,
        *CHAIN,
        *PROCESS,
    ),
    "validator": (
        _panel("Seats under way", seats="assize_validator_seats"),
        _panel("Seats so far", seats="assize_validator_service"),
        _panel("Jobs judged an hour by reason", jobs="increase(assize_validator_jobs_judged_total[1h]) > 0"),
        _panel("Abstentions an hour", abstentions="increase(assize_validator_abstentions_total[1h])"),
        _panel("Jobs that wait for a judgement", jobs="assize_validator_unjudged_jobs"),
        _panel("Orders in the queue", orders="assize_validator_queued_orders"),
        *NODE,
        *SENDING,
        *CHAIN,
        *PROCESS,
    ),
    "trainer": (
        _panel("Version", version="assize_trainer_version"),
        _panel("Last step", "s", ago="time() - assize_trainer_last_step_timestamp_seconds"),
        _panel("Reward and accuracy", reward="assize_trainer_reward", accuracy="assize_trainer_accuracy"),
        _panel("Alarms", alarm="assize_trainer_alarm"),
        _panel("Share of time by part of a step", "percentunit", share="rate(assize_trainer_seconds_total[10m])"),
        _panel(
            "Groups of a step",
            used="assize_trainer_groups",
            idle="assize_trainer_groups_idle",
            left="assize_trainer_groups_left",
            stale="assize_trainer_groups_stale",
        ),
        _panel("Age of tokens, in versions", staleness="assize_trainer_staleness"),
        _panel("Entropy and divergence", entropy="assize_trainer_entropy", kl="assize_trainer_kl"),
        _panel("Gradient norm", norm="assize_trainer_gradient_norm"),
        _panel("Weights sent", "Bps", sent="rate(assize_weights_sent_bytes_total[5m])"),
        *HTTP,
        *SENDING,
        *CHAIN,
        *PROCESS,
    ),
    "relay": (
        _panel("Newest version", held="assize_relay_held_version", listed="assize_relay_listed_version"),
        _panel("Upstreams that answer", up="assize_relay_upstream_up"),
        _panel(
            "Traffic",
            "Bps",
            received="rate(assize_relay_received_bytes_total[5m])",
            sent="rate(assize_weights_sent_bytes_total[5m])",
        ),
        _panel("Damaged on disk", damaged="assize_relay_damaged_total"),
        *HTTP,
        *PROCESS[2:],
    ),
    "ledger": (
        _panel("Last at the head of the chain", "s", ago="time() - assize_ledger_synced_timestamp_seconds"),
        _panel("Halted", halted="assize_ledger_halted"),
        *HTTP,
        *CHAIN,
        *PROCESS[2:],
    ),
    "recheck": (
        _panel("Jobs checked an hour", jobs="increase(assize_recheck_jobs_checked_total[1h])"),
        _panel("Jurors in doubt a day", jurors="increase(assize_recheck_jurors_in_doubt_total[1d])"),
        *SENDING,
        *CHAIN,
        *PROCESS,
    ),
}
"""Role to its panels, the most important first."""


def dashboard(role: str) -> dict[str, Any]:
    """Returns the dashboard of a role as Grafana imports it. PURE."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "uid": f"assize-{role}",
        "title": f"Assize: {role}",
        "tags": ["assize"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [_drawn(number, panel, role, source) for number, panel in enumerate(DASHBOARDS[role])],
    }


def _drawn(number: int, panel: Panel, role: str, source: dict[str, str]) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": WIDE * column, "y": HIGH * row, "w": WIDE, "h": HIGH},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": _of_role(query, role),
                "legendFormat": f"{legend} {{{{instance}}}}" if len(panel.queries) > 1 else "__auto",
                "datasource": source,
            }
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _of_role(query: str, role: str) -> str:
    """Returns a query of the targets that have the label of this role, those of its API included."""
    chosen = f'role=~"{role}.*"'
    return _SELECTED.sub(lambda found: f"{found[1]}{{{chosen}{', ' + found[2] if found[2] else ''}}}", query)


def as_file(role: str) -> str:
    """Returns the text of a role's dashboard file. PURE."""
    return json.dumps(dashboard(role), indent=1) + "\n"
