package gear

import (
	"context"
	"fmt"
	"syscall"
	"testing"
)

// Planning time of the cases of the paper's size, without reading the records.
// The machine may be shared: cpu-ms is what counts.
func BenchmarkSolve(b *testing.B) {
	for _, c := range []struct {
		name    string
		f       *family
		devices int
	}{
		{"bert5", &bert5, 1}, {"bert5", &bert5, 2}, {"bert5", &bert5, 3}, {"bert5", &bert5, 4}, {"bert5", &bert5, 5},
		{"llama4", &llama4, 4}, {"llama4", &llama4, 6}, {"llama4", &llama4, 8},
	} {
		b.Run(fmt.Sprintf("%s-%d", c.name, c.devices), func(b *testing.B) {
			p, s := c.f.problem(b, c.devices, 10), solver(b)
			start := cpuMS(b)
			for b.Loop() {
				out, err := Solve(context.Background(), p, s, Options{Seed: 1})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(100*(out.Bound-out.Accuracy), "gap-points")
				b.ReportMetric(float64(out.Runs), "simulations")
			}
			b.ReportMetric((cpuMS(b)-start)/float64(b.N), "cpu-ms")
		})
	}
}

// cpuMS is the CPU time of this process so far.
func cpuMS(t testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}
