"""A run directory -> `report.md` with its plots. People look before they read (P6.8)."""

from acceptance.report.page import write_report

__all__ = ["write_report"]
