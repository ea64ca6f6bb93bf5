package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph/onnxpb"
)

// cnns are the nine CNNs, those that steps need first.
var cnns = []string{"squeezenet", "resnet50", "shufflenet", "inception_v1", "inception_v2", "densenet121", "bvlc_alexnet", "zfnet512", "vgg19"}

// outputs compares the device's answers with the CPU's. A rehearsal compares one
// thread without the graph optimisations that reorder sums.
func outputs(ctx context.Context, c *check, r *StepResult) error {
	names := slices.Concat(cnns, []string{"ocr_det", "ocr_rec"})
	if c.Quick {
		names = []string{"squeezenet", "shufflenet", "ocr_rec"}
	}
	var under engine.Options
	if c.rehearsal() {
		under.Optimization = "basic"
	} else {
		under.Provider = map[string]string{"use_tf32": "0"}
	}
	cpu, err := reference()
	if err != nil {
		return err
	}
	// What the CUDA provider keeps it keeps per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, name := range names {
		if r.judged(name+" batch 8") || r.judged(name+" runs") {
			continue
		}
		path, err := c.models(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the folder with all kernels comes without some
			r.note("%s is left out: %v", name, err)
			continue
		}
		sub, err := c.logits(ctx, path[0])
		if err != nil {
			return err
		}
		for _, batch := range []int{1, 8} {
			want, err := c.answer(ctx, sub, cpu, engine.Options{}, batch)
			if err != nil {
				return fmt.Errorf("%s on the CPU: %w", name, err)
			}
			got, err := c.answer(ctx, sub, c.dev, under, batch)
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if name == names[0] {
					return fmt.Errorf("not even %s runs: %w", name, err) // the others would not either
				}
				r.verdict(name+" runs", "an answer", 0, false)
				r.note("%s at batch %d: %v", name, batch, err)
				continue
			}
			worst, size, same, rows := difference(want[:1], got[:1], batch)
			r.verdict(fmt.Sprintf("%s batch %d", name, batch), "<= 1e-4", worst, worst <= 1e-4)
			row := []string{name, fmt.Sprint(batch), fmt.Sprintf("%.2g", worst), fmt.Sprintf("%.3g", size), fmt.Sprintf("%d of %d", same, rows), "-"}
			if len(want) > 1 {
				before, largest, _, _ := difference(want[1:], got[1:], batch)
				row[5] = fmt.Sprintf("%.2g", before/largest)
			}
			t := r.table("largest absolute difference of the outputs", "model", "batch", "difference", "largest output", "classes agree", "before softmax, of the largest")
			if !slices.ContainsFunc(t.Rows, func(have []string) bool { return slices.Equal(have[:2], row[:2]) }) {
				t.Rows = append(t.Rows, row)
			}
		}
		if name == names[0] {
			if err := c.freshInputs(ctx, sub, under, r); err != nil {
				return err
			}
		}
		if err := c.keep(r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// freshInputs looks whether a run reads what stands in the host's memory then: it
// is where the executor puts requests.
func (c *check) freshInputs(ctx context.Context, sub *engine.Submodel, o engine.Options, r *StepResult) error {
	const batch, what = 2, "difference of runs that read inputs written after they were bound"
	want, err := c.answer(ctx, sub, c.dev, o, batch)
	if err != nil {
		return err
	}
	s := *sub
	blk, err := c.eng.Load(ctx, &s, c.dev, o)
	if err != nil {
		return err
	}
	defer blk.Close()
	b, free, err := c.hostBinding(blk, batch)
	if err != nil {
		return err
	}
	defer free()
	defer b.Close()
	if err := b.Run(ctx); err != nil { // on zeros
		return err
	}
	for _, t := range b.Inputs() {
		copy(t.Bytes(), input(t.Spec(), batch))
	}
	if err := b.Run(ctx); err != nil {
		return err
	}
	var got [][]float32
	for _, t := range b.Outputs() {
		got = append(got, float32s(t.Bytes()))
	}
	worst, _, _, _ := difference(want, got, batch)
	r.verdict(what, "<= 1e-4", worst, worst <= 1e-4)
	return nil
}

// lacking is a model of one operator, the determinant, for which ONNX Runtime's
// CUDA provider has no kernel.
func lacking() (*engine.Submodel, error) {
	value := func(name string, dims ...*onnxpb.Shape_Dim) *onnxpb.ValueInfo {
		return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{
			TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(1), Shape: &onnxpb.Shape{Dim: dims}},
		}}}
	}
	n := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimParam{DimParam: "N"}}
	four := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimValue{DimValue: 4}}
	m := &onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}, Graph: &onnxpb.Graph{
		Name: proto.String("lacking"), Input: []*onnxpb.ValueInfo{value("x", n, four, four)}, Output: []*onnxpb.ValueInfo{value("y", n)},
		Node: []*onnxpb.Node{
			{OpType: proto.String("Relu"), Name: proto.String("known"), Input: []string{"x"}, Output: []string{"r"}},
			{OpType: proto.String("Det"), Name: proto.String("unknown"), Input: []string{"r"}, Output: []string{"y"}},
		},
	}}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &engine.Submodel{
		Model: "lacking", From: 0, To: 1, Blocks: 1, Nodes: 2, ONNX: data,
		Inputs:  []engine.Spec{{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 4, 4}}},
		Outputs: []engine.Spec{{Name: "y", Type: engine.F32, Shape: []int64{engine.BatchDim}}},
	}, nil
}

// fallback loads a model that the provider cannot execute whole.
func fallback(ctx context.Context, c *check, r *StepResult) error {
	sub, err := lacking()
	if err != nil {
		return err
	}
	nodes, err := c.eng.Assignment(sub, c.dev, engine.Options{})
	if err != nil {
		return err
	}
	t := Table{Title: "which provider would execute what", Header: []string{"provider", "operators"}}
	for _, p := range slices.Sorted(mapsKeys(nodes)) {
		t.Rows = append(t.Rows, []string{p, strings.Join(nodes[p], ", ")})
	}
	r.Tables = append(r.Tables, t)
	blk, err := c.eng.Load(ctx, sub, c.dev, engine.Options{})
	if err == nil {
		blk.Close()
	}
	if c.rehearsal() {
		// The CPU has every operator; what can be seen here is that the operator is
		// known to run there.
		r.verdict("the operator runs on the CPU", "loads", float64(count(err == nil)), err == nil)
		return nil
	}
	refused := errors.Is(err, engine.ErrFallback)
	r.verdict("a model with an operator that the provider lacks is refused", "ErrFallback", float64(count(refused)), refused)
	named := err != nil && strings.Contains(err.Error(), "Det")
	r.verdict("the error names the operator", "Det", float64(count(named)), named)
	if err != nil {
		r.note("the error: %v", err)
	}
	return nil
}
