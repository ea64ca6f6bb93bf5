package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/trace"
)

// Request is a request with a span, from BeginRequest to End. All methods may be called on a nil Request.
type Request struct {
	parent     Parent          // the span below which other processes work for it
	headers    *[2][]string    // of CarryParent, in place of parent; else nil
	tracer     *Tracer         // nil if its spans are not made
	ctx        context.Context // has the span of the door
	door       api.Span
	receivedAt time.Time

	mu         sync.Mutex
	progress   Progress
	answeredAt time.Time // zero until it is answered
}

// Progress holds the times of a request inside.
type Progress struct {
	ArrivedAt time.Time
	Runs      []Run
}

// Run is a wait of a request for a batch, and the batch.
type Run struct {
	Service                         string // model
	Size                            int    // samples of the batch
	Number                          uint64 // of the batch, the same for all its requests
	QueuedAt, DispatchedAt, EndedAt time.Time
	Hops                            []Hop
}

// Hop is a batch on a device.
type Hop struct {
	Device             string
	StartedAt, EndedAt time.Time
}

// BeginRequest begins a request that was received at a time, and whose client names a parent. Without a tracer, or if
// the sampler leaves the request out, its spans are not made, and it only carries the parent on. If there is none
// either, it returns nil.
func (t *Tracer) BeginRequest(protocol, model string, parent Parent, receivedAt time.Time) *Request {
	if t == nil {
		if parent.Traceparent == "" {
			return nil
		}
		return &Request{parent: parent}
	}
	ctx, door := t.tracer.Start(parent.context(), "door", api.WithTimestamp(receivedAt), api.WithSpanKind(api.SpanKindServer),
		api.WithAttributes(attribute.String("inferplan.protocol", protocol), attribute.String("inferplan.model", model)))
	if !door.IsRecording() {
		return &Request{parent: parentOf(ctx)}
	}
	return &Request{parent: parentOf(ctx), tracer: t, ctx: ctx, door: door, receivedAt: receivedAt.Round(0)}
}

// CarryParent returns a request without spans, which carries the parent on that its client's headers name, by their
// values. They are read by Parent, which is called for requests that go on to a server of language models.
func CarryParent(traceparent, tracestate []string) *Request {
	if len(traceparent) == 0 {
		return nil
	}
	return &Request{headers: &[2][]string{traceparent, tracestate}}
}

// Parent returns the span below which other processes work for the request: its door, or the client's span if no spans
// are made.
func (r *Request) Parent() Parent {
	if r == nil {
		return Parent{}
	}
	if r.headers != nil {
		return ParentIn(r.headers[0], r.headers[1])
	}
	return r.parent
}

// IsRecording reports whether spans of the request are made.
func (r *Request) IsRecording() bool { return r != nil && r.tracer != nil }

// Answered notes that a request was answered at a time, after this progress. Later calls do nothing.
func (r *Request) Answered(at time.Time, progress Progress) {
	if !r.IsRecording() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answeredAt.IsZero() {
		r.answeredAt, r.progress = laterTime(at.Round(0), r.receivedAt), progress
	}
}

// Fail notes the error with which a request ends.
func (r *Request) Fail(text string) {
	if r.IsRecording() {
		r.door.SetStatus(codes.Error, text)
	}
}

// End ends a request, with its error if it has one, and makes its spans.
func (r *Request) End(err error) {
	if !r.IsRecording() {
		return
	}
	if err != nil {
		r.Fail(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := laterTime(laterTime(time.Now().Round(0), r.answeredAt), r.receivedAt)
	for i := range r.progress.Runs {
		r.addRun(&r.progress.Runs[i])
	}
	if len(r.progress.Runs) == 0 && !r.progress.ArrivedAt.IsZero() {
		r.tracer.add(r.ctx, "queue", r.timeInside(r.progress.ArrivedAt), r.answeredAt)
	}
	if !r.answeredAt.IsZero() {
		r.tracer.add(r.ctx, "answer", r.answeredAt, now)
	}
	r.door.End(api.WithTimestamp(now))
}

// laterTime returns the later one of two times.
func laterTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// timeInside returns a time as one of the request: clocks of parts differ a little, and what has not ended (a zero time), or
// ends later, ends with the answer. Spans have times of the wall clock, which Round leaves alone.
func (r *Request) timeInside(at time.Time) time.Time {
	at = at.Round(0)
	switch {
	case at.IsZero() || at.After(r.answeredAt):
		return r.answeredAt
	case at.Before(r.receivedAt):
		return r.receivedAt
	}
	return at
}

// addRun makes the spans of a run.
func (r *Request) addRun(run *Run) {
	r.tracer.add(r.ctx, "queue", r.timeInside(run.QueuedAt), r.timeInside(run.DispatchedAt), attribute.String("inferplan.model", run.Service))
	ctx, batch := r.tracer.start(r.ctx, "batch", r.timeInside(run.DispatchedAt), attribute.String("inferplan.model", run.Service),
		attribute.Int("inferplan.batch.size", run.Size), attribute.Int64("inferplan.batch.number", int64(run.Number)))
	for _, hop := range run.Hops {
		r.tracer.add(ctx, "device", r.timeInside(hop.StartedAt), r.timeInside(hop.EndedAt), attribute.String("inferplan.device", hop.Device))
	}
	batch.End(api.WithTimestamp(r.timeInside(run.EndedAt)))
}

// BeginAnswer begins the run of a request by a server of another process: it has waited at a queue since queuedAt and
// is with an instance now. It returns the parent for that server, and the function that ends the run. Without a tracer,
// or a parent of the request, no spans are made, and the parent stays the request's.
func (t *Tracer) BeginAnswer(parent Parent, model, instance string, queuedAt time.Time) (Parent, func(error)) {
	if t == nil || parent.Traceparent == "" {
		return parent, func(error) {}
	}
	now := time.Now()
	if queuedAt.After(now) {
		queuedAt = now
	}
	ctx := parent.context()
	t.add(ctx, "queue", queuedAt, now, attribute.String("inferplan.model", model))
	ctx, batch := t.start(ctx, "batch", now, attribute.String("inferplan.model", model), attribute.Int("inferplan.batch.size", 1))
	ctx, device := t.tracer.Start(ctx, "device", api.WithTimestamp(now), api.WithSpanKind(api.SpanKindClient), api.WithAttributes(attribute.String("inferplan.device", instance)))
	return parentOf(ctx), func(err error) {
		if err != nil {
			device.SetStatus(codes.Error, err.Error())
		}
		device.End()
		batch.End()
	}
}
