package llmrun

import (
	"errors"
	"strings"
	"testing"
	"time"

	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
	"inferplan/sim/llm"
)

// What a run lacks is said, and a run of copies is not taken for one of a server.
func TestNewRefuses(t *testing.T) {
	meta := llmruns.Meta{Model: "m", Device: "D", TensorParallel: 1, DataParallel: 1, Sequences: 8, Budget: 512, Block: 16, KVTokens: 1600}
	steps := []llmruns.MeasuredStep{
		{InstanceKey: llmruns.InstanceKey{Model: "m", Device: "D", TensorParallel: 1}, Phase: llmruns.Decode, Batch: 1, Context: 10, Elapsed: time.Millisecond},
		{InstanceKey: llmruns.InstanceKey{Model: "m", Device: "D", TensorParallel: 1}, Phase: llmruns.Prefill, Batch: 1, Tokens: 100, Elapsed: 2 * time.Millisecond},
	}
	ok := []llmruns.ServedRequest{{Prompt: 10, Output: 5, FirstTokenAt: 1, LastTokenAt: 2}}
	if _, err := New("ok", steps, &meta, ok); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(*llmruns.Meta, *[]llmruns.ServedRequest)
		want   string
	}{
		{func(m *llmruns.Meta, _ *[]llmruns.ServedRequest) { m.DataParallel = 2 }, "2 copies"},
		{func(m *llmruns.Meta, _ *[]llmruns.ServedRequest) { m.TensorParallel = 2 }, "no measured steps of m on 2 x"},
		{func(_ *llmruns.Meta, l *[]llmruns.ServedRequest) { (*l)[0].Prompt = 5000 }, "has 5005 tokens, the server holds 1600"},
	} {
		m, list := meta, []llmruns.ServedRequest{ok[0]}
		c.change(&m, &list)
		if _, err := New("bad", steps, &m, list); err == nil || !errors.Is(err, profiler.ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestDeterminationOfPerfectAndMeanFits(t *testing.T) {
	if got := rSquared([]float64{1, 2, 3}, []float64{1, 2, 3}); got != 1 {
		t.Errorf("a perfect prediction: %v", got)
	}
	if got := rSquared([]float64{1, 2, 3}, []float64{2, 2, 2}); got != 0 {
		t.Errorf("the mean: %v", got)
	}
	if got := rSquared([]float64{2, 2}, []float64{2, 2}); got != 1 {
		t.Errorf("nothing to explain, and right: %v", got)
	}
	if got := rSquared([]float64{2, 2}, []float64{2, 3}); got != 0 {
		t.Errorf("nothing to explain, and wrong: %v", got)
	}
	if o := (llm.Outcome{FirstToken: 1, LastToken: 9}).TPOT(1); o != 0 {
		t.Errorf("one token takes %v per token", o)
	}
}
