"""The API server by the transport of the kubernetes client."""
