package cputime

import (
	"sync/atomic"
	"time"
)

var added atomic.Int64

// Add adds what another process has used for this one to what Used returns.
func Add(d time.Duration) { added.Add(int64(d)) }
