"""Reports: HTML pages and figures of trained models."""

from kmcl.reports.monitor import Monitored
from kmcl.reports.progress import OnProgress
from kmcl.reports.report import ReportSettings, write_explanation, write_report

__all__ = [
    "Monitored",
    "OnProgress",
    "ReportSettings",
    "write_explanation",
    "write_report",
]
