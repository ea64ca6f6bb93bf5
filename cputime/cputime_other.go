//go:build !unix

package cputime

import "time"

var started = time.Now()

// Used is the wall time since the start where no CPU time is known.
func Used() time.Duration { return time.Since(started) }
