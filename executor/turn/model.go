package turn

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"inferplan/engine"
	"inferplan/executor/oip"
)

// Model is a served model, or one SLO class of it.
type Model struct {
	Index      int32
	Name       string
	Class      string
	Label      string // name/class, for messages
	Slo        time.Duration
	Inputs     []Tensor
	Outputs    []Tensor
	Parameters map[string]string // parameters of a workflow's requests, with their types
	inFamily   bool              // models of a family may name their tensors differently
	Stats      *modelStats
	metrics    *modelMetrics

	Waiting atomic.Int64 // samples that wait with the policy
	Running atomic.Int64 // samples in batches
}

// Tensor is an input or output of a model.
type Tensor struct {
	Name     string
	Datatype oip.Datatype
	Shape    []int64 // [0] is -1, the batch; if the model has no batch axis, all are fixed
	Bytes    int     // per sample
	Text     bool    // a text, padded with zeros
}

var oipTypes = map[engine.DType]oip.Datatype{
	engine.F32: oip.FP32, engine.F16: oip.FP16, engine.F64: oip.FP64, engine.I64: oip.Int64, engine.I32: oip.Int32,
	engine.I16: oip.Int16, engine.I8: oip.Int8, engine.U64: oip.Uint64, engine.U32: oip.Uint32, engine.U16: oip.Uint16, engine.U8: oip.Uint8,
	engine.Bool: oip.Bool, engine.BF16: oip.BF16,
}

// TensorsOf returns an engine's tensors in the form of the inference protocol, with the bytes of one sample. It
// returns an error for a type that the protocol lacks, or a tensor without a batch dimension.
func TensorsOf(specs []engine.Spec) (out []Tensor, err error) {
	for _, s := range specs {
		t, ok := oipTypes[s.Type]
		if !ok {
			return nil, fmt.Errorf("%s cannot be served over the protocol", s)
		}
		if len(s.Shape) == 0 || s.Shape[0] != engine.BatchDim && s.Shape[0] < 1 {
			return nil, fmt.Errorf("%s has no batch dimension", s)
		}
		out = append(out, Tensor{Name: s.Name, Datatype: t, Shape: slices.Clone(s.Shape), Bytes: int(s.BytesAt(1))})
	}
	return out, nil
}

// SpecsOf returns the specs (name, type, shape) of tensors in the form of package engine, which has its own names for
// data types. It returns an empty spec for a type that no engine has.
func SpecsOf(list []Tensor) []engine.Spec {
	out := make([]engine.Spec, len(list))
	for i, t := range list {
		for engineType, d := range oipTypes {
			if d == t.Datatype {
				out[i] = engine.Spec{Name: t.Name, Type: engineType, Shape: t.Shape}
			}
		}
	}
	return out
}

// SetTensors sets a model's inputs or outputs (dst points to either, direction names it for errors) to those of a
// pipeline that was loaded. If a pipeline before has set others, it returns an error, because all pipelines (the model
// on different devices) answer the same requests. In a family, the models of a cascade, the names may differ.
func (m *Model) SetTensors(dst *[]Tensor, specs []engine.Spec, direction string) error {
	tensors, err := TensorsOf(specs)
	if err != nil {
		return fmt.Errorf("%w: model %s: %s %w", ErrPlan, m.Name, direction, err)
	}
	first := slices.Concat(m.Inputs, tensors)[:1] // the model's first tensor, with which all others are compared
	for i := range tensors {
		if (tensors[i].Shape[0] == engine.BatchDim) != (first[0].Shape[0] == engine.BatchDim) {
			return fmt.Errorf("%w: model %s: %s and %s: either all tensors have a batch dimension, or none", ErrPlan, m.Name, first[0].Name, specs[i])
		}
	}
	if *dst == nil {
		*dst = tensors
		return nil
	}
	equal := slices.EqualFunc(*dst, tensors, func(a, b Tensor) bool {
		return (a.Name == b.Name || m.inFamily) && a.Datatype == b.Datatype && slices.Equal(a.Shape, b.Shape)
	})
	if !equal {
		if m.inFamily {
			return fmt.Errorf("%w: the models of the family differ in the type or shape of their %ss: requests must fit all of them", ErrPlan, direction)
		}
		return fmt.Errorf("%w: model %s: its pipelines differ in their %ss", ErrPlan, m.Name, direction)
	}
	return nil
}

// hasNoBatchAxis returns true if a request is one whole run, whose tensors have no batch dimension.
func (m *Model) hasNoBatchAxis() bool {
	return len(m.Inputs) > 0 && m.Inputs[0].Shape[0] != engine.BatchDim
}

// BuildCatalog builds the catalog, which describes the models with their tensors to clients. Classes of one model
// are one entry. A name that is served in length buckets (models compiled for different sizes) has an entry, too.
func (s *servedModels) BuildCatalog(o *Options) (err error) {
	var infos []oip.ModelInfo
	for _, m := range s.Models {
		if err := s.checkSameTensors(m); err != nil {
			return err
		}
		if slices.ContainsFunc(infos, func(i oip.ModelInfo) bool { return i.Name == m.Name }) {
			continue // another class of the model
		}
		info := oip.ModelInfo{Name: m.Name, Versions: []string{modelVersion}, Platform: platformName(o.Engine), MaxBatch: o.MaxRequestBatch}
		if m.hasNoBatchAxis() {
			info.MaxBatch = 0
		}
		if s.ClassNames.HasNamedClasses(m.Name) {
			info.Classes = s.ClassNames.ClassesOf(m.Name)
		}
		for _, t := range m.Inputs {
			info.Inputs = append(info.Inputs, oip.TensorInfo{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Text: t.Text})
		}
		for _, t := range m.Outputs {
			info.Outputs = append(info.Outputs, oip.TensorInfo{Name: t.Name, Datatype: t.Datatype, Shape: t.Shape, Text: t.Text})
		}
		infos = append(infos, info)
	}

	// Names whose requests run in length buckets.
	for _, name := range slices.Sorted(maps.Keys(s.bucketSets)) {
		set := s.bucketSets[name]
		smallest := infos[slices.IndexFunc(infos, func(i oip.ModelInfo) bool { return i.Name == set.buckets[0].model })]
		info, err := set.clientInfo(smallest, s)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	s.Catalog, err = oip.NewCatalog(infos...)
	return err
}

// modelVersion is the only version that clients see: a plan serves one version of a model.
const modelVersion = "1"

// platformName returns the name under which clients see an engine.
func platformName(engine string) string {
	if engine == "onnx" {
		return "onnxruntime_onnx"
	}
	return "inferplan_" + engine
}

// FindTensor finds a tensor by name. It tries position i first.
func FindTensor(ts []oip.Tensor, i int, name string) *oip.Tensor {
	if i < len(ts) && ts[i].Name == name {
		return &ts[i]
	}
	if k := slices.IndexFunc(ts, func(t oip.Tensor) bool { return t.Name == name }); k >= 0 {
		return &ts[k]
	}
	return nil
}
