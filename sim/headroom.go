package sim

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/formats"
)

// OwnLoads is what every model sustains beside the others.
type OwnLoads struct {
	// Loads are multiples of each model's own rate; 0: none was found.
	Loads []float64
	// Report is of the run at these loads; nil where a model has none.
	Report *formats.Report
}

// OwnSearch says what loads of models are looked for.
type OwnSearch struct {
	Attainment float64
	Runs       int
	Step, Most float64   // loads are whole steps, up to the most
	From       []float64 // guessed; nil: 1
	// Together gives all models the same load. Where they share devices, one that has
	// too much fails the others, so that loads of their own are not found.
	Together bool
}

// FindOwnLoads looks for the highest load of every model at which it attains what is
// asked while the others have theirs. All models are looked at in the same runs, with
// the same random numbers at every point.
func FindOwnLoads(ctx context.Context, sc *Scenario, o OwnSearch) (*OwnLoads, error) {
	rates := sc.Rates
	if rates == nil {
		for i := range sc.Tables.Models {
			rates = append(rates, sc.Tables.Models[i].RPS)
		}
	}
	at := func(points []int) (*formats.Report, error) {
		one := *sc
		one.Load, one.Rates = 1, make([]float64, len(rates))
		for i := range rates {
			one.Rates[i] = rates[i] * float64(points[i]) * o.Step
		}
		res, err := Replicate(ctx, &one, o.Runs)
		if err != nil {
			return nil, err
		}
		return res.Report, nil
	}
	end := int(math.Round(o.Most / o.Step))
	search := make([]bracket, len(rates))
	for i := range search {
		guess := 1.
		if o.From != nil {
			guess = o.From[i]
		}
		search[i] = bracket{at: min(max(1, int(math.Round(guess/o.Step))), end), fails: end + 1}
	}
	if o.Together {
		least := slices.MinFunc(search, func(a, b bracket) int { return cmp.Compare(a.at, b.at) })
		for i := range search {
			search[i].at = least.at
		}
	}
	points := make([]int, len(rates))
	for {
		open := false
		for i := range search {
			open = open || !search[i].closed()
			if points[i] = search[i].at; search[i].closed() {
				points[i] = max(1, search[i].passes)
			}
		}
		if !open {
			return o.jointly(points, at)
		}
		r, err := at(points)
		if err != nil {
			return nil, err
		}
		all := !slices.ContainsFunc(r.Models, func(m formats.ModelReport) bool { return m.Attainment < o.Attainment })
		for i := range search {
			if !search[i].closed() {
				search[i].saw(all || !o.Together && r.Models[i].Attainment >= o.Attainment)
			}
		}
	}
}

// jointly lowers loads that were found one by one until they hold together, more each
// time.
func (o *OwnSearch) jointly(points []int, at func([]int) (*formats.Report, error)) (*OwnLoads, error) {
	out := &OwnLoads{Loads: make([]float64, len(points))}
	for round := 0; ; round++ {
		r, err := at(points)
		if err != nil {
			return nil, err
		}
		holds, lower := true, false
		for i := range points {
			if r.Models[i].Attainment >= o.Attainment {
				continue
			}
			holds = false
			if points[i] > 1 {
				points[i] = max(1, points[i]-1<<(round/2))
				lower = true
			}
		}
		if holds {
			for i := range points {
				out.Loads[i] = float64(points[i]) * o.Step
			}
			out.Report = r
		}
		if !lower {
			return out, nil
		}
	}
}
