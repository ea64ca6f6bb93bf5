package executor

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"inferplan/engine"
	"inferplan/executor/oip"
)

// model is a served model, or one SLO class of it.
type model struct {
	index   int32
	name    string
	class   string
	label   string // name/class, for messages
	slo     time.Duration
	inputs  []tensor
	outputs []tensor
	brings  map[string]string // parameters of a workflow's requests, with their types
	family  bool              // of models that may name their tensors differently
	stats   *modelStats
	metrics *modelMetrics

	waiting atomic.Int64 // samples with the policy, not in a batch
	running atomic.Int64 // samples in batches
}

// tensor is an input or output of a model.
type tensor struct {
	name     string
	datatype oip.Datatype
	shape    []int64 // [0] is -1, the batch; of a model that runs whole all are fixed
	bytes    int     // per sample
	text     bool    // a text, filled up with zeros
}

var oipTypes = map[engine.DType]oip.Datatype{
	engine.F32: oip.FP32, engine.F16: oip.FP16, engine.F64: oip.FP64, engine.I64: oip.Int64, engine.I32: oip.Int32,
	engine.I16: oip.Int16, engine.I8: oip.Int8, engine.U64: oip.Uint64, engine.U32: oip.Uint32, engine.U16: oip.Uint16, engine.U8: oip.Uint8,
	engine.Bool: oip.Bool, engine.BF16: oip.BF16,
}

// tensorsOf are the engine's tensors as the protocol knows them.
func tensorsOf(specs []engine.Spec) (out []tensor, err error) {
	for _, s := range specs {
		t, ok := oipTypes[s.Type]
		if !ok {
			return nil, fmt.Errorf("%s cannot be served over the protocol", s)
		}
		if len(s.Shape) == 0 || s.Shape[0] != engine.BatchDim && s.Shape[0] < 1 {
			return nil, fmt.Errorf("%s has no batch dimension", s)
		}
		out = append(out, tensor{name: s.Name, datatype: t, shape: slices.Clone(s.Shape), bytes: int(s.BytesAt(1))})
	}
	return out, nil
}

// specsOf turns them back.
func specsOf(list []tensor) []engine.Spec {
	out := make([]engine.Spec, len(list))
	for i, t := range list {
		for own, d := range oipTypes {
			if d == t.datatype {
				out[i] = engine.Spec{Name: t.name, Type: own, Shape: t.shape}
			}
		}
	}
	return out
}

// setTensors notes a model's inputs or outputs, which all of its pipelines
// must have alike.
func (m *model) setTensors(dst *[]tensor, specs []engine.Spec, what string) error {
	got, err := tensorsOf(specs)
	if err != nil {
		return fmt.Errorf("%w: model %s: %s %w", ErrPlan, m.name, what, err)
	}
	first := slices.Concat(m.inputs, got)[:1]
	for i := range got {
		if (got[i].shape[0] == engine.BatchDim) != (first[0].shape[0] == engine.BatchDim) {
			return fmt.Errorf("%w: model %s: %s and %s: either all tensors have a batch dimension, or none", ErrPlan, m.name, first[0].name, specs[i])
		}
	}
	if *dst == nil {
		*dst = got
		return nil
	}
	same := slices.EqualFunc(*dst, got, func(a, b tensor) bool {
		return (a.name == b.name || m.family) && a.datatype == b.datatype && slices.Equal(a.shape, b.shape)
	})
	if !same {
		if m.family {
			return fmt.Errorf("%w: the models of the family differ in the type or shape of their %ss: requests must fit all of them", ErrPlan, what)
		}
		return fmt.Errorf("%w: model %s: its pipelines differ in their %ss", ErrPlan, m.name, what)
	}
	return nil
}

// runsWhole tells whether a request is one whole run, whose tensors have no batch dimension.
func (m *model) runsWhole() bool { return len(m.inputs) > 0 && m.inputs[0].shape[0] != engine.BatchDim }

// describe makes the catalog, which describes the models to clients.
func (s *offer) describe(o *Options) (err error) {
	var infos []oip.ModelInfo
	for _, m := range s.models {
		if err := s.sameTensors(m); err != nil {
			return err
		}
		if slices.ContainsFunc(infos, func(i oip.ModelInfo) bool { return i.Name == m.name }) {
			continue // another class of it
		}
		info := oip.ModelInfo{Name: m.name, Versions: []string{version}, Platform: platform(o.Engine), MaxBatch: o.MaxRequestBatch}
		if m.runsWhole() {
			info.MaxBatch = 0
		}
		if s.named.Named(m.name) {
			info.Classes = s.named.Of(m.name)
		}
		for _, t := range m.inputs {
			info.Inputs = append(info.Inputs, oip.TensorInfo{Name: t.name, Datatype: t.datatype, Shape: t.shape, Text: t.text})
		}
		for _, t := range m.outputs {
			info.Outputs = append(info.Outputs, oip.TensorInfo{Name: t.name, Datatype: t.datatype, Shape: t.shape, Text: t.text})
		}
		infos = append(infos, info)
	}
	for _, name := range slices.Sorted(maps.Keys(s.sizes)) {
		of := s.sizes[name]
		like := infos[slices.IndexFunc(infos, func(i oip.ModelInfo) bool { return i.Name == of.buckets[0].model })]
		info, err := of.describe(like, s)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	s.catalog, err = oip.NewCatalog(infos...)
	return err
}

// version is what clients see: a plan serves one version of a model.
const version = "1"

func platform(engine string) string {
	if engine == "onnx" {
		return "onnxruntime_onnx"
	}
	return "inferplan_" + engine
}

// findTensor looks at the model's own position first.
func findTensor(ts []oip.Tensor, i int, name string) *oip.Tensor {
	if i < len(ts) && ts[i].Name == name {
		return &ts[i]
	}
	if k := slices.IndexFunc(ts, func(t oip.Tensor) bool { return t.Name == name }); k >= 0 {
		return &ts[k]
	}
	return nil
}
