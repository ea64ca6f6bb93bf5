package oip

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// core is shared by both transports: it brings a decoded request to the backend and the response back, and it holds
// the gate that closes when the server drains.
type core struct {
	backend Backend
	opt     Options
	gate    httplimit.Gate
}

// ready reports whether inferences are accepted.
func (c *core) ready() bool {
	return !c.gate.IsClosed() && !c.opt.Door.Budget.NearlyFull() && c.backend.Ready()
}

// modelReady returns whether the server accepts inferences of a model version now.
func (c *core) modelReady(model, version string) bool {
	if !c.ready() {
		return false
	}
	if r, ok := c.backend.(ModelReadier); ok {
		return r.ModelReady(model, version)
	}
	return true
}

// infer checks a decoded request, runs it in the backend and completes the response: it has the request's identity
// and exactly the requested outputs, in their order, and its Release is never nil. holder is the client whose key
// the request came with; its class is that of the request if the request names none.
func (c *core) infer(ctx context.Context, m *ModelInfo, r *Request, holder *httplimit.Holder) (*Response, *Error) {
	if r.Class == "" && slices.Contains(m.Classes, holder.Class) {
		r.Class = holder.Class
	}
	if len(r.Inputs) > c.opt.MaxTensors {
		return nil, httplimit.TooLarge("inputs", "%d tensors, at most %d are taken", len(r.Inputs), c.opt.MaxTensors)
	}
	if len(r.Outputs) > c.opt.MaxTensors {
		return nil, httplimit.TooLarge("outputs", "%d tensors, at most %d are taken", len(r.Outputs), c.opt.MaxTensors)
	}
	if err := m.validate(r); err != nil {
		return nil, err
	}
	resp, err := c.call(ctx, r)
	if err != nil {
		return nil, httplimit.AsError(err)
	}
	if resp.Release == nil {
		resp.Release = func() {}
	}
	if err := c.completeResponse(m, r, resp); err != nil {
		resp.Release()
		return nil, err
	}
	return resp, nil
}

// call runs a validated request in the backend and returns its response. A panic there, or a backend that returns
// nothing, becomes an internal error of this request alone.
func (c *core) call(ctx context.Context, r *Request) (resp *Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.opt.Door.Log.Error("panic in an inference", "model", r.Model, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			resp, err = nil, httplimit.Internal(nil, "internal error while running model %q", r.Model)
		}
	}()
	resp, err = c.backend.Infer(ctx, r)
	if resp == nil && err == nil {
		err = httplimit.Internal(nil, "model %q returned neither outputs nor an error", r.Model)
	}
	return resp, err
}

// completeResponse fills in the identity of a response (id, model, version), selects the requested outputs, and
// checks that their bytes fit their shapes. A partial response may lack outputs.
func (c *core) completeResponse(m *ModelInfo, r *Request, resp *Response) *Error {
	resp.ID = r.ID
	resp.Model = cmp.Or(resp.Model, r.Model)
	if resp.Version == "" {
		if resp.Version = r.Version; resp.Version == "" {
			resp.Version = m.Versions[len(m.Versions)-1]
		}
	}

	// Select the outputs, unless they are the requested ones already.
	if len(r.Outputs) > 0 && !sameOutputs(r.Outputs, resp.Outputs) {
		requested := make([]Tensor, 0, len(r.Outputs))
		for i := range r.Outputs {
			j := findOutput(resp.Outputs, r.Outputs[i].Name)
			if j < 0 && resp.Partial {
				continue
			}
			if j < 0 {
				return httplimit.Internal(nil, "model %q did not return output %q", r.Model, r.Outputs[i].Name)
			}
			requested = append(requested, resp.Outputs[j])
		}
		resp.Outputs = requested
	}
	for i := range resp.Outputs {
		if err := checkData(&resp.Outputs[i]); err != nil {
			return httplimit.Internal(err, "model %q returned a faulty output %q:%s: %s", r.Model, resp.Outputs[i].Name, err.Field, err.Msg)
		}
	}
	return nil
}

// sameOutputs returns whether the returned outputs are the requested ones, in the requested order.
func sameOutputs(requested []OutputRequest, returned []Tensor) bool {
	if len(requested) != len(returned) {
		return false
	}
	for i := range requested {
		if requested[i].Name != returned[i].Name {
			return false
		}
	}
	return true
}

// findOutput returns the index of the tensor with a name. If there is none, it returns -1.
func findOutput(ts []Tensor, name string) int {
	for i := range ts {
		if ts[i].Name == name {
			return i
		}
	}
	return -1
}

// beginTrace begins the trace of the request, below the parent that its headers or metadata name.
func (r *Request) beginTrace(tracer *tracing.Tracer, protocol string, traceparent, tracestate []string) {
	if tracer == nil {
		r.Trace = tracing.CarryParent(traceparent, tracestate)
		return
	}
	var parent tracing.Parent
	if len(traceparent) > 0 {
		parent = tracing.ParentIn(traceparent, tracestate)
	}
	r.Trace = tracer.BeginRequest(protocol, r.Model, parent, r.Received)
}

// capTimeout lowers the timeout of the request to d. Zero stands for no timeout.
func (r *Request) capTimeout(d time.Duration) {
	if d > 0 && (r.Timeout == 0 || d < r.Timeout) {
		r.Timeout = d
	}
}

// classHeader sets the request's SLO class from the values of the header (or gRPC metadata) HeaderClass, which may
// be absent. Two values, or another class in the request's parameters, are an error.
func (r *Request) classHeader(values []string) *Error {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return httplimit.Invalid(HeaderClass, "given %d times", len(values))
	}
	return r.setClass(HeaderClass, values[0])
}

var errDraining = httplimit.Unavailable("draining", "the server is shutting down")
