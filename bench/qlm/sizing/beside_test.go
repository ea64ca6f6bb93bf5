package sizing

import (
	"os"
	"testing"
	"time"

	"inferplan/sim/llm"
)

// The planner keeps interactive answers quick where the servers' priorities do not, and
// all of the batch ends in its window.
func TestPlannedBesideBatch(t *testing.T) {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = "../../../../shared/data"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no traces: %v", err)
	}
	d, err := OpenTrace(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &BatchCases[0]
	for _, k := range BatchCompetitors {
		if k.Policy.Name != "priority" && !k.Planned {
			continue
		}
		o, err := d.Measure(t.Context(), c, &k)
		if err != nil {
			t.Fatal(err)
		}
		for i := range o.Runs {
			r := &o.Runs[i]
			if kept := r.Ratio() <= Slower; kept != k.Planned || r.Done != c.Lines {
				t.Errorf("%s, run %d: %.2f times as long, %d of %d lines in the window", k.Name, i, r.Ratio(), r.Done, c.Lines)
			}
		}
	}
}

// Requests are those that were asked for, in the order in which they come.
func TestRequests(t *testing.T) {
	d := &Trace{}
	for i := range 20000 {
		d.rows = append(d.rows, llm.Request{ArrivedAt: time.Duration(i) * time.Second, Prompt: 10, Output: 10})
	}
	for _, c := range BatchCases {
		list, err := c.requests(d, Runs, c.Lines)
		if err != nil {
			t.Fatal(err)
		}
		lines, last := 0, time.Duration(0)
		for _, r := range list {
			if r.Model == batch {
				lines++
				if r.ArrivedAt != 0 {
					t.Fatalf("%s: a line comes at %v", c.Name, r.ArrivedAt)
				}
			} else if r.ArrivedAt <= 0 || r.ArrivedAt > window+1 || r.ArrivedAt < last {
				t.Fatalf("%s: an interactive request comes at %v after one at %v", c.Name, r.ArrivedAt, last)
			}
			last = r.ArrivedAt
		}
		if want := int(c.RPS * window.Seconds()); lines != c.Lines || len(list)-lines > want || len(list)-lines < want-c.streams() {
			t.Errorf("%s: %d lines and %d others", c.Name, lines, len(list)-lines)
		}
	}
	if _, err := (&BatchCase{Name: "x", GPUs: 8, RPS: 100}).requests(d, 0, 0); err == nil {
		t.Error("more rows than the trace has are found")
	}
}
