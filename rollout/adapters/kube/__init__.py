"""The API server, through the kubernetes client."""
