package remote

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"runtime"

	"inferplan/engine"
)

// Serve answers calls on a connection with an engine until the connection
// ends, and frees what is still loaded. The calling goroutine is tied to its
// thread meanwhile; a load on a set of CPUs pins it to them. The engine stays the
// caller's to close.
func Serve(conn io.ReadWriter, eng engine.Engine) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := &server{
		eng: eng, blocks: map[uint64]engine.Block{}, bindings: map[uint64]*boundBlock{}, tensors: map[uint64]engine.Tensor{},
	}
	defer func() { err = errors.Join(err, s.free()) }()
	in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var q request
		switch err := in.Decode(&q); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a call: %w", err)
		}
		r, err := s.answer(&q)
		if err != nil {
			r = failure(err)
		}
		if err := out.Encode(r); err != nil {
			return fmt.Errorf("answer the call %s: %w", q.Op, err)
		}
	}
}

// refuse answers the first call with the reason why there is no engine.
func refuse(conn io.ReadWriter, why error) error {
	var q request
	if err := gob.NewDecoder(conn).Decode(&q); err != nil {
		return fmt.Errorf("read a call: %w", err)
	}
	if err := gob.NewEncoder(conn).Encode(failure(why)); err != nil {
		return fmt.Errorf("answer the call %s: %w", q.Op, err)
	}
	return nil
}

type server struct {
	eng      engine.Engine
	blocks   map[uint64]engine.Block
	bindings map[uint64]*boundBlock
	tensors  map[uint64]engine.Tensor
	last     uint64
	unpin    func()
}

// boundBlock is a binding with the names of its tensors.
type boundBlock struct {
	engine.Binding
	block   uint64
	tensors []uint64 // those named for this binding
}

func (s *server) next() uint64 {
	s.last++
	return s.last
}

func (s *server) free() error {
	var errs []error
	for _, b := range s.bindings {
		errs = append(errs, b.Close())
	}
	for _, b := range s.blocks {
		errs = append(errs, b.Close())
	}
	if s.unpin != nil {
		s.unpin()
	}
	return errors.Join(errs...)
}

func (s *server) answer(q *request) (*response, error) {
	switch q.Op {
	case opInfo:
		return &response{Info: s.eng.Info()}, nil
	case opDevices:
		d, err := s.eng.Devices()
		return &response{Devices: d}, err
	case opLoad:
		return s.load(q)
	case opUnload:
		return s.unload(q.ID)
	case opBind:
		return s.bind(q)
	case opUnbind:
		return s.unbind(q.ID)
	case opRun:
		return s.run(q)
	case opWrite, opRead:
		return s.copy(q)
	}
	return nil, fmt.Errorf("%s: expected a call that this version knows", q.Op)
}

func (s *server) load(q *request) (*response, error) {
	if q.Model == nil {
		return nil, fmt.Errorf("%w: load without a model", engine.ErrModel)
	}
	if s.unpin == nil && q.Device.IsCPU() && len(q.Device.CPUs) > 0 {
		unpin, err := engine.PinThread(q.Device.CPUs...)
		if err != nil {
			return nil, err
		}
		s.unpin = unpin
	}
	b, err := s.eng.Load(context.Background(), q.Model, q.Device, q.Options)
	if err != nil {
		return nil, err
	}
	q.Model.ONNX = nil // the engine has its own copy
	id := s.next()
	s.blocks[id] = b
	return &response{ID: id}, nil
}

func unknown(what string, id uint64) error {
	return fmt.Errorf("%s %d: %w", what, id, engine.ErrClosed)
}

func (s *server) unload(id uint64) (*response, error) {
	b, ok := s.blocks[id]
	if !ok {
		return nil, unknown("block", id)
	}
	for i, x := range s.bindings {
		if x.block == id {
			return nil, fmt.Errorf("block %d is closed before its binding %d", id, i)
		}
	}
	delete(s.blocks, id)
	return &response{}, b.Close()
}

func (s *server) bind(q *request) (*response, error) {
	b, ok := s.blocks[q.ID]
	if !ok {
		return nil, unknown("block", q.ID)
	}
	o := engine.BindOptions{Batch: q.Batch, HostIO: q.HostIO}
	var err error
	if o.Inputs, err = s.given(q.Inputs); err != nil {
		return nil, err
	}
	if o.Outputs, err = s.given(q.Outputs); err != nil {
		return nil, err
	}
	x, err := b.Bind(o)
	if err != nil {
		return nil, err
	}
	bound := &boundBlock{Binding: x, block: q.ID}
	r := &response{ID: s.next()}
	s.bindings[r.ID] = bound
	r.Inputs = s.name(bound, x.Inputs(), q.Inputs)
	r.Outputs = s.name(bound, x.Outputs(), q.Outputs)
	return r, nil
}

// given looks tensors up that a binding is to use.
func (s *server) given(ids []uint64) ([]engine.Tensor, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	out := make([]engine.Tensor, len(ids))
	for i, id := range ids {
		if id == 0 {
			continue
		}
		t, ok := s.tensors[id]
		if !ok {
			return nil, unknown("tensor", id)
		}
		out[i] = t
	}
	return out, nil
}

// name gives numbers to the tensors of a binding that have none yet.
func (s *server) name(b *boundBlock, list []engine.Tensor, known []uint64) []tensorRef {
	out := make([]tensorRef, len(list))
	for i, t := range list {
		var id uint64
		if i < len(known) {
			id = known[i]
		}
		if id == 0 {
			id = s.next()
			s.tensors[id] = t
			b.tensors = append(b.tensors, id)
		}
		out[i] = tensorRef{ID: id, Spec: t.Spec(), Batch: t.Batch()}
	}
	return out
}

func (s *server) unbind(id uint64) (*response, error) {
	b, ok := s.bindings[id]
	if !ok {
		return nil, unknown("binding", id)
	}
	delete(s.bindings, id)
	for _, t := range b.tensors {
		delete(s.tensors, t)
	}
	return &response{}, b.Close()
}

func (s *server) run(q *request) (*response, error) {
	b, ok := s.bindings[q.ID]
	if !ok {
		return nil, unknown("binding", q.ID)
	}
	if q.Runs == 0 {
		return &response{}, b.Run(context.Background())
	}
	t, err := b.RunN(q.Runs)
	return &response{Timing: t}, err
}

func (s *server) copy(q *request) (*response, error) {
	t, ok := s.tensors[q.ID]
	if !ok {
		return nil, unknown("tensor", q.ID)
	}
	if q.Op == opWrite {
		return &response{}, t.Write(q.Data)
	}
	data := make([]byte, t.Spec().BytesAt(t.Batch()))
	return &response{Data: data}, t.Read(data)
}
