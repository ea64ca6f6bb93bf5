//go:build !unix

package cputime

import "time"

var started = time.Now()

// Used returns the wall time since the start, because the CPU time is unknown on this system.
func Used() time.Duration { return time.Since(started) }
