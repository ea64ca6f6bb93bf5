//go:build cgo

package highs_test

import (
	"testing"

	"inferplan/solver/milp"
)

func benchmark(b *testing.B, m *milp.Model, o milp.Options) {
	b.ReportAllocs()
	var s *milp.Solution
	for b.Loop() {
		s = solve(b, m, o)
	}
	b.ReportMetric(float64(s.Stats.Iterations), "iterations")
	b.ReportMetric(float64(s.Stats.Nodes), "nodes")
}

func BenchmarkTinyLP(b *testing.B)    { benchmark(b, factoryModel(), milp.Options{}) }
func BenchmarkTinyMIP(b *testing.B)   { benchmark(b, knapsackModel(), milp.Options{}) }
func BenchmarkTransport(b *testing.B) { benchmark(b, transportModel(60), milp.Options{}) }
func BenchmarkKnapsack(b *testing.B)  { benchmark(b, bigKnapsack(), milp.Options{Gap: 0.001}) }
