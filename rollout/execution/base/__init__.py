"""The basis of all execution: deadlines, requests to stop, reports and live views."""
