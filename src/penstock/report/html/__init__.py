"""The HTML report: one file that opens offline."""

from penstock.report.html.page import render_page, save_report, title_of

__all__ = ["render_page", "save_report", "title_of"]
