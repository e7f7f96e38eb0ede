"""iCalendar files (RFC 5545) as freezes, read strictly: what is not understood is an error that names its line."""
