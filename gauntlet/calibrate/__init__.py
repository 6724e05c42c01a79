"""Knowing the client's own error: a scripted engine whose every send time is known, and the lag measured against it."""
