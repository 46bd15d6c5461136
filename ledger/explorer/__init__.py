"""The explorer: the ledger's answers as HTML pages, whole without any script.

request ─ negotiation ┬─ asks for HTML ─ app ─ views ─ renderer ─ templates/ and static/
                      └─ anything else ─ ledger.api
"""
