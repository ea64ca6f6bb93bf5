package cputime

import (
	"sync/atomic"
	"time"
)

var added atomic.Int64

// Add adds CPU time that another process has used for this one to the result of Used.
func Add(d time.Duration) { added.Add(int64(d)) }
