package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"inferplan/bench/dyorc/baselines"
	"inferplan/cputime"
	"inferplan/policy/workflow"
	"inferplan/sim"
	"inferplan/testkit/workflows"
)

// BenchmarkRun is three minutes of all applications at 24 requests per second on
// 32 devices: CPU time per event of the simulator, policy included. With generations
// the language models run iteration by iteration.
func BenchmarkRun(b *testing.B) {
	for _, name := range []string{"greedy", "dyorc", "dyorc generations"} {
		b.Run(name, func(b *testing.B) {
			name, generations := strings.CutSuffix(name, " generations")
			opt, err := baselines.Named(name, 1)
			if err != nil {
				b.Fatal(err)
			}
			events, start := int64(0), cputime.Used()
			for b.Loop() {
				tab := workflows.Fleet{Devices: 32, Gigabytes: 40, Generations: generations}.Tables()
				res, err := sim.Run(context.Background(), sim.Config{
					Tables: tab, Policy: workflow.New(tab, opt), Source: poisson(8, 3*time.Minute, 1), NoReport: true,
					Control: &workflows.Control{Draw: workflows.NewApps(1).Draw}, MoveTime: workflows.Move(tab),
				})
				if err != nil {
					b.Fatal(err)
				}
				events += res.Events
			}
			b.ReportMetric(float64((cputime.Used()-start).Nanoseconds())/float64(events), "cpu-ns/event")
		})
	}
}
