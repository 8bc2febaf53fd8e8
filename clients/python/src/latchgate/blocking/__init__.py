"""The client for programs with threads. It needs only the standard library."""
