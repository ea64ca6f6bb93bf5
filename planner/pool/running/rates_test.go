package running

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// onDevices returns a pipeline of one stage of a model, with a replica on each device of a pool. Each carries rate.
func onDevices(model, pool int, rate float64, devices ...int) problem.Pipeline {
	q := problem.Pipeline{Template: stages.Template{Model: model, Stages: []stages.Stage{{Pool: pool, Share: 1, Rate: rate}}}, Replicas: []int{len(devices)}, Placement: make([][]problem.DeviceRun, 1)}
	for _, d := range devices {
		q.Placement[0] = append(q.Placement[0], problem.DeviceRun{FirstDevice: d, PerDevice: 1, Replicas: 1})
	}
	return q
}

// Rates are what replicas carry, and in the ratio of the weights where stages take turns.
func TestRates(t *testing.T) {
	p := &problem.Problem{Problem: stages.Problem{
		Models: []stages.Model{{Weight: 1}, {Weight: 3}, {Weight: 1}},
		Pools:  []stages.Pool{{Kind: "L4", Count: 4}, {Kind: "cpu-1", Count: 2, TimeShared: true}},
	}}
	for name, c := range map[string]struct {
		pipelines []problem.Pipeline
		expected  string
	}{
		"own devices":          {[]problem.Pipeline{onDevices(0, 0, 100, 0, 1), onDevices(1, 0, 50, 2)}, "[200 50]"},
		"turns by weight":      {[]problem.Pipeline{onDevices(0, 1, 100, 0, 1), onDevices(1, 1, 100, 0, 1)}, "[50 150]"},
		"the rest of a turn":   {[]problem.Pipeline{onDevices(0, 1, 100, 0), onDevices(1, 1, 100, 0, 1), onDevices(2, 1, 400, 1)}, "[40 120 160]"},
		"two pipelines of one": {[]problem.Pipeline{onDevices(0, 0, 100, 0), onDevices(0, 1, 100, 0), onDevices(2, 1, 100, 0)}, "[100 33.333 66.667]"},
	} {
		setRates(p, c.pipelines)
		var rates []float64
		for _, q := range c.pipelines {
			rates = append(rates, math.Round(q.RPS*1000)/1000)
		}
		if got := fmt.Sprint(rates); got != c.expected {
			t.Errorf("%s: %s, want %s", name, got, c.expected)
		}
	}
}

// No device is asked for more than its time, and no rate can rise alone.
func TestRatesFillDevices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &problem.Problem{Problem: stages.Problem{Pools: []stages.Pool{{Count: 3, TimeShared: true}, {Count: 3}}}}
		var pipelines []problem.Pipeline
		for i := range rapid.IntRange(1, 4).Draw(t, "models") {
			p.Models = append(p.Models, stages.Model{Weight: rapid.Float64Range(.1, 10).Draw(t, "weight")})
			for range rapid.IntRange(1, 2).Draw(t, "pipelines") {
				devices := rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 1, 3, rapid.ID[int]).Draw(t, "devices")
				pipelines = append(pipelines, onDevices(i, rapid.IntRange(0, 1).Draw(t, "pool"), rapid.Float64Range(1, 1000).Draw(t, "rate"), devices...))
			}
		}
		setRates(p, pipelines)
		used := map[turn]float64{}
		for i := range pipelines {
			for d, u := range turnTimes(p, &pipelines[i]) {
				used[d] += pipelines[i].RPS * u
			}
		}
		for i := range pipelines {
			q := &pipelines[i]
			carried := carriedAlone(q)
			isLimited := q.RPS >= carried*(1-1e-9)
			for d := range turnTimes(p, q) {
				isLimited = isLimited || used[d] >= 1-1e-9
				if used[d] > 1+1e-9 {
					t.Fatalf("device %v is busy %g of the time", d, used[d])
				}
			}
			if !isLimited || q.RPS > carried*(1+1e-9) || !(q.RPS > 0) {
				t.Fatalf("pipeline %d has %g of %g requests/s", i, q.RPS, carried)
			}
		}
	})
}

// A model waits too long where the longest batch of another one on a device of its own comes first.
func TestModelsThatWait(t *testing.T) {
	p := &problem.Problem{Problem: stages.Problem{
		Models: []stages.Model{{SLO: 10 * time.Millisecond}, {SLO: 30 * time.Millisecond}},
		Pools:  []stages.Pool{{Count: 2, TimeShared: true}, {Count: 2}},
	}}
	for name, c := range map[string]struct {
		pool     int
		devices  []int // of the second model; the first has device 0
		expected string
	}{
		"one device":      {0, []int{0, 1}, "[0]"},
		"other devices":   {0, []int{1}, "[]"},
		"shares of a GPU": {1, []int{0}, "[]"},
	} {
		pipelines := []problem.Pipeline{onDevices(0, c.pool, 1, 0), onDevices(1, c.pool, 1, c.devices...)}
		for i, latency := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond} {
			pipelines[i].Latency, pipelines[i].Stages[0].MaxTime = latency, latency
		}
		if got := fmt.Sprint(modelsThatWait(p, pipelines)); got != c.expected {
			t.Errorf("%s: %s, want %s", name, got, c.expected)
		}
	}
}
