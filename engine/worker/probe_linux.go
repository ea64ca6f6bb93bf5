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
	Do      string `json:"do"` // load, unload, bind, unbind, run, write or read
	Block   uint32 `json:"block,omitempty"`
	Binding uint32 `json:"binding,omitempty"`
	Size    int64  `json:"size,omitempty"` // bytes of the memory whose descriptor comes with the frame: an ONNX model or a tensor

	Submodel engine.Submodel `json:"submodel,omitzero"` // for load
	Options  engine.Options  `json:"options,omitzero"`
	Batch    int             `json:"batch,omitempty"` // for bind
	HostIO   bool            `json:"host_io,omitempty"`
	Inputs   []TensorRef     `json:"inputs,omitempty"`
	Outputs  []TensorRef     `json:"outputs,omitempty"`
	Runs     int             `json:"runs,omitempty"`  // for run
	Tensor   TensorRef       `json:"tensor,omitzero"` // for write and read
}

// TensorRef names a tensor of a binding. If Binding is 0, the engine makes a new tensor.
type TensorRef struct {
	Binding uint32 `json:"binding"`
	Output  bool   `json:"output,omitempty"`
	Index   int    `json:"index,omitempty"`
}

// probeBinding is a binding of a block that the parent has cut.
type probed struct {
	engine.Binding
	block uint32
}

// probe does one step. The engine times runs itself, so that their time does not include the socket.
func (s *server) probe(ctx context.Context, p []byte) (t engine.Timing, err error) {
	q, err := parseJSON[Probe](TypeProbe, p)
	if err != nil {
		return t, err
	}

	// Data travel in a shared segment beside the frame.
	var data []byte
	if q.Size > 0 {
		seg, err := s.received(TypeProbe, 0, q.Size)
		if err != nil {
			return t, err
		}
		defer seg.Close()
		data = seg.Data
	}

	// Carry out the command on the block or the binding.
	block, loaded := s.blocks[q.Block]
	b, bound := s.probed[q.Binding]
	switch {
	case q.Do == "load":
		// Engines keep the model if every batch size needs its own session.
		q.Submodel.ONNX = slices.Clone(data)
		block, err := s.loader.LoadBlock(ctx, &q.Submodel, q.Options)
		if q.Submodel.ONNX = nil; err == nil {
			s.blocks[q.Block] = block
		}
		return t, err
	case q.Do == "unload" && loaded:
		for i, x := range s.probed {
			if x.block == q.Block {
				return t, fmt.Errorf("block %d is closed before its binding %d", q.Block, i)
			}
		}
		delete(s.blocks, q.Block)
		return t, block.Close()
	case q.Do == "bind" && loaded:
		return t, s.bindBlock(block, &q)
	case q.Do == "unbind" && bound:
		delete(s.probed, q.Binding)
		return t, b.Close()
	case q.Do == "run" && bound:
		return b.RunN(q.Runs)
	case q.Do == "write", q.Do == "read":
		x, err := s.tensor(q.Tensor)
		if err == nil && q.Do == "write" {
			err = x.Write(data)
		} else if err == nil {
			err = x.Read(data)
		}
		return t, err
	}
	return t, fmt.Errorf("%q of block %d, binding %d: %w", q.Do, q.Block, q.Binding, engine.ErrClosed)
}

func (s *server) bindBlock(block engine.Block, q *Probe) (err error) {
	o := engine.BindOptions{Batch: q.Batch, HostIO: q.HostIO}
	if o.Inputs, err = s.given(q.Inputs); err != nil {
		return err
	}
	if o.Outputs, err = s.given(q.Outputs); err != nil {
		return err
	}
	b, err := block.Bind(o)
	if err == nil {
		s.probed[q.Binding] = probed{b, q.Block}
	}
	return err
}

// boundTensors returns the tensors that a new binding is to use, nil for those that the engine makes.
func (s *server) given(refs []TensorRef) (list []engine.Tensor, err error) {
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

func (s *server) tensor(r TensorRef) (engine.Tensor, error) {
	var side []engine.Tensor
	if b, ok := s.probed[r.Binding]; ok && r.Output {
		side = b.Outputs()
	} else if ok {
		side = b.Inputs()
	}
	if r.Index < 0 || r.Index >= len(side) {
		return nil, fmt.Errorf("tensor %d of binding %d: %w", r.Index, r.Binding, engine.ErrClosed)
	}
	return side[r.Index], nil
}
