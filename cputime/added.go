package cputime

import (
	"sync/atomic"
	"time"
)

var addedTime atomic.Int64

// Add adds CPU time that another process has used for this one to the result of Used.
func Add(d time.Duration) { addedTime.Add(int64(d)) }
