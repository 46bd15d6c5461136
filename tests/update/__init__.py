"""Updates of real daemons by real wheels."""
