package profiler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/engine/graph"
)

// TestOneBadModel: a model whose file cannot be used is left out with a warning, and the
// others are measured; where none is left, or what is wrong is no file, the run ends.
func TestOneBadModel(t *testing.T) {
	run := func(bad error, models ...string) (measured []string, warned string, err error) {
		eng := newFakeEngine(uniformModel("a", 2, 100*time.Microsecond), uniformModel("b", 2, 100*time.Microsecond))
		o := eng.options(models...)
		o.Precision, o.Batches = quickRule, []int{1}
		open := o.open
		o.open = func(ctx context.Context, path string, x *Options) (model, error) {
			if strings.Contains(path, "broken") {
				return nil, bad
			}
			return open(ctx, path, x)
		}
		o.Progress = func(e Event) {
			if e.Stage == StageWarning && strings.Contains(e.Text, "left out") {
				warned += e.Text
			}
		}
		p, err := Run(context.Background(), o)
		if p != nil {
			for _, m := range p.Models {
				measured = append(measured, m.Model)
			}
		}
		return measured, warned, err
	}
	refused := inputError("broken.onnx: %v", graph.ErrModel)
	measured, warned, err := run(refused, "a", "broken", "b")
	if err != nil || !slices.Equal(measured, []string{"a", "b"}) || warned != "left out: broken.onnx: bad ONNX model" {
		t.Errorf("one of three: measured %v, warned %q, %v", measured, warned, err)
	}
	if _, _, err := run(refused, "broken"); !errors.Is(err, refused) {
		t.Errorf("the only one: %v", err)
	}
	if _, _, err := run(refused, "broken", "broken2"); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "none of the 2 models can be used") {
		t.Errorf("all of them: %v", err)
	}
	machine := errors.New("no memory")
	if _, _, err := run(machine, "a", "broken"); !errors.Is(err, machine) {
		t.Errorf("a fault of the machine: %v", err)
	}
	eng := newFakeEngine(uniformModel("a", 2, 100*time.Microsecond))
	o := eng.options("a")
	o.Dims = map[string]map[string][]int64{"": {"image": {1, 3}}}
	if _, err := Run(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), `the input "image", which no model has`) {
		t.Errorf("a shape of no input: %v", err)
	}
	o.Dims = map[string]map[string][]int64{"b": {"": {1, 3}}}
	if _, err := Run(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), `the model "b", which is not there; there are a`) {
		t.Errorf("a shape of no model: %v", err)
	}
}
