package graph

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// ErrModel is wrapped by every error about a file's content.
var ErrModel = errors.New("bad ONNX model")

// Limits of what is read. They are far above real models, and prevent a hostile file from using up the memory.
const (
	maxFile      = 1<<31 - 1 // protobuf's own limit
	maxNodes     = 1 << 20
	maxElements  = 1 << 33
	maxSubgraphs = 16
)

// Options are the options of reading a model.
type Options struct {
	// Seed, if not zero, gives random weights to a model that was shipped without weights (see Model.Weightless).
	// Other models keep theirs.
	Seed uint64
	// Dims sets the dimensions of inputs by name, batch first (if the batch is free, its value is ignored). The
	// name "" means the model's only input. Dimensions with the same name in the file have one size, so an input
	// whose free dimensions are all set by others need not be named.
	Dims map[string][]int64
	// Values are the values of inputs by name. An input without dimensions becomes a constant with its value. For
	// other inputs the values are only checked against the declaration.
	Values map[string]Literal
	// OtherInputs allows names in Dims and Values that are not inputs of this model, because they are inputs of
	// other models.
	OtherInputs bool
	// Name of the model; by default the file's name without "light_" and
	// extension.
	Name string
}

// Model is an ONNX model with a symbolic batch.
type Model struct {
	Name string
	Path string // path of its file; may be empty
	// SHA256 is the hash of the file's bytes. If weights are in other files, it is a hash of the file and of
	// samples of those.
	SHA256   string
	Weights  []string // files of weights, in the model's folder or below it
	Identity string   // SHA256, or a hash over it and the options that change it
	Inputs   []engine.Spec
	Outputs  []string
	// Constants are the inputs that Options.Values made constants, in the file's order.
	Constants []Constant
	// Notes say how the model differs from its file.
	Notes []string

	firstDims       []int64             // per input: its first dimension as given or in the file, 0 if free
	inFile          []*onnxpb.ValueInfo // inputs as the file declares them
	boundReason     string              // why the batch cannot be free, if the inputs show that
	unchangedNet    *sortedGraph        // the graph before its batch was made free
	folder          string              // the folder of the files of weights; empty if there are none
	net             *sortedGraph
	header          *onnxpb.Model // the model without its graph
	declaredOutputs []engine.Spec // outputs as the file declares them, with 0 for unknown dimensions
}

// Constant is an input that always has the same value.
type Constant struct {
	engine.Spec // without dimensions
	Value       Literal
}

// Open reads a model from an ONNX file. Its name is that of the file, unless the options give another. Files of
// weights are looked for in the model's folder.
func Open(path string, o Options) (*Model, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("%s: %w: %d bytes, ONNX files hold at most %d", path, ErrModel, st.Size(), maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	if o.Name == "" {
		o.Name = strings.TrimPrefix(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), "light_")
	}
	folder, err := filepath.Abs(filepath.Dir(path)) // absolute, because other processes may have another working directory
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	m, err := readModel(path, data, folder, o)
	if err != nil {
		return nil, err
	}
	m.Path = path
	return m, nil
}

// Read reads a model from bytes, which it does not keep. Errors use name for the model.
func Read(name string, data []byte, o Options) (*Model, error) { return readModel(name, data, "", o) }

// readModel reads a model from bytes, for Open and Read. folder holds its files of weights, and is empty if there
// are none. Errors use name for the model.
func readModel(name string, data []byte, folder string, o Options) (*Model, error) {
	o.Name = cmp.Or(o.Name, name)
	m, err := parseModel(data, folder, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// parseModel decodes a file's bytes and makes the model of them. Its SHA256 covers the bytes and samples of the
// files of weights in folder.
func parseModel(data []byte, folder string, o Options) (*Model, error) {
	if content := otherFormat(data); content != "" {
		return nil, modelErrorf("%s", content)
	}
	pm := new(onnxpb.Model)
	if err := proto.Unmarshal(data, pm); err != nil {
		return nil, modelErrorf("not an ONNX file, or a truncated one: copy or export it again")
	}
	h := sha256.New()
	h.Write(data)
	outside, err := openWeights(pm.GetGraph(), folder, h)
	if err != nil {
		return nil, err
	}
	m, err := newModel(pm, map[string]*seededWeight{}, hex.EncodeToString(h.Sum(nil)), o)
	if err == nil && len(outside) > 0 {
		m.folder, m.Weights = folder, outside
	}
	return m, err
}

// otherFormat returns the format of a file that is not ONNX, or "" if it is not recognised.
func otherFormat(data []byte) string {
	for _, f := range []struct{ begins, description string }{
		{"version https://git-lfs", "a pointer of Git LFS, not the model: fetch the file itself with git lfs pull"},
		{"PK\x03\x04", "a ZIP archive (PyTorch's .pt, .npz or a packed model), not an ONNX file: unpack it, or export with torch.onnx.export"},
		{"<!DOCTYPE", "a web page, not a model: download the file itself"},
		{"<html", "a web page, not a model: download the file itself"},
		{"\x1f\x8b", "a gzip file: unpack it with gunzip"},
		{"{", "a JSON text, not an ONNX file: name the .onnx file"},
	} {
		if len(data) >= len(f.begins) && strings.EqualFold(string(data[:len(f.begins)]), f.begins) {
			return f.description
		}
	}
	switch {
	case len(data) == 0:
		return "an empty file: copy or export it again"
	case len(data) > 8 && string(data[4:8]) == "ORTM":
		return "a model in ONNX Runtime's own format (.ort): name the .onnx file that it was converted from"
	case len(data) > 8 && string(data[4:8]) == "TFL3":
		return "a TensorFlow Lite model: convert it with tf2onnx (python -m tf2onnx.convert --tflite FILE --output model.onnx)"
	}
	return ""
}

// modelErrorf returns an error about a file's content, which wraps ErrModel.
func modelErrorf(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrModel, fmt.Sprintf(format, a...))
}

// newModel makes a model from a decoded file or a graph of our own, and changes it as the options ask. weights are
// the seeded weights that the graph already has, by name. sum is the hash of the file, the model's identity unless
// the options change what it computes. It also keeps an unchanged copy of the graph (unchangedNet) for models that
// run at the batch of their file.
func newModel(pm *onnxpb.Model, weights map[string]*seededWeight, sum string, o Options) (*Model, error) {
	g := pm.GetGraph()
	switch {
	case g == nil:
		return nil, modelErrorf("no graph inside: not an ONNX model, or a truncated one")
	case len(g.Node) == 0:
		return nil, modelErrorf("the graph has no nodes")
	case len(g.Node) > maxNodes:
		return nil, modelErrorf("%d nodes, at most %d are read", len(g.Node), maxNodes)
	case len(pm.OpsetImport) == 0:
		return nil, modelErrorf("no operator set is named (opset_import): the file is truncated or was written wrongly")
	case len(g.SparseInitializer) > 0:
		return nil, modelErrorf("sparse initialisers are not supported (the first: %q)", g.SparseInitializer[0].GetValues().GetName())
	}
	if err := namesAreText(g); err != nil {
		return nil, err
	}

	// Sort the graph, and declare its inputs and outputs.
	m := &Model{Name: o.Name, SHA256: sum, Identity: sum}
	g, err := m.tensorsOnly(g)
	if err != nil {
		return nil, err
	}
	if g, err = m.makeConstants(g, o.Values); err != nil {
		return nil, err
	}
	n, err := newNet(g, weights)
	if err != nil {
		return nil, err
	}
	m.net = n
	if err := m.declareInputs(g, o); err != nil {
		return nil, err
	}

	// Keep what the file declares of its outputs, and all but its graph.
	m.Outputs = n.outputs
	for _, v := range g.Output {
		spec := engine.Spec{Name: v.GetName()}
		if tt := v.GetType().GetTensorType(); tt.GetShape() != nil {
			spec.Type = engine.DType(tt.GetElemType())
			for i, d := range tt.Shape.Dim {
				size := d.GetDimValue()
				if i == 0 {
					size = engine.BatchDim
				}
				spec.Shape = append(spec.Shape, size)
			}
		}
		m.declaredOutputs = append(m.declaredOutputs, spec)
	}
	m.header = proto.Clone(&onnxpb.Model{
		IrVersion: proto.Int64(max(pm.GetIrVersion(), 8)), OpsetImport: pm.OpsetImport,
		ProducerName: proto.String("inferplan"), Domain: pm.Domain, ModelVersion: pm.ModelVersion,
	}).(*onnxpb.Model)
	// Keep fields that are not decoded, above all model-local functions.
	m.header.ProtoReflect().SetUnknown(pm.ProtoReflect().GetUnknown())

	// The identity covers all options that change what is computed.
	var identityParts []string
	if o.Seed != 0 && m.Weightless() {
		if err := n.seedParameters(o.Seed); err != nil {
			return nil, err
		}
		identityParts = append(identityParts, fmt.Sprintf("seed %d generator %d", o.Seed, generatorVersion))
	}
	if len(o.Dims) > 0 {
		for _, s := range m.Inputs {
			identityParts = append(identityParts, "input "+s.String())
		}
	}
	for _, c := range m.Constants {
		identityParts = append(identityParts, fmt.Sprintf("constant %s %v", c.Spec, c.Value.Values))
	}
	if len(identityParts) > 0 {
		h := sha256.Sum256([]byte(strings.Join(append([]string{sum}, identityParts...), "\n")))
		m.Identity = hex.EncodeToString(h[:])
	}

	// Free the batch in a copy of the graph.
	m.unchangedNet = n.clone()
	n.symbolicReshapes()
	return m, nil
}

// namesAreText refuses names that are not UTF-8. Profiles and plans, which are texts, could not hold them, and
// that would show only after minutes of measuring.
func namesAreText(g *onnxpb.Graph) error {
	check := func(kind, name string) error {
		if utf8.ValidString(name) {
			return nil
		}
		return modelErrorf("%s is called %q, which is not UTF-8: rename it", kind, name)
	}
	for _, v := range g.Input {
		if err := check("an input", v.GetName()); err != nil {
			return err
		}
	}
	for _, v := range g.Output {
		if err := check("an output", v.GetName()); err != nil {
			return err
		}
	}
	for _, node := range g.Node {
		for _, name := range node.Output {
			if err := check("a tensor", name); err != nil {
				return err
			}
		}
	}
	return nil
}
