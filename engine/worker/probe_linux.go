package worker

import (
	"context"
	"fmt"
	"slices"

	"inferplan/engine"
)

// Probe asks for one step of measuring blocks that the parent has cut. The parent numbers blocks and bindings,
// from 1.
type Probe struct {
	Operation string `json:"do"` // load, unload, bind, unbind, run, write or read
	Block     uint32 `json:"block,omitempty"`
	Binding   uint32 `json:"binding,omitempty"`
	Size      int64  `json:"size,omitempty"` // bytes of the memory whose descriptor comes with the frame: an ONNX model or a tensor

	Submodel engine.Submodel `json:"submodel,omitzero"` // for load
	Options  engine.Options  `json:"options,omitzero"`
	Batch    int             `json:"batch,omitempty"` // for bind
	HostIO   bool            `json:"host_io,omitempty"`
	Inputs   []TensorRef     `json:"inputs,omitempty"`
	Outputs  []TensorRef     `json:"outputs,omitempty"`
	RunCount int             `json:"runs,omitempty"`  // for run
	Tensor   TensorRef       `json:"tensor,omitzero"` // for write and read
}

// TensorRef names a tensor of a binding. If Binding is 0, the engine makes a new tensor.
type TensorRef struct {
	Binding uint32 `json:"binding"`
	Output  bool   `json:"output,omitempty"`
	Index   int    `json:"index,omitempty"`
}

// probeBinding is a binding of a block that the parent has cut.
type probeBinding struct {
	engine.Binding
	block uint32
}

// probe handles a probe frame, a step of measuring a block that the parent has cut: it loads or frees a block, binds
// or unbinds it, runs a binding several times, or writes or reads a tensor. The engine times runs itself, so that
// their time does not include the socket.
func (s *server) probe(ctx context.Context, p []byte) (t engine.Timing, err error) {
	request, err := parseJSON[Probe](TypeProbe, p)
	if err != nil {
		return t, err
	}

	// Data travel in a shared segment beside the frame.
	var data []byte
	if request.Size > 0 {
		seg, err := s.mapReceived(TypeProbe, 0, request.Size)
		if err != nil {
			return t, err
		}
		defer seg.Close()
		data = seg.Data
	}

	// Carry out the command on the block or the binding.
	block, isLoaded := s.blocks[request.Block]
	b, isBound := s.probeBindings[request.Binding]
	switch {
	case request.Operation == "load":
		// Engines keep the model if every batch size needs its own session.
		request.Submodel.ONNX = slices.Clone(data)
		block, err := s.loader.LoadBlock(ctx, &request.Submodel, request.Options)
		if request.Submodel.ONNX = nil; err == nil {
			s.blocks[request.Block] = block
		}
		return t, err
	case request.Operation == "unload" && isLoaded:
		for i, x := range s.probeBindings {
			if x.block == request.Block {
				return t, fmt.Errorf("block %d is closed before its binding %d", request.Block, i)
			}
		}
		delete(s.blocks, request.Block)
		return t, block.Close()
	case request.Operation == "bind" && isLoaded:
		return t, s.bindBlock(block, &request)
	case request.Operation == "unbind" && isBound:
		delete(s.probeBindings, request.Binding)
		return t, b.Close()
	case request.Operation == "run" && isBound:
		return b.RunN(request.RunCount)
	case request.Operation == "write", request.Operation == "read":
		x, err := s.tensor(request.Tensor)
		if err == nil && request.Operation == "write" {
			err = x.Write(data)
		} else if err == nil {
			err = x.Read(data)
		}
		return t, err
	}
	return t, fmt.Errorf("%q of block %d, binding %d: %w", request.Operation, request.Block, request.Binding, engine.ErrClosed)
}

// bindBlock binds a block that the parent measures to tensors, under the number that the parent has given to the
// binding (q.Binding).
func (s *server) bindBlock(block engine.Block, q *Probe) (err error) {
	o := engine.BindOptions{Batch: q.Batch, HostIO: q.HostIO}
	if o.Inputs, err = s.boundTensors(q.Inputs); err != nil {
		return err
	}
	if o.Outputs, err = s.boundTensors(q.Outputs); err != nil {
		return err
	}
	b, err := block.Bind(o)
	if err == nil {
		s.probeBindings[q.Binding] = probeBinding{b, q.Block}
	}
	return err
}

// boundTensors returns the tensors that a new binding is to use, by references to other bindings: nil for those that
// the engine makes.
func (s *server) boundTensors(refs []TensorRef) (list []engine.Tensor, err error) {
	for _, r := range refs {
		var t engine.Tensor
		if r.Binding != 0 {
			if t, err = s.tensor(r); err != nil {
				return nil, err
			}
		}
		list = append(list, t)
	}
	return list, nil
}

// tensor returns the tensor of a binding that a reference names.
func (s *server) tensor(r TensorRef) (engine.Tensor, error) {
	var tensors []engine.Tensor
	if b, ok := s.probeBindings[r.Binding]; ok && r.Output {
		tensors = b.Outputs()
	} else if ok {
		tensors = b.Inputs()
	}
	if r.Index < 0 || r.Index >= len(tensors) {
		return nil, fmt.Errorf("tensor %d of binding %d: %w", r.Index, r.Binding, engine.ErrClosed)
	}
	return tensors[r.Index], nil
}
