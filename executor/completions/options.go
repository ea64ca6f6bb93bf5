package completions

import (
	"errors"
	"log/slog"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// Options configure a front end. The zero value of a field means what its comment says.
type Options struct {
	Store  durable.Store // needed
	Server Server        // needed
	// Elsewhere: requests that are accepted here are served by another process that
	// shares the store. This one asks Server for its models and for admission only, and
	// serves what Take gives it.
	Elsewhere bool
	// Gone is told of requests that Take has brought and that are over here: their end is
	// stored (ended), or another process has them. It must not wait.
	Gone func(id string, ended bool)

	// Door is what every request passes first; servers may share one. nil: one of the front
	// end's own that asks for nothing.
	Door *httplimit.Door

	// MaxBodyBytes bounds a request, MaxFileBytes a file, MaxStoredBytes all files
	// together; 0: 8 MiB, 100 MiB, 4 GiB.
	MaxBodyBytes, MaxFileBytes, MaxStoredBytes int64
	// MaxOpen bounds the requests that were accepted and have not ended, MaxLines those
	// of a batch; 0: 200,000 and 50,000.
	MaxOpen, MaxLines int
	// StallTimeout is how long a client may not read what is sent; 0: 30 s.
	StallTimeout time.Duration

	// Keep says how long the results of a class are kept for clients that come again;
	// "" is for all other classes. KeepFiles is how long files are kept. 0: a day, and
	// 30 days.
	Keep      map[string]time.Duration
	KeepFiles time.Duration
	// BatchClass is the class of requests in batches that name none; empty: "batch".
	BatchClass string
	// StoreText is how often text that came is stored; 0: 2 s.
	StoreText time.Duration

	// Now tells times that are stored; nil: durable.Steady of the machine's clock.
	Now func() time.Time
	Log *slog.Logger // nil: slog.Default
}

const day = 24 * time.Hour

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.Server == nil {
		return o, errors.New("a front end needs a store and a server")
	}
	set(&o.MaxBodyBytes, 8<<20)
	set(&o.MaxFileBytes, 100<<20)
	set(&o.MaxStoredBytes, 4<<30)
	set(&o.MaxOpen, 200_000)
	set(&o.MaxLines, 50_000)
	set(&o.StallTimeout, 30*time.Second)
	set(&o.KeepFiles, 30*day)
	set(&o.BatchClass, "batch")
	set(&o.StoreText, 2*time.Second)
	if o.Now == nil {
		o.Now = durable.Steady(time.Now)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Door == nil {
		o.Door = &httplimit.Door{Log: o.Log}
	}
	o.Door = o.Door.Open()
	return o, nil
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// kept is how long records of a class are kept once they have ended.
func (o *Options) kept(class string) time.Duration {
	d, ok := o.Keep[class]
	if !ok {
		d = o.Keep[""]
	}
	set(&d, day)
	if class == batchRecords {
		d += longestWindow // the lines of a batch are read when the last one has ended
	}
	return d
}
