"""One run as a report: read from its journal, told as JSON, Markdown and a page."""
