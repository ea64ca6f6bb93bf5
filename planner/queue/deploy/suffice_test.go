package deploy

import (
	"testing"
	"time"

	"inferplan/formats"
)

// TestAllDevicesSufficeForReachableSLO: eight devices keep an SLO that one request alone keeps. No number of
// devices keeps one that is shorter than an answer takes.
func TestAllDevicesSufficeForReachableSLO(t *testing.T) {
	for _, c := range []struct {
		slo  time.Duration
		want bool
	}{{60 * time.Second, true}, {500 * time.Millisecond, false}} {
		p := chatAndBatch()
		p.Problem.Classes[0].SLO = c.slo
		p.Problem.Items[0].RPS, p.Problem.Items[1].RPS = 0.2, 0.2
		for i := range p.Problem.Classes {
			p.Problem.Classes[i].Prompt = &formats.Lengths{Distribution: "fixed", Mean: 600}
			p.Problem.Classes[i].Output = &formats.Lengths{Distribution: "fixed", Mean: 200}
		}
		got, err := AllDevicesSuffice(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("SLO %v: all devices are enough: %v, want %v", c.slo, got, c.want)
		}
		if _, err := p.CheapestLayout(t.Context(), SearchOptions{}, 0, nil); (err == nil) != c.want {
			t.Errorf("SLO %v: the smallest fleet: %v", c.slo, err)
		}
	}
}
