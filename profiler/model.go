package profiler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/modelfile"
)

// model has the methods of an opened model that the profiler uses. engine/graph provides it, tests have their own.
type model interface {
	info() modelInfo
	atomCount() int
	wholeModel() cutModel
	eachAtom() cutModel
	partition(costs []float64, n int) (cutModel, error)
	cutAt(cuts [][]string) (cutModel, error)
}

// cutModel is a model cut into blocks; *graph.Blocks is one.
type cutModel interface {
	Len() int
	Cut(i int) graph.Cut
	WeightBytes(i, j int) int64
	Nodes(i, j int) int
	Slice(i, j int, o graph.SliceOptions) (*engine.Submodel, error)
}

// modelInfo describes an opened model.
type modelInfo struct {
	name, path, sha256 string
	files              []string // files with weights, beside the model's
	inputs, outputs    []engine.Spec
	logits             []string // per output: the tensor before a closing softmax
	weightBytes        int64
	// batch is 1 if the batch dimension cannot be made free. Then every request is one run with inputs of the
	// file's shapes. Otherwise it is 0.
	batch       int
	weightsNote string // the source of the weights, if it is not the file
	warnings    []string
	// constants are inputs of the file that requests do not have. values are the values that the other inputs are
	// measured with, if some are given.
	constants []graph.Constant
	values    inputValues
	operators []modelfile.OperatorLibrary // libraries of custom operators
	// For a bucket: the model that it is a bucket of, and the dimensions of inputs and outputs in which the sizes
	// differ. baseModel is the name of the model, also if it has no buckets.
	baseModel             string
	bucket                *formats.Bucket
	inputAxes, outputAxes [][]int
}

// openFunc opens a model file for an engine.
type openFunc func(ctx context.Context, path string, o *Options) (model, error)

// Prober is an engine that can run a model once to learn the shapes of its tensors, for engine/graph.
type Prober interface {
	Probe(ctx context.Context, onnx []byte, inputs []engine.Spec, runs ...graph.ProbeRun) ([]map[string]graph.Value, error)
}

// ModelName returns the name that profiles and plans use for the model of a file: the file's name without
// extension, and without the "light_" of models shipped without weights.
func ModelName(path string) string {
	base := filepath.Base(path)
	return strings.TrimPrefix(strings.TrimSuffix(base, filepath.Ext(base)), "light_")
}

// openONNX reads a model, gives it a symbolic batch dimension and finds its cuts. If the batch cannot be made free,
// the model has one block and runs at its own batch only. It is the usual Options.open; tests give others.
func openONNX(ctx context.Context, path string, o *Options) (model, error) {
	prober, ok := o.Engine.(Prober)
	if !ok {
		return nil, fmt.Errorf("profiler: engine %s cannot probe shapes", o.Engine.Info().Name)
	}

	// Open the file, find where it can be cut, and check that the samples of a batch do not change each other.
	graphModel, options, err := o.readModel(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	var operators []modelfile.OperatorLibrary
	if graphModel.Custom() {
		operators = o.Operators
	}
	chain, err := graphModel.Chain(ctx, prober.Probe, graph.ChainOptions{AllShapes: true})
	if err == nil {
		var note string
		if note, err = checkFreeBatch(ctx, o.Engine, chain, options.Values); note != "" {
			chain.Model.Notes = append(chain.Model.Notes, note)
		}
	}
	if err == nil {
		m := onnxModel{chain: chain, values: options.Values, operators: operators}
		// A seed that is used makes the model's identity differ from the hash of its file. So may other options.
		if o.Seed != 0 && graphModel.Identity != graphModel.SHA256 && lacksWeights(path, options) {
			m.weights = fmt.Sprintf("random with seed %d, the file has none", o.Seed)
		}
		return m, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	// Otherwise the model runs at its own batch.
	fixed, fixedErr := openFixed(ctx, graphModel, prober, options.Values)
	if fixedErr != nil {
		// The user can act on the reason why the batch cannot be free. That the model does not run at its own
		// batch either is reported only if it says more.
		if errors.Is(fixedErr, engine.ErrModel) || errors.Is(fixedErr, graph.ErrModel) {
			err = fixedErr
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
	}
	fixed.details.operators = operators
	fixed.details.warnings = append(fixed.details.warnings,
		fmt.Sprintf("%s: its batch cannot be made free, so it is one block, and a request is one run with inputs of the file's shapes, %v (%v)", graphModel.Name, fixed.details.inputs, err))
	return fixed, nil
}

// readModel opens a model with the dimensions and values that the options give for its inputs. If these do not
// suffice, it takes the rest from the profile, in which the model was measured before. It also returns the options
// that it used.
func (o *Options) readModel(path string) (*graph.Model, graph.Options, error) {
	name := ModelName(path)

	// Options for all models come first, then those of this one.
	options := graph.Options{Name: name, Seed: o.Seed, Dims: maps.Clone(o.Dims[""]), Values: maps.Clone(o.Values[""]), OtherInputs: true}
	if options.Dims == nil {
		options.Dims = map[string][]int64{}
	}
	if options.Values == nil {
		options.Values = map[string]graph.Literal{}
	}
	maps.Copy(options.Dims, o.Dims[name])
	maps.Copy(options.Values, o.Values[name])
	m, err := graph.Open(path, options)

	// If the model needs sizes or values that were not given, take those of the profile.
	known := o.basedOn
	if known == nil && o.Profile != nil {
		known = o.Profile.FindModel(name)
	}
	if err == nil || known == nil || !errors.Is(err, graph.ErrModel) {
		return m, options, err
	}
	knownOptions := options
	knownOptions.Dims, knownOptions.Values = map[string][]int64{}, map[string]graph.Literal{}
	for _, t := range known.Inputs {
		knownOptions.Dims[t.Name] = t.Shape
		if len(t.Value) > 0 {
			knownOptions.Values[t.Name] = graph.Literal{Values: t.Value}
		}
	}
	for _, c := range known.Constants {
		knownOptions.Values[c.Name] = graph.Literal{Shape: c.Shape, Values: c.Value}
	}
	maps.Copy(knownOptions.Dims, options.Dims)
	maps.Copy(knownOptions.Values, options.Values)
	if m, merr := graph.Open(path, knownOptions); merr == nil {
		return m, knownOptions, nil
	}
	return nil, options, err
}

// lacksWeights reports whether a model's file has no weights. It reads the file without the seed, with which it
// would get random ones.
func lacksWeights(path string, options graph.Options) bool {
	options.Seed = 0
	m, err := graph.Open(path, options)
	return err == nil && m.Weightless()
}

// onnxModel is a model whose batch is free, as a chain of engine/graph.
type onnxModel struct {
	chain   *graph.Chain
	weights string
	values  inputValues

	operators []modelfile.OperatorLibrary
}

// info describes the model.
func (m onnxModel) info() modelInfo {
	c := m.chain
	uncut := c.WholeModel()
	return modelInfo{
		operators: m.operators, weightsNote: m.weights, constants: c.Model.Constants, values: m.values, warnings: namedNotes(c.Model),
		name: c.Model.Name, path: c.Model.Path, sha256: c.Model.SHA256, files: c.Model.Weights,
		inputs: c.Cuts[0].Tensors, outputs: c.Cuts[len(c.Cuts)-1].Tensors, logits: c.Model.Logits(),
		weightBytes: uncut.WeightBytes(0, uncut.Len()),
	}
}

func (m onnxModel) atomCount() int       { return m.chain.AtomCount() }
func (m onnxModel) wholeModel() cutModel { return m.chain.WholeModel() }
func (m onnxModel) eachAtom() cutModel   { return m.chain.EachAtom() }

func (m onnxModel) partition(costs []float64, n int) (cutModel, error) {
	return m.chain.Partition(costs, n)
}

func (m onnxModel) countWork(ctx context.Context, p Prober) (*graph.WorkCounts, error) {
	return m.chain.CountWork(ctx, p.Probe)
}

func (m onnxModel) cutAt(cuts [][]string) (cutModel, error) { return m.chain.CutAt(cuts) }

// fixedModel is a model whose batch cannot be made free. It runs as its file is, one request at a time.
type fixedModel struct {
	details modelInfo
	sub     *engine.Submodel
}

// openFixed opens a model with the shapes of its file.
func openFixed(ctx context.Context, gm *graph.Model, p Prober, v inputValues) (*fixedModel, error) {
	sub, _, err := gm.Fixed(ctx, p.Probe)
	if err != nil {
		return nil, err
	}
	return &fixedModel{sub: sub, details: modelInfo{
		name: gm.Name, path: gm.Path, sha256: gm.SHA256, files: gm.Weights, inputs: sub.Inputs, outputs: sub.Outputs, logits: gm.Outputs, weightBytes: sub.WeightBytes,
		batch: 1, warnings: namedNotes(gm), constants: gm.Constants, values: v,
	}}, nil
}

// namedNotes returns a model's notes, each after the model's name.
func namedNotes(m *graph.Model) []string {
	return document.Map(m.Notes, func(n *string) string { return m.Name + ": " + *n })
}

func (m *fixedModel) info() modelInfo                            { return m.details }
func (m *fixedModel) atomCount() int                             { return 1 }
func (m *fixedModel) wholeModel() cutModel                       { return m }
func (m *fixedModel) eachAtom() cutModel                         { return m }
func (m *fixedModel) partition([]float64, int) (cutModel, error) { return m, nil }

// cutAt returns the model as one block, or an error if cuts are asked for.
func (m *fixedModel) cutAt(cuts [][]string) (cutModel, error) {
	if len(cuts) > 0 {
		return nil, fmt.Errorf("%s: it runs at its own batch only and has no cuts", m.details.name)
	}
	return m, nil
}

func (m *fixedModel) Len() int                   { return 1 }
func (m *fixedModel) WeightBytes(_, _ int) int64 { return m.details.weightBytes }
func (m *fixedModel) Nodes(_, _ int) int         { return m.sub.Nodes }

// Cut returns the tensors before (0) and after the only block.
func (m *fixedModel) Cut(i int) graph.Cut {
	if i == 0 {
		return graph.Cut{Tensors: m.details.inputs}
	}
	return graph.Cut{Tensors: m.details.outputs}
}

// Slice returns the whole model.
func (m *fixedModel) Slice(_, _ int, o graph.SliceOptions) (*engine.Submodel, error) {
	if o.FP16 {
		return nil, inputError("%s: a model whose batch cannot be made free runs as its file is, not in float16", m.details.path)
	}
	sub := *m.sub
	return &sub, nil
}
