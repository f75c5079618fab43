"""The command line: one small module per command, which parses, calls and prints."""
