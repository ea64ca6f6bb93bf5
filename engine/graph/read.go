package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// ErrModel is wrapped by every error about a file's content.
var ErrModel = errors.New("bad ONNX model")

// Limits on what is read. They are far above real models and keep a hostile
// file from taking the machine's memory.
const (
	maxFile      = 1<<31 - 1 // protobuf's own limit
	maxNodes     = 1 << 20
	maxElements  = 1 << 33
	maxSubgraphs = 16
)

// Options of reading a model.
type Options struct {
	// Seed, where not zero, gives random weights to a model that was shipped
	// without (see Model.Weightless). Other models keep theirs.
	Seed uint64
	// Dims fixes the dimensions of inputs by name, batch first (its value is
	// not looked at). The name "" means the model's only input.
	Dims map[string][]int64
	// Name of the model; by default the file's name without "light_" and
	// extension.
	Name string
}

// Model is an ONNX model with a symbolic batch.
type Model struct {
	Name     string
	Path     string // where it was read from, may be empty
	SHA256   string // of the file's bytes
	Identity string // SHA256, or a hash over it and the options that change it
	Inputs   []engine.Spec
	Outputs  []string

	net      *net
	header   *onnxpb.Model // everything but the graph
	declared []engine.Spec // outputs as the file declares them, 0 for an unknown dimension
}

// Open reads a model from a file.
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
	m, err := Read(path, data, o)
	if err != nil {
		return nil, err
	}
	m.Path = path
	return m, nil
}

// Read reads a model from bytes; name is used in errors. The bytes are not
// kept.
func Read(name string, data []byte, o Options) (*Model, error) {
	sum := sha256.Sum256(data)
	pm := new(onnxpb.Model)
	if err := proto.Unmarshal(data, pm); err != nil {
		return nil, fmt.Errorf("%s: %w: not an ONNX file, or a truncated one: %v", name, ErrModel, err)
	}
	if o.Name == "" {
		o.Name = name
	}
	m, err := newModel(pm, map[string]*weight{}, hex.EncodeToString(sum[:]), o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func bad(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrModel, fmt.Sprintf(format, a...))
}

func newModel(pm *onnxpb.Model, weights map[string]*weight, sum string, o Options) (*Model, error) {
	g := pm.GetGraph()
	switch {
	case g == nil:
		return nil, bad("no graph inside: not an ONNX model, or a truncated one")
	case len(g.Node) == 0:
		return nil, bad("the graph has no nodes")
	case len(g.Node) > maxNodes:
		return nil, bad("%d nodes, at most %d are read", len(g.Node), maxNodes)
	case len(pm.OpsetImport) == 0:
		return nil, bad("no operator set is named (opset_import): the file is truncated or was written wrongly")
	case len(g.SparseInitializer) > 0:
		return nil, bad("sparse initialisers are not supported (the first: %q)", g.SparseInitializer[0].GetValues().GetName())
	}
	if err := namesAreText(g); err != nil {
		return nil, err
	}
	n, err := newNet(g, weights)
	if err != nil {
		return nil, err
	}
	m := &Model{Name: o.Name, SHA256: sum, Identity: sum, net: n}
	if m.Inputs, err = inputSpecs(g, n, o.Dims); err != nil {
		return nil, err
	}
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
		m.declared = append(m.declared, spec)
	}
	m.header = proto.Clone(&onnxpb.Model{
		IrVersion: proto.Int64(max(pm.GetIrVersion(), 8)), OpsetImport: pm.OpsetImport,
		ProducerName: proto.String("inferplan"), Domain: pm.Domain, ModelVersion: pm.ModelVersion,
	}).(*onnxpb.Model)
	// Fields that we do not know (model-local functions above all) stay.
	m.header.ProtoReflect().SetUnknown(pm.ProtoReflect().GetUnknown())

	var changed []string
	if o.Seed != 0 && m.Weightless() {
		if err := n.seed(o.Seed); err != nil {
			return nil, err
		}
		changed = append(changed, fmt.Sprintf("seed %d generator %d", o.Seed, generator))
	}
	if len(o.Dims) > 0 {
		for _, s := range m.Inputs {
			changed = append(changed, "input "+s.String())
		}
	}
	if len(changed) > 0 {
		h := sha256.Sum256([]byte(strings.Join(append([]string{sum}, changed...), "\n")))
		m.Identity = hex.EncodeToString(h[:])
	}
	n.symbolicReshapes()
	return m, nil
}

// namesAreText refuses names that are not UTF-8: profiles and plans, which are
// texts, could not hold them, and that would show after minutes of measuring.
func namesAreText(g *onnxpb.Graph) error {
	check := func(what, name string) error {
		if utf8.ValidString(name) {
			return nil
		}
		return bad("%s is called %q, which is not UTF-8: rename it", what, name)
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

// inputSpecs reads the declared inputs, fixes dimensions and makes the first
// the batch.
func inputSpecs(g *onnxpb.Graph, n *net, dims map[string][]int64) ([]engine.Spec, error) {
	var out []engine.Spec
	used := map[string]bool{}
	for _, v := range g.Input {
		if n.isConst[v.GetName()] {
			continue // an initialiser that old files list as an input too
		}
		name := v.GetName()
		tt := v.GetType().GetTensorType()
		if tt == nil {
			return nil, bad("input %q is not a tensor", name)
		}
		spec := engine.Spec{Name: name, Type: engine.DType(tt.GetElemType())}
		if spec.Type.Size() == 0 {
			return nil, bad("input %q has element %s, which cannot be fed", name, spec.Type)
		}
		fixed, ok := dims[name]
		if used[name] = ok; !ok {
			if fixed, ok = dims[""]; ok {
				used[""] = true
			}
		}
		decl := tt.GetShape().GetDim()
		if tt.Shape == nil || len(decl) == 0 {
			return nil, bad("input %q declares no dimensions: one that holds the batch is needed", name)
		}
		if ok && len(fixed) != len(decl) {
			return nil, bad("input %q has %d dimensions, %d were given (%v)", name, len(decl), len(fixed), fixed)
		}
		elements := int64(1)
		for i, d := range decl {
			v := d.GetDimValue()
			switch {
			case i == 0:
				v = engine.BatchDim
			case ok && v > 0 && fixed[i] != v:
				return nil, bad("input %q: dimension %d is %d in the model, %d was given", name, i, v, fixed[i])
			case ok:
				v = fixed[i]
			}
			if i > 0 && v <= 0 {
				return nil, bad("input %q: dimension %d (%s) is not fixed: give the whole shape, batch first (for example 1x3x224x224)", name, i, dimName(d))
			}
			if i > 0 {
				if elements *= v; elements > maxElements || v > maxElements {
					return nil, bad("input %q is too large", name)
				}
			}
			spec.Shape = append(spec.Shape, v)
		}
		out = append(out, spec)
	}
	if len(out) == 0 {
		return nil, bad("the model has no input")
	}
	if _, ok := dims[""]; ok && len(out) > 1 {
		return nil, fmt.Errorf("dimensions without an input's name, but the model has %d inputs", len(out))
	}
	var names []string
	for name := range dims {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("dimensions for %q, but the model has no such input (it has %s)", name, specNames(out))
		}
	}
	return out, nil
}

func dimName(d *onnxpb.Shape_Dim) string {
	if p := d.GetDimParam(); p != "" {
		return fmt.Sprintf("%q", p)
	}
	return fmt.Sprint(d.GetDimValue())
}

func specNames(s []engine.Spec) string {
	out := make([]string, len(s))
	for i := range s {
		out[i] = s[i].Name
	}
	return strings.Join(out, ", ")
}
