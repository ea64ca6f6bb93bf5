package completions

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// Options configure a front end. Each field's comment says what its zero value stands for.
type Options struct {
	Store  durable.Store // required
	Server Server        // required
	// ServedElsewhere says that another process, which shares the store, serves the requests that are accepted here.
	// This process asks Server only for its models and for admission, and serves only what TakeOver gets.
	ServedElsewhere bool
	// OnRequestGone is called when a request that TakeOver was given is over in this process. ended says that its
	// result is stored; otherwise another process has taken the request over. OnRequestGone must not block.
	OnRequestGone func(id string, ended bool)

	// Door checks every HTTP request first; several servers may share one. If it is nil, the front end makes its own,
	// which asks for no key.
	Door *httplimit.Door

	// MaxBodyBytes bounds a request's body, MaxFileBytes a file and MaxStoredBytes all files together, in bytes. The
	// defaults are 8 MiB, 100 MiB and 4 GiB.
	MaxBodyBytes, MaxFileBytes, MaxStoredBytes int64
	// MaxOpenRequests bounds the requests that were accepted and have not ended, MaxBatchLines the lines of a batch.
	// The defaults are 200,000 and 50,000.
	MaxOpenRequests, MaxBatchLines int
	// MaxForwarded bounds the requests that pass through to servers at once. The default is 1024.
	MaxForwarded int
	// StallTimeout is how long a client may leave sent data unread before it is cut off. The default is 30 s.

	StallTimeout time.Duration

	// ResultRetention is, by class, how long results are kept for clients that fetch them later; "" stands for all
	// other classes. The default is a day. FileRetention is the same for files, by default 30 days.
	ResultRetention map[string]time.Duration
	FileRetention   time.Duration
	// BatchClass is the class of requests in batches that name none. The default is "batch".
	BatchClass string
	// TextStoreInterval is the time between two writes of the text that has come. The default is 2 s.
	TextStoreInterval time.Duration

	// Now is the clock of all times that are stored. The default is durable.SteadyClock of the machine's clock.
	Now func() time.Time
	Log *slog.Logger // slog.Default if nil
	// Tracer makes spans of requests. It is nil if there is none.
	Tracer *tracing.Tracer
}

const day = 24 * time.Hour

// withDefaults returns the options with defaults in place of zero fields, also in the door. It returns an error if
// the store or the server is missing.
func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.Server == nil {
		return o, errors.New("a front end needs a store and a server")
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 8<<20)
	o.MaxFileBytes = cmp.Or(o.MaxFileBytes, 100<<20)
	o.MaxStoredBytes = cmp.Or(o.MaxStoredBytes, 4<<30)
	o.MaxOpenRequests = cmp.Or(o.MaxOpenRequests, 200_000)
	o.MaxBatchLines = cmp.Or(o.MaxBatchLines, 50_000)
	o.MaxForwarded = cmp.Or(o.MaxForwarded, 1024)
	o.StallTimeout = cmp.Or(o.StallTimeout, 30*time.Second)
	o.FileRetention = cmp.Or(o.FileRetention, 30*day)
	o.BatchClass = cmp.Or(o.BatchClass, "batch")
	o.TextStoreInterval = cmp.Or(o.TextStoreInterval, 2*time.Second)
	if o.Now == nil {
		o.Now = durable.SteadyClock(time.Now)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Door == nil {
		o.Door = &httplimit.Door{Log: o.Log}
	}
	o.Door = o.Door.WithDefaults()
	return o, nil
}

// retention returns how long records of a class are kept once they have ended.
func (o *Options) retention(class string) time.Duration {
	d, ok := o.ResultRetention[class]
	if !ok {
		d = o.ResultRetention[""]
	}
	d = cmp.Or(d, day)
	if class == batchRecords {
		d += maxWindow // the lines of a batch are read when the last one has ended
	}
	return d
}
