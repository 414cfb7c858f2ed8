"""Why the device idles in a call: what the host does meanwhile, the causes, and how long launches wait."""
