package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

func main() {
	instrument.Main(&instrument.Instrument{
		Name:  "gate",
		Parts: []instrument.Part{{Name: "gate", Title: "Plans that are checked with profiles of another time", Columns: []string{"profiles a side", "slower", "checks", "failed"}, Measure: gate}},
	})
}

// profilesFile holds the profiles that were taken.
const profilesFile = "bench/gate/testdata/profiles.json.gz"

// readProfiles reads the profiles that were taken, by their date.
func readProfiles() ([]*formats.Profile, error) {
	f, err := os.Open(profilesFile)
	if err != nil {
		return nil, fmt.Errorf("opening the profiles that were taken: %w", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", profilesFile, err)
	}
	var texts []json.RawMessage
	if err := json.NewDecoder(z).Decode(&texts); err != nil {
		return nil, fmt.Errorf("%s: %w", profilesFile, err)
	}
	var list []*formats.Profile
	for i, text := range texts {
		p, err := formats.DecodeProfile(text, fmt.Sprintf("%s[%d]", profilesFile, i))
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// slower returns a profile in which a model (-1: every one) takes longer by a factor.
func slower(p *formats.Profile, model int, factor float64) *formats.Profile {
	return p.WithTimes(func(m int, _ *formats.Measurement) func(*formats.Latency) {
		if factor == 1 || model >= 0 && m != model {
			return nil
		}
		return func(l *formats.Latency) { *l = l.Scaled(factor, factor) }
	})
}

// inputs returns the documents of a plan with a profile: four devices that its models share, each within half a second.
func inputs(p *formats.Profile) planner.Inputs {
	workload, _ := planner.AssumedWorkload(p, document.SLO{Duration: 500 * time.Millisecond})
	return planner.Inputs{Profile: p, Workload: workload, Cluster: &formats.Cluster{
		Format: formats.FormatCluster, Host: formats.HostShared,
		Pools: []formats.Pool{{Device: p.Devices[0].Device, Count: 4, PerNode: 4, Sharing: formats.SharingTime}},
	}}
}

// sides are the old profiles, from the first of which a plan is made, and the new ones, with which it is checked.
type sides struct{ old, now []*formats.Profile }

// fails returns whether the gate fails.
func (s *sides) fails(ctx context.Context) (bool, error) {
	// In stages, every profile would cut a model where its own times say.
	res, err := planner.Solve(ctx, inputs(s.old[0]), planner.Options{Values: map[string]any{"max-partitions": 1}}, highs.Solver{}, nil)
	if err != nil {
		return false, fmt.Errorf("planning: %w", err)
	}
	result, err := check.Gate(ctx, check.GateInput{Plan: res.Plan, Today: inputs(s.now[0]), Profiles: s.now[1:], OldProfiles: s.old, Solver: highs.Solver{}})
	if err != nil {
		return false, fmt.Errorf("checking: %w", err)
	}
	return result.Verdict == check.Fail, nil
}

// pairs returns pairs of profiles. Pair i is of profiles i and i+half, so that its two were taken far apart. A model that is
// drawn by turns is slower in the second.
func pairs(list []*formats.Profile, factor float64) (out []sides) {
	half := len(list) / 2
	for i := range half {
		now := list[i+half]
		out = append(out, sides{list[i : i+1], []*formats.Profile{slower(now, i%len(now.Models), factor)}})
	}
	return out
}

// draws returns 100 draws of three profiles a side. All models of one side are slower.
func draws(list []*formats.Profile, factor float64) []sides {
	r := rand.New(rand.NewPCG(1, 23))
	out := make([]sides, 100)
	for i := range out {
		order := r.Perm(len(list))
		for k := range 3 {
			out[i].old = append(out[i].old, list[order[k]])
			out[i].now = append(out[i].now, slower(list[order[3+k]], -1, factor))
		}
	}
	return out
}

// gate counts the checks that fail.
func gate(r *instrument.Run, t *instrument.Table) error {
	list, err := readProfiles()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		claim, slower string
		checks        []sides
		asked         string
		holds         func(failed, checks int) bool
	}{
		{"unchanged models fail the gate, one profile a side, taken at different times", "none", pairs(list, 1), "at most 1 of 30", func(failed, checks int) bool { return failed*30 <= checks }},
		{"one model 5 % slower fails the gate, one profile a side", "a model by 5 %", pairs(list, 1.05), "at least 28 of 30", func(failed, checks int) bool { return failed*30 >= 28*checks }},
		{"3 % slower fails the gate, three profiles a side", "all by 3 %", draws(list, 1.03), "at least 95 of 100", func(failed, checks int) bool { return failed*100 >= 95*checks }},
	} {
		failed, n := 0, len(c.checks)
		for i := range c.checks {
			fails, err := c.checks[i].fails(r.Ctx)
			if err != nil {
				return fmt.Errorf("%s, check %d: %w", c.claim, i, err)
			}
			if fails {
				failed++
			}
		}
		t.Add(len(c.checks[0].old), c.slower, n, failed)
		r.Figure(figures.Figure{Claim: c.claim, Source: "asked of this project", Asked: c.asked, Measured: float64(failed), Unit: fmt.Sprintf("of %d", n), Holds: figures.If(n >= 30 && c.holds(failed, n))})
	}
	return nil
}
