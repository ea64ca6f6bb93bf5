package load

import (
	"syscall"
	"testing"
	"time"
)

// The client alone cannot be told from the server in one process; this is both,
// per request, at a rate that leaves the machine mostly idle.
func BenchmarkOpenLoop500rps(b *testing.B) {
	for _, p := range tensorProtocols {
		b.Run(string(p), func(b *testing.B) {
			url := serve(b, newFake(b, nil), p)
			b.ReportAllocs()
			var before, after syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			res, err := Run(b.Context(), Config{URL: url, Protocol: p, Token: "secret", Models: []Model{{Name: "mlp", SLO: time.Second}}}, every(2*time.Millisecond, b.N, 1))
			if err != nil || res.Completed != int64(b.N) {
				b.Fatalf("%v %+v", err, res)
			}
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
				b.Fatal(err)
			}
			used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(used)/1e3/float64(b.N), "cpu-us/op")
			b.ReportMetric(float64(res.GeneratorLag.P99US)/1e3, "lag-p99-us")
			b.ReportMetric(float64(res.Latency.P50US)/1e3, "p50-us")
		})
	}
}
