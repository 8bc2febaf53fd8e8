"""The client for programs with threads. It needs the standard library only."""
