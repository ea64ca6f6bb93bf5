package llmruns

import (
	"strings"
	"testing"
	"time"
)

// By hand: 4 GPUs pass 8 MB in 6 steps of 2 MB each; 32 layers have 64 all-reduces.
func TestRingMatchesHandComputation(t *testing.T) {
	l := LinkSpecs{GBps: 16, Latency: 20 * time.Microsecond}
	for _, c := range []struct {
		n     int
		bytes float64
		want  time.Duration
	}{{1, 8e6, 0}, {2, 0, 40 * time.Microsecond}, {2, 16e6, 40*time.Microsecond + time.Millisecond}, {4, 8e6, 120*time.Microsecond + 750*time.Microsecond}, {8, 0, 280 * time.Microsecond}} {
		if got := l.Ring(c.n, c.bytes); got != c.want {
			t.Errorf("%d GPUs, %g bytes: %v, expected %v", c.n, c.bytes, got, c.want)
		}
	}
	// 100 tokens of 5,120 values of 2 bytes: 1.024 MB, of which half crosses in each of 2 steps.
	if got, want := l.AllReduce(Layers{64, 10240}, 2, 100), 128*(40*time.Microsecond+64*time.Microsecond); got != want {
		t.Errorf("an iteration: %v, expected %v", got, want)
	}
}

// Iterations get the all-reduces of their tokens: of all prompts, or one for each sequence. Whole batches have them.
func TestWithAllReduce(t *testing.T) {
	l, layers := LinkSpecs{GBps: 1}, Layers{1, 1000}
	list := []MeasuredStep{{InstanceKey: InstanceKey{TensorParallel: 2}, Phase: Prefill, Batch: 2, Tokens: 50}, {InstanceKey: InstanceKey{TensorParallel: 2}, Phase: Decode, Batch: 8}, {InstanceKey: InstanceKey{TensorParallel: 1}, Phase: Decode, Batch: 8},
		{InstanceKey: InstanceKey{TensorParallel: 2}, Phase: Partial, Batch: 16}, {InstanceKey: InstanceKey{TensorParallel: 2}, Phase: WholeStep, Batch: 8, Tokens: 9}}
	for i, want := range []time.Duration{200 * time.Microsecond, 16 * time.Microsecond, 0, 32 * time.Microsecond, 0} {
		if got := l.WithAllReduce(layers, list)[i].Elapsed; got != want {
			t.Errorf("measurement %d: %v, expected %v", i, got, want)
		}
	}
	if list[0].Elapsed != 0 {
		t.Error("the list that was given changed")
	}
}

func TestReadLayers(t *testing.T) {
	for text, want := range map[string]Layers{
		`{"num_hidden_layers": 64, "hidden_size": 5120, "torch_dtype": "bfloat16"}`: {64, 10240}, `{"num_hidden_layers": 2, "hidden_size": 8, "dtype": "float32"}`: {2, 32},
		`{"torch_dtype": "float32", "text_config": {"num_hidden_layers": 3, "hidden_size": 16}, "vision_config": {"hidden_size": 7}}`: {3, 64}} {
		if got, err := ReadLayers(strings.NewReader(text), "config.json"); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{`{"num_hidden_layers": 64}`: "hidden_size", `{"hidden_size": 4}`: "num_hidden_layers", `{"text_config": {"hidden_size": 4}}`: "text_config.num_hidden_layers", `[]`: "config.json", `{"num_hidden_layers": -1, "hidden_size": 4}`: "num_hidden_layers"} {
		if _, err := ReadLayers(strings.NewReader(text), "config.json"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
}
