"""Reads node and router functions from their source: what they read, return and call. Loaded by check() alone."""
