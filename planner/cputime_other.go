//go:build !unix

package planner

import "time"

var processStart = time.Now()

// cpuTime is the wall time since the start where no CPU time is known.
func cpuTime() time.Duration { return time.Since(processStart) }
