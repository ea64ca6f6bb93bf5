package search

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inferplan/cputime"
)

// Planning time of the cases of the paper's size, for every goal, without
// reading the records. The machine may be shared: cpu-ms is what counts. The
// targets lie below what the devices reach under the family's SLO, by little and
// by more.
func BenchmarkSolve(b *testing.B) {
	for _, c := range []struct {
		name    string
		f       *family
		devices int
		targets []float64
	}{
		{"bert5", &bert5, 1, []float64{.92, .925}}, {"bert5", &bert5, 2, []float64{.93, .932}}, {"bert5", &bert5, 3, []float64{.93, .934}},
		{"bert5", &bert5, 4, []float64{.93, .935}}, {"bert5", &bert5, 5, []float64{.93, .935}},
		{"llama4", &llama4, 4, []float64{.62, .645}}, {"llama4", &llama4, 6, []float64{.62, .65}}, {"llama4", &llama4, 8, []float64{.62, .65}},
	} {
		p := c.f.problem(b, c.devices, 10)
		slo := p.SLO
		one := func(name string, slo time.Duration, target float64, devices int) {
			b.Run(fmt.Sprintf("%s-%d/%s", c.name, c.devices, name), func(b *testing.B) {
				p.SLO, p.TargetAccuracy, p.Kinds[0].Devices = slo, target, devices
				start := cputime.Used()
				for b.Loop() {
					plan, err := Solve(context.Background(), p, programs, Options{Seed: 1})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(100*(plan.Bound-plan.Accuracy), "gap-points")
					b.ReportMetric(plan.Value, "value")
					b.ReportMetric(plan.ValueBound, "bound")
					b.ReportMetric(float64(plan.RunCount), "simulations")
				}
				b.ReportMetric((cputime.Used()-start).Seconds()*1e3/float64(b.N), "cpu-ms")
			})
		}
		one("accuracy", slo, 0, c.devices)
		for _, target := range c.targets {
			one(fmt.Sprintf("latency-%.4g", target), 0, target, c.devices)
			one(fmt.Sprintf("gpus-%.4g", target), slo, target, c.devices+4)
		}
	}
}
