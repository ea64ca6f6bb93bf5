//go:build !unix

package main

import "time"

var started = time.Now()

// cpuTime is the wall time since the start where no CPU time is known.
func cpuTime() time.Duration { return time.Since(started) }
