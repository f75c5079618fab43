"""Reports: pages and figures of what was learned."""

from kmcl.reports.report import ReportSettings, write_explanation, write_report

__all__ = ["ReportSettings", "write_explanation", "write_report"]
