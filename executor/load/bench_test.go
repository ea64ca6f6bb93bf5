package load

import (
	"testing"
	"time"

	"inferplan/cputime"
)

// The client alone cannot be told from the server in one process; this is both,
// per request, at a rate that leaves the machine mostly idle.
func BenchmarkOpenLoop500rps(b *testing.B) {
	for _, p := range tensorProtocols {
		b.Run(string(p), func(b *testing.B) {
			url := serve(b, newFake(b, nil), p)
			b.ReportAllocs()
			b.ResetTimer()
			before := cputime.Used()
			res, err := Run(b.Context(), Config{URL: url, Protocol: p, Token: secret, Models: []Model{{Name: "mlp", SLO: time.Second}}}, every(2*time.Millisecond, b.N, 1))
			if err != nil || res.Completed != int64(b.N) {
				b.Fatalf("%v %+v", err, res)
			}
			used := cputime.Used() - before
			b.ReportMetric(used.Seconds()*1e6/float64(b.N), "cpu-us/op")
			b.ReportMetric(float64(res.GeneratorLag.P99US)/1e3, "lag-p99-us")
			b.ReportMetric(float64(res.Latency.P50US)/1e3, "p50-us")
		})
	}
}
