"""The verbs that measure studies and put their parts together."""
