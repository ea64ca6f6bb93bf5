package remote

import (
	"errors"
	"fmt"

	"inferplan/engine"
)

// op is what a request asks for.
type op uint8

const (
	opInfo op = iota + 1
	opDevices
	opLoad
	opUnload
	opBind
	opUnbind
	opRun
	opWrite
	opRead
)

func (o op) String() string {
	names := []string{"info", "devices", "load", "unload", "bind", "unbind", "run", "write", "read"}
	if o < 1 || int(o) > len(names) {
		return fmt.Sprintf("call %d", uint8(o))
	}
	return names[o-1]
}

// request is one call. Blocks, bindings and tensors are named by numbers that
// the process gave out.
type request struct {
	Op      op
	ID      uint64 // of the block, binding or tensor that is meant
	Model   *engine.Submodel
	Device  engine.Device
	Options engine.Options
	Batch   int
	HostIO  bool
	Inputs  []uint64 // tensors to bind, 0: the engine's own
	Outputs []uint64
	Runs    int // 0: Run, else RunN
	Data    []byte
}

// response answers one request.
type response struct {
	Failed  bool
	Code    uint8 // of the engine's error, see kinds
	Text    string
	ID      uint64
	Info    engine.Info
	Devices []engine.Device
	Inputs  []tensorRef
	Outputs []tensorRef
	Timing  engine.Timing
	Data    []byte
}

// tensorRef describes a tensor that lies in the process.
type tensorRef struct {
	ID    uint64
	Spec  engine.Spec
	Batch int
}

// kinds are the engine's errors that callers tell apart; their places are
// their codes on the wire.
var kinds = []error{nil, engine.ErrNoLibrary, engine.ErrNoDevice, engine.ErrFallback, engine.ErrModel, engine.ErrShape, engine.ErrClosed}

func failure(err error) *response {
	r := &response{Failed: true, Text: err.Error()}
	for i, k := range kinds {
		if k != nil && errors.Is(err, k) {
			r.Code = uint8(i)
		}
	}
	return r
}

// Error is a failure of the engine in the other process; errors.Is sees the
// engine's kinds of errors through it.
type Error struct {
	text string
	kind error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.kind }

func (r *response) err() error {
	if !r.Failed {
		return nil
	}
	e := &Error{text: r.Text}
	if int(r.Code) < len(kinds) {
		e.kind = kinds[r.Code]
	}
	return e
}
