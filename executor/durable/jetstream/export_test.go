package jetstream

import "testing"

// RunServer starts a server of one node and returns its URL.
func RunServer(t testing.TB) string { return run(t).ClientURL() }
