"""One module per dataset format, and their registry."""
