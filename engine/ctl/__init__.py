"""engine-ctl: the user's hand on the engine and its frontends."""
