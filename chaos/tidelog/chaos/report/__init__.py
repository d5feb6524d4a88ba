"""The report of a run as one HTML page."""

from __future__ import annotations

from tidelog.chaos.report.page import render_report

__all__ = ["render_report"]
