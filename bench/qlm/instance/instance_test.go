package instance

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"inferplan/profiler/llmrun"
	"inferplan/testkit/bundletest"
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
		on       []*llmrun.Run
		against  []*llmrun.Run
		off      float64 // of mean, p99 and time per token
		r2, mape float64
	}{
		{"both", runs, runs, 0.02, 0.99, 0.02},
		{"fitted on the big card", []*llmrun.Run{big}, []*llmrun.Run{small}, 0.04, 0.98, 0.04},
		{"fitted on the small card", []*llmrun.Run{small}, []*llmrun.Run{big}, 0.04, 0.98, 0.04},
	} {
		cpu, err := llmrun.Calibrate(c.on...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.against {
			x, err := r.Compare(cpu)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %s: %v: mean %+.2f %%, p99 %+.2f %%, TPOT %+.2f %%, R2 %.4f, MAPE %.2f %%", c.name, r.Name, cpu, 100*x.E2E.RelativeError(), 100*x.E2EP99.RelativeError(), 100*x.TPOT.RelativeError(), x.R2, 100*x.MAPE)
			if math.Abs(x.E2E.RelativeError()) > c.off || math.Abs(x.E2EP99.RelativeError()) > c.off || math.Abs(x.TPOT.RelativeError()) > c.off || x.R2 < c.r2 || x.MAPE > c.mape {
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
			if o.FirstIteration < last || o.FirstToken <= o.FirstIteration || o.LastToken < o.FirstToken {
				t.Fatalf("%s: request %d after %v: %+v", q.Name, k, last, o)
			}
			last = o.FirstIteration
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
