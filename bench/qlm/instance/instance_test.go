package instance

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/formats/importer/bundletest"
	"inferplan/formats/importer/llmruns"
	"inferplan/profiler"
	"inferplan/sim/llm"
)

func data(t *testing.T) string {
	t.Helper()
	dir := filepath.Dir(bundletest.Dir(t))
	if _, err := os.Stat(filepath.Join(dir, "llm-profiles")); err != nil {
		t.Skipf("the data has no runs of servers: %v", err)
	}
	return dir
}

// One set of two constants holds for both cards, and constants of one card for the
// other.
func TestModelAgainstServers(t *testing.T) {
	runs, err := Bundled(data(t))
	if err != nil {
		t.Fatal(err)
	}
	small, big := runs[0], runs[1]
	for _, c := range []struct {
		name     string
		on       []*Run
		against  []*Run
		off      float64 // of mean, p99 and time per token
		r2, mape float64
	}{
		{"both", runs, runs, 0.02, 0.99, 0.02},
		{"fitted on the big card", []*Run{big}, []*Run{small}, 0.04, 0.98, 0.04},
		{"fitted on the small card", []*Run{small}, []*Run{big}, 0.04, 0.98, 0.04},
	} {
		cpu, err := Calibrate(c.on...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.against {
			x, err := r.Compare(cpu)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: %v: mean %+.2f %%, p99 %+.2f %%, TPOT %+.2f %%, R2 %.4f, MAPE %.2f %%", c.name, r.Name, cpu, 100*x.E2E.Off(), 100*x.E2EP99.Off(), 100*x.TPOT.Off(), x.R2, 100*x.MAPE)
			if math.Abs(x.E2E.Off()) > c.off || math.Abs(x.E2EP99.Off()) > c.off || math.Abs(x.TPOT.Off()) > c.off || x.R2 < c.r2 || x.MAPE > c.mape {
				t.Errorf("%s: %s is off: %+v", c.name, r.Name, x)
			}
		}
	}
}

// A queue that is drained is served in order, and waiting grows with what is ahead.
func TestDrain(t *testing.T) {
	queues, err := Queues(data(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range queues {
		q := &queues[i]
		lists, err := q.Draw(1, 800, 1000)
		if err != nil {
			t.Fatal(err)
		}
		out, counts, err := q.Drain(lists[0])
		if err != nil {
			t.Fatal(err)
		}
		last := time.Duration(0)
		for k, o := range out {
			if o.Start < last || o.First <= o.Start || o.End < o.First {
				t.Fatalf("%s: request %d after %v: %+v", q.Name, k, last, o)
			}
			last = o.Start
		}
		again, _ := q.Draw(1, 800)
		if again[0][0] != lists[0][0] || counts.Iterations == 0 {
			t.Errorf("%s: another draw of the same seed", q.Name)
		}
	}
	if _, err := queues[0].Draw(1, 1<<20); err == nil {
		t.Error("more requests than there are were drawn")
	}
}

// What a run lacks is said, and a run of copies is not taken for one of a server.
func TestNewRefuses(t *testing.T) {
	meta := llmruns.Meta{Model: "m", Device: "D", TensorParallel: 1, DataParallel: 1, Sequences: 8, Budget: 512, Block: 16, KVTokens: 1600}
	steps := []llmruns.Measured{
		{Place: llmruns.Place{Model: "m", Device: "D", TensorParallel: 1}, Phase: llmruns.Decode, Batch: 1, Context: 10, Took: time.Millisecond},
		{Place: llmruns.Place{Model: "m", Device: "D", TensorParallel: 1}, Phase: llmruns.Prefill, Batch: 1, Tokens: 100, Took: 2 * time.Millisecond},
	}
	ok := []llmruns.Served{{Prompt: 10, Output: 5, First: 1, Last: 2}}
	if _, err := New("ok", steps, &meta, ok); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		change func(*llmruns.Meta, *[]llmruns.Served)
		want   string
	}{
		{func(m *llmruns.Meta, _ *[]llmruns.Served) { m.DataParallel = 2 }, "2 copies"},
		{func(m *llmruns.Meta, _ *[]llmruns.Served) { m.TensorParallel = 2 }, "no measured steps of m on 2 x"},
		{func(_ *llmruns.Meta, l *[]llmruns.Served) { (*l)[0].Prompt = 5000 }, "has 5005 tokens, the server holds 1600"},
	} {
		m, list := meta, []llmruns.Served{ok[0]}
		c.change(&m, &list)
		if _, err := New("bad", steps, &m, list); err == nil || !errors.Is(err, profiler.ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestR2(t *testing.T) {
	if got := R2([]float64{1, 2, 3}, []float64{1, 2, 3}); got != 1 {
		t.Errorf("a perfect prediction: %v", got)
	}
	if got := R2([]float64{1, 2, 3}, []float64{2, 2, 2}); got != 0 {
		t.Errorf("the mean: %v", got)
	}
	if got := R2([]float64{2, 2}, []float64{2, 2}); got != 1 {
		t.Errorf("nothing to explain, and right: %v", got)
	}
	if got := R2([]float64{2, 2}, []float64{2, 3}); got != 0 {
		t.Errorf("nothing to explain, and wrong: %v", got)
	}
	if o := (llm.Outcome{First: 1, End: 9}).TPOT(1); o != 0 {
		t.Errorf("one token takes %v per token", o)
	}
}
