"""The explorer: the ledger's answers as HTML pages, whole without any script.

request ─ negotiation ┬─ asks for HTML ─ app ─ views ─ renderer ─ templates/ and static/
                      ├─ /live ─ live: events by which an open page becomes the present one
                      └─ anything else ─ ledger.api
"""
