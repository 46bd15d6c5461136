"""Watching the roles: the table of metrics, alert rules, dashboards, and what to do about each alert."""
