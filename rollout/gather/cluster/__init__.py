"""What the API server tells: pages of raw JSON, decoded into the few fields that are used."""
