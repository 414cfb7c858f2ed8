"""Communication in a call: its collectives, and what their messages say."""
