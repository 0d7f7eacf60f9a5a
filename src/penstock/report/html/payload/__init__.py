"""The data that the HTML page receives."""

from penstock.report.html.payload.report_data import PageData, page_data

__all__ = ["PageData", "page_data"]
