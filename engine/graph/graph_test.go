package graph

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

var ctx = context.Background()

// probeOf is a probe without an engine: shape returns the shape of a tensor at a batch size.
func probeOf(shape func(name string, batch int64) []int64) Probe {
	return func(_ context.Context, _ []byte, _ []engine.Spec, runs ...ProbeRun) ([]map[string]Value, error) {
		var out []map[string]Value
		for _, r := range runs {
			values := map[string]Value{}
			for _, t := range r.Names {
				values[t] = Value{Type: engine.F32, Shape: shape(t, int64(r.Batch))}
			}
			out = append(out, values)
		}
		return out, nil
	}
}

// flat reports every tensor as a float vector of width 4 per sample.
var flat = probeOf(func(_ string, batch int64) []int64 { return []int64{batch, 4} })

// diamond is x -> Abs a -> {Exp b, Neg c} -> Add d -> Softplus e -> Softmax y,
// with room for a test to spoil it.
func diamond() *onnxpb.Model {
	op := func(kind, out string, in ...string) *onnxpb.Node {
		return &onnxpb.Node{OpType: proto.String(kind), Name: proto.String(kind), Input: in, Output: []string{out}}
	}
	x := engine.Spec{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 4}}
	y := x
	y.Name = "y"
	return &onnxpb.Model{
		IrVersion: proto.Int64(3), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}},
		Graph: &onnxpb.Graph{
			Name: proto.String("diamond"), Input: []*onnxpb.ValueInfo{ValueInfo(x)}, Output: []*onnxpb.ValueInfo{ValueInfo(y)},
			// Not in order: reading sorts.
			Node: []*onnxpb.Node{op("Softmax", "y", "e"), op("Abs", "a", "x"), op("Exp", "b", "a"), op("Neg", "c", "a"), op("Add", "d", "b", "c"), op("Softplus", "e", "d")},
		},
	}
}

func encoded(t testing.TB, m *onnxpb.Model) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReadErrors(t *testing.T) {
	whole := encoded(t, diamond())
	spoil := func(f func(m *onnxpb.Model)) []byte {
		m := diamond()
		f(m)
		return encoded(t, m)
	}
	long := &onnxpb.Tensor{Name: proto.String("w"), DataType: proto.Int32(1), Dims: []int64{2, 3}, RawData: make([]byte, 20)}
	for _, c := range []struct {
		name string
		data []byte
		o    Options
		says string
	}{
		{"empty", nil, Options{}, "an empty file"},
		{"text", []byte("this is no model at all"), Options{}, "not an ONNX file, or a truncated one"},
		{"cut off", whole[:len(whole)-9], Options{}, "truncated"},
		{"no nodes", spoil(func(m *onnxpb.Model) { m.Graph.Node = nil }), Options{}, "no nodes"},
		{"no opset", spoil(func(m *onnxpb.Model) { m.OpsetImport = nil }), Options{}, "operator set"},
		{"missing node", spoil(func(m *onnxpb.Model) { m.Graph.Node = m.Graph.Node[:5] }), Options{}, `node Softmax Softmax reads tensor "e", which nothing makes`},
		{"input that is no text", spoil(func(m *onnxpb.Model) { m.Graph.Input[0].Name = proto.String("x\xff") }), Options{}, `an input is called "x\xff", which is not UTF-8`},
		{"tensor that is no text", spoil(func(m *onnxpb.Model) { m.Graph.Node[1].Output[0] = "\xc3" }), Options{}, `a tensor is called "\xc3", which is not UTF-8`},
		{"output that is no text", spoil(func(m *onnxpb.Model) { m.Graph.Output[0].Name = proto.String("\xfe") }), Options{}, `an output is called "\xfe", which is not UTF-8`},
		{"no such output", spoil(func(m *onnxpb.Model) { m.Graph.Output[0].Name = proto.String("z") }), Options{}, `output "z" is made by no node`},
		{"made twice", spoil(func(m *onnxpb.Model) { m.Graph.Node[5].Output[0] = "d" }), Options{}, `tensor "d" is made twice`},
		{"cycle", spoil(func(m *onnxpb.Model) { m.Graph.Node[1].Input[0] = "e" }), Options{}, "cycle"},
		{"no operator", spoil(func(m *onnxpb.Model) { m.Graph.Node[2].OpType = nil }), Options{}, "names no operator"},
		{"no dimensions", spoil(func(m *onnxpb.Model) { m.Graph.Input[0].Type.GetTensorType().Shape = nil }), Options{}, `input "x" declares no dimensions`},
		{"string input", spoil(func(m *onnxpb.Model) { m.Graph.Input[0].Type.GetTensorType().ElemType = proto.Int32(8) }), Options{}, `input "x" holds texts (strings), which no batch can hold`},
		{"free dimension", spoil(func(m *onnxpb.Model) { m.Graph.Input[0].Type.GetTensorType().Shape.Dim[1].Value = nil }), Options{}, `input "x" is float32[N, ?], whose dimension 1 is not fixed: say what to plan for, sizes with the batch in front: --shape x=1x128`},
		{"other rank", whole, Options{Dims: map[string][]int64{"": {1, 2, 3}}}, "2 dimensions, 3 were given"},
		{"other size", whole, Options{Dims: map[string][]int64{"x": {1, 5}}}, "dimension 1 is 4 in the model, 5 was given"},
		{"other input", whole, Options{Dims: map[string][]int64{"image": {1, 4}}}, `no such input (it has x)`},
		{"short tensor", spoil(func(m *onnxpb.Model) { m.Graph.Initializer = []*onnxpb.Tensor{long} }), Options{}, "initialiser w holds 20 bytes, 24 are expected for float32[2 3]"},
		{"negative dimensions", spoil(func(m *onnxpb.Model) {
			m.Graph.Initializer = []*onnxpb.Tensor{{Name: proto.String("w"), DataType: proto.Int32(1), Dims: []int64{-1}}}
		}), Options{}, "impossible dimensions"},
		{"external data", spoil(func(m *onnxpb.Model) {
			m.Graph.Initializer = []*onnxpb.Tensor{{Name: proto.String("w"), DataType: proto.Int32(1), Dims: []int64{4}, DataLocation: onnxpb.Tensor_EXTERNAL.Enum(),
				ExternalData: []*onnxpb.Property{{Key: proto.String("location"), Value: proto.String("weights.bin")}}}}
		}), Options{}, "initialiser w keeps its values in the file weights.bin: open the model from its folder"},
		{"node without input", spoil(func(m *onnxpb.Model) { m.Graph.Node[0].Input = nil }), Options{}, "node Softmax Softmax has no input"},
		{"constant output", spoil(func(m *onnxpb.Model) {
			m.Graph.Initializer = []*onnxpb.Tensor{{Name: proto.String("k"), DataType: proto.Int32(1), FloatData: []float32{1}}}
			m.Graph.Output[0].Name = proto.String("k")
		}), Options{}, `output "k" does not depend on any input`},
	} {
		m, err := Read(c.name+".onnx", c.data, c.o)
		if err == nil {
			t.Errorf("%s: read as %v", c.name, m)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), c.name+".onnx: ") {
			t.Errorf("%s: %q does not say %q after the file's name", c.name, err, c.says)
		}
		if len(c.o.Dims) == 0 && !errors.Is(err, ErrModel) {
			t.Errorf("%s: %v is no ErrModel", c.name, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "absent.onnx"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

// Whatever is cut off a file, reading says so or gives a smaller whole; it
// never panics.
func TestReadRefusesTruncatedFiles(t *testing.T) {
	data := encoded(t, diamond())
	for n := range data {
		if m, err := Read("cut.onnx", data[:n], Options{}); err == nil {
			t.Errorf("the first %d of %d bytes are read as a model of %d nodes", n, len(data), m.Nodes())
		}
	}
}

func TestCutsOfTheDiamond(t *testing.T) {
	m, err := Read("d.onnx", encoded(t, diamond()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Logits(); !slices.Equal(got, []string{"e"}) {
		t.Errorf("logits %v", got)
	}
	for _, c := range []struct {
		max  int
		want []string
	}{
		{1, []string{"x", "a", "d", "e", "y"}},
		{2, []string{"x", "a", "a b", "b c", "d", "e", "y"}},
	} {
		chain, err := m.Chain(ctx, flat, ChainOptions{MaxLive: c.max})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, cut := range chain.Cuts {
			got = append(got, strings.Join(cut.Names(), " "))
			if want := int64(len(cut.Tensors) * 16); cut.Bytes != want || cut.HalfBytes != want/2 {
				t.Errorf("%v has %d bytes, %d in half precision", cut.Names(), cut.Bytes, cut.HalfBytes)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("with %d live tensors the cuts are %q, want %q", c.max, got, c.want)
		}
	}
	chain, err := m.Chain(ctx, flat, ChainOptions{MaxLive: 2})
	if err != nil {
		t.Fatal(err)
	}
	// "a" passes through the block between the cuts a and "a b".
	sub, err := chain.EachAtom().Slice(1, 2, SliceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sub.Inputs[0].Name != "a@in" || sub.Outputs[0].Name != "a" || sub.Outputs[1].Name != "b" || sub.Nodes != 1 {
		t.Errorf("passing through: %v -> %v", sub.Inputs, sub.Outputs)
	}
}

// A pair that runtimes fuse stays together, and a reader that is not alone
// does not count.
func TestTornPairs(t *testing.T) {
	for _, c := range []struct {
		from, to string
		torn     bool
	}{
		{"Conv", "Relu", true}, {"Conv", "BatchNormalization", true}, {"BatchNormalization", "Relu", true}, {"Sum", "Relu", true},
		{"Relu", "Conv", false}, {"Relu", "Dropout", true}, {"MaxPool", "Conv", false}, {"Concat", "BatchNormalization", false},
		{"Sqrt", "Div", true}, {"Sub", "Pow", true}, {"Add", "MatMul", false},
	} {
		pm := diamond()
		pm.Graph.Node[1].OpType, pm.Graph.Node[2].OpType = proto.String(c.from), proto.String(c.to)
		pm.Graph.Node[3].Input[0], pm.Graph.Node[4].Input[1] = "b", "c" // Exp is the only reader of a
		m, err := Read("d.onnx", encoded(t, pm), Options{})
		if err != nil {
			t.Fatal(err)
		}
		chain, err := m.Chain(ctx, flat, ChainOptions{MaxLive: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chain.FindCut([]string{"a"}); (err != nil) != c.torn {
			t.Errorf("a cut between %s and %s: %v", c.from, c.to, err)
		}
	}
}

// A slice is a model: it can be read and cut again, and gives the same bytes
// every time.
func TestSlicesAreModels(t *testing.T) {
	m, err := BERT(TransformerConfig{Layers: 2, Hidden: 8, Heads: 2, Inner: 16, Seq: 4, Vocab: 10})
	if err != nil {
		t.Fatal(err)
	}
	probe := probeOf(func(_ string, batch int64) []int64 { return []int64{batch, 4, 8} })
	chain, err := m.Chain(ctx, probe, ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	costs := make([]float64, chain.AtomCount())
	for i := range costs {
		costs[i] = float64(chain.EachAtom().Nodes(i, i+1))
	}
	blocks, err := chain.Partition(costs, 4)
	if err != nil {
		t.Fatal(err)
	}
	weights, nodes := int64(0), 0
	for i := range blocks.Len() {
		a, err := blocks.Slice(i, i+1, SliceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old := runtime.GOMAXPROCS(1)
		b, err := blocks.Slice(i, i+1, SliceOptions{})
		runtime.GOMAXPROCS(old)
		if err != nil {
			t.Fatal(err)
		}
		if string(a.ONNX) != string(b.ONNX) {
			t.Errorf("block %d differs from one time to the next", i)
		}
		weights, nodes = weights+a.WeightBytes, nodes+a.Nodes
		again, err := Read("slice.onnx", a.ONNX, Options{})
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		passed := 0 // each costs one copy
		for _, s := range a.Inputs {
			if strings.HasSuffix(s.Name, "@in") {
				passed++
			}
		}
		if again.Nodes() != a.Nodes+passed || len(again.Inputs) != len(a.Inputs) || again.net.weightBytes(again.net.compute, false) != a.WeightBytes {
			t.Errorf("block %d has %d nodes, read again %d", i, a.Nodes, again.Nodes())
		}
		if i > 0 && !slices.Equal(specsOf(a.Inputs), specsOf(blocks.Cut(i).Tensors)) {
			t.Errorf("block %d reads %v", i, a.Inputs)
		}
	}
	whole, err := chain.WholeModel().Slice(0, 1, SliceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if nodes != whole.Nodes || weights < whole.WeightBytes {
		t.Errorf("blocks have %d nodes and %d weight bytes, the whole %d and %d", nodes, weights, whole.Nodes, whole.WeightBytes)
	}
	// Names lead back to the same blocks.
	var cuts [][]string
	for i := 1; i < blocks.Len(); i++ {
		names := blocks.Cut(i).Names()
		slices.Reverse(names)
		cuts = append(cuts, names)
	}
	back, err := chain.CutAt(cuts)
	if err != nil || !slices.Equal(back.Bounds, blocks.Bounds) {
		t.Errorf("by names: %v, %v", back, err)
	}
	slices.Reverse(cuts)
	if _, err := chain.CutAt(cuts); err == nil {
		t.Error("cuts against the model's order pass")
	}
	if _, err := chain.CutAt([][]string{{"nowhere"}}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("an unknown cut: %v", err)
	}
	for _, r := range [][2]int{{0, 0}, {2, 1}, {-1, 1}, {0, 99}} {
		if _, err := blocks.Slice(r[0], r[1], SliceOptions{}); err == nil {
			t.Errorf("blocks %v pass", r)
		}
	}
}

func specsOf(s []engine.Spec) []string {
	out := make([]string, len(s))
	for i := range s {
		out[i] = strings.ReplaceAll(s[i].String(), "@in", "")
	}
	return out
}

// The seed is part of a seeded model's identity, and only there.
func TestIdentityFollowsSeedOfSeededModelsOnly(t *testing.T) {
	id := func(seed uint64) string {
		m, err := MLP(4, seed)
		if err != nil {
			t.Fatal(err)
		}
		return m.Identity
	}
	if first := id(1); first != id(1) || first == id(2) {
		t.Error("identities do not follow the seed")
	}
	data := encoded(t, diamond())
	read := func(o Options) *Model {
		m, err := Read("d.onnx", data, o)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	plain := read(Options{})
	if plain.Identity != plain.SHA256 || read(Options{Seed: 3}).Identity != plain.Identity {
		t.Error("a model with weights does not have its file's identity")
	}
	if m := read(Options{Dims: map[string][]int64{"x": {1, 4}}}); m.Identity == plain.Identity || m.SHA256 != plain.SHA256 {
		t.Error("fixed dimensions are not part of the identity")
	}
}

// Seeded weights: pinned values, mean, deviation and the part of the mean that
// is taken out.
func TestSeededWeightsHaveGivenMeanAndSpread(t *testing.T) {
	w := &seededWeight{name: "w", dims: []int64{50, 40}, mean: 2, deviation: 0.5, seed: 7}
	v := float32s(w.tensor().RawData)
	mean, dev := stats(v)
	if math.Abs(mean-2) > 0.05 || math.Abs(dev-0.5) > 0.03 {
		t.Errorf("mean %v, deviation %v", mean, dev)
	}
	if v[0] == v[1] || v[0] != float32s(w.tensor().RawData)[0] {
		t.Error("weights are not a fixed random stream")
	}
	w.fanIn = 40
	row := float32s(w.tensor().RawData)[:40]
	centred, _ := stats(row)
	plain, _ := stats(v[:40])
	if math.Abs(centred-(1-subtractedShare)*plain) > 1e-5 {
		t.Errorf("a row's mean %v became %v", plain, centred)
	}
	odd := make([]byte, 12)
	fillUniform(1, "odd", 1, 0, odd)
	for _, x := range float32s(odd) {
		if x != 1 {
			t.Errorf("deviation 0 gives %v", x)
		}
	}
}

func float32s(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24)
	}
	return out
}

func stats(v []float32) (mean, dev float64) {
	for _, x := range v {
		mean += float64(x) / float64(len(v))
	}
	for _, x := range v {
		dev += (float64(x) - mean) * (float64(x) - mean) / float64(len(v))
	}
	return mean, math.Sqrt(dev)
}

// The dynamic program against all ways to group.
func TestPartitionIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 9).Draw(t, "costs")
		n := rapid.IntRange(1, len(costs)).Draw(t, "blocks")
		cross := rapid.SliceOfN(rapid.Int64Range(0, 5), len(costs)+1, len(costs)+1).Draw(t, "bytes")
		got := partitionAtoms(costs, cross, n)
		if len(got) != n+1 || got[0] != 0 || got[n] != len(costs) || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != n+1 {
			t.Fatalf("bounds %v", got)
		}
		value := func(b []int) (worst float64, bytes int64) {
			for k := 1; k < len(b); k++ {
				sum := 0.0
				for _, v := range costs[b[k-1]:b[k]] {
					sum += v
				}
				worst = math.Max(worst, sum)
				bytes += cross[b[k]]
			}
			return worst, bytes
		}
		var all [][]int
		best := math.Inf(1)
		for mask := range 1 << (len(costs) - 1) {
			b := []int{0}
			for i := range len(costs) - 1 {
				if mask>>i&1 == 1 {
					b = append(b, i+1)
				}
			}
			b = append(b, len(costs))
			if len(b) == n+1 {
				all = append(all, b)
				w, _ := value(b)
				best = min(best, w)
			}
		}
		fewest := int64(math.MaxInt64) // of those that are best but for rounding
		for _, b := range all {
			if w, by := value(b); w <= best*(1+1e-12) {
				fewest = min(fewest, by)
			}
		}
		w, by := value(got)
		if w > best*(1+2e-9) {
			t.Fatalf("largest block %v, best is %v", w, best)
		}
		if by > fewest {
			t.Fatalf("%d bytes cross, %d would do", by, fewest)
		}
	})
}

func TestPartitionRefuses(t *testing.T) {
	m, err := Read("d.onnx", encoded(t, diamond()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := m.Chain(ctx, flat, ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ok := make([]float64, chain.AtomCount())
	bad := slices.Clone(ok)
	bad[0] = math.NaN()
	for name, f := range map[string]func() (*Blocks, error){
		"too few costs": func() (*Blocks, error) { return chain.Partition(ok[1:], 2) },
		"no blocks":     func() (*Blocks, error) { return chain.Partition(ok, 0) },
		"not a number":  func() (*Blocks, error) { return chain.Partition(bad, 2) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: passes", name)
		}
	}
	if b, err := chain.Partition(ok, 99); err != nil || b.Len() != chain.AtomCount() {
		t.Errorf("more blocks than atoms: %v, %v", b, err)
	}
	if _, err := m.Chain(ctx, flat, ChainOptions{MaxLive: -1}); err == nil {
		t.Error("MaxLive -1 passes")
	}
}

// Tensors whose first dimension is not the batch never cross.
func TestOnlyBatchedTensorsCross(t *testing.T) {
	m, err := Read("d.onnx", encoded(t, diamond()), Options{})
	if err != nil {
		t.Fatal(err)
	}
	odd := func(c context.Context, onnx []byte, in []engine.Spec, runs ...ProbeRun) ([]map[string]Value, error) {
		out, _ := flat(c, onnx, in, runs...)
		for i, r := range runs {
			out[i]["a"] = Value{Type: engine.F32, Shape: []int64{4, int64(r.Batch)}}
			if v, ok := out[i]["d"]; ok {
				v.Type = 8 // strings
				out[i]["d"] = v
			}
		}
		return out, nil
	}
	chain, err := m.Chain(ctx, odd, ChainOptions{MaxLive: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "d"} {
		if _, err := chain.FindCut([]string{name}); err == nil {
			t.Errorf("%s crosses", name)
		}
	}
	fixed := probeOf(func(string, int64) []int64 { return []int64{1, 4} })
	if _, err := m.Chain(ctx, fixed, ChainOptions{}); err == nil || !strings.Contains(err.Error(), `output "y"`) {
		t.Errorf("a model whose output does not follow the batch: %v", err)
	}
	failing := func(context.Context, []byte, []engine.Spec, ...ProbeRun) ([]map[string]Value, error) {
		return nil, errors.New("no engine")
	}
	if _, err := m.Chain(ctx, failing, ChainOptions{}); err == nil || !strings.Contains(err.Error(), "measure shapes at batch 2: no engine") {
		t.Errorf("a failing probe: %v", err)
	}
}

func TestReshapeTarget(t *testing.T) {
	for _, c := range []struct {
		a, b, da, db, want []int64
	}{
		{[]int64{4, 8}, []int64{4, 8}, []int64{2, 16}, []int64{1, 16}, []int64{4, 8}},
		{[]int64{2, 8}, []int64{1, 8}, []int64{2, 2, 4}, []int64{1, 2, 4}, []int64{0, 8}},
		{[]int64{4, 2, 8}, []int64{4, 1, 8}, []int64{2, 32}, []int64{1, 32}, []int64{4, -1, 8}},
		{[]int64{6, 8}, []int64{3, 8}, []int64{2, 3, 8}, []int64{1, 3, 8}, []int64{-1, 8}},
		{[]int64{2, 2}, []int64{1, 1}, []int64{4}, []int64{1}, nil},
		{[]int64{4, 2, -1}, []int64{4, 1, -1}, []int64{2, 32}, []int64{1, 32}, nil},
	} {
		got, ok := reshapeTarget(c.a, c.b, c.da, c.db)
		if ok != (c.want != nil) || ok && !slices.Equal(got, c.want) {
			t.Errorf("%v, %v: %v %v, want %v", c.a, c.b, got, ok, c.want)
		}
	}
}

// WriteFile leaves a whole file or none.
func TestWriteFile(t *testing.T) {
	m, err := MLP(4, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Name != "m" || again.Nodes() != m.Nodes() || again.Inputs[0].String() != m.Inputs[0].String() {
		t.Errorf("read again as %+v", again)
	}
	if err := m.WriteFile(filepath.Join(dir, "no", "m.onnx")); err == nil {
		t.Error("a folder that is not there passes")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBuildersRefuse(t *testing.T) {
	for _, c := range []TransformerConfig{{Hidden: 10, Heads: 3}, {Layers: -1}, {Image: 30, Patch: 16}} {
		_, err1 := BERT(c)
		_, err2 := ViT(c)
		if err2 == nil || err1 == nil && c.Image == 0 {
			t.Errorf("%+v: %v, %v", c, err1, err2)
		}
	}
	if _, err := MLP(0, 1); err == nil {
		t.Error("an MLP without hidden layer passes")
	}
}
