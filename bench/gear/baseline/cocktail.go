package baseline

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"inferplan/bench/gear/published"
	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/planner/gear/cascades"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/sim"
)

// Autoscaler says how Cocktail+ buys devices: for every period it knows the
// highest rate to come and takes what holds it at the utilisation Eta. What it
// adds can be used after Load, and is paid for at once.
type Autoscaler struct {
	Period, Load time.Duration
	Eta          float64
}

// Ensemble is Cocktail+ with a fixed set of models on the arrivals.
type Ensemble struct {
	Models   []int
	Scaler   Autoscaler
	Accuracy float64 // of the vote, on the samples planned on
	Mean     float64 // devices, over time
	P95      time.Duration
	Windows  []Window `json:",omitempty"` // if they are wanted

	answers []answer
	counts  [][]int // by member and period
}

// answer of a request, in order of arrival.
type answer struct{ arrived, took time.Duration }

// windows returns the ensemble's windows over the run.
func (e *Ensemble) windows(of Sliding) []Window {
	if of.Step == 0 {
		return nil
	}
	parts := slicer{step: of.Step}
	for _, a := range e.answers {
		parts.add(a.arrived, a.took)
	}
	return parts.windows(of.Width, func(slice int) float64 { return e.Accuracy * float64(len(parts.took[slice])) })
}

// Vote is the accuracy of a set of models that vote on the answer with the log
// odds of their own accuracy: right where the models that are right outweigh
// the others. A tie is wrong.
func Vote(p *cascades.Problem, models uint32) float64 {
	weight := make([]float64, len(p.Models))
	for m := range weight {
		a := min(max(Single(p, m), 1e-6), 1-1e-6)
		weight[m] = math.Log(a / (1 - a))
	}
	right := 0
	for i := range p.PlanningSamples.N {
		sum := 0.0
		for m := range weight {
			switch {
			case models&(1<<m) == 0:
			case p.PlanningSamples.Correct[m][i]:
				sum += weight[m]
			default:
				sum -= weight[m]
			}
		}
		if sum > 0 {
			right++
		}
	}
	return float64(right) / float64(p.PlanningSamples.N)
}

// counts says how many devices a model has in each period.
func (a *Autoscaler) counts(p *cascades.Problem, model int, r published.Rates) []int {
	best := 0.0 // samples per second of one device
	for b, t := range p.Models[model].FastestTimes {
		if t <= p.SLO {
			best = max(best, float64(b+1)/t.Seconds())
		}
	}
	step := int(a.Period / time.Second)
	var out []int
	for at := 0; at < len(r); at += step {
		peak := r[at:min(at+step, len(r))].Peak()
		out = append(out, max(1, int(math.Ceil(peak/(a.Eta*best)-1e-9))))
	}
	return out
}

// mean returns the costs of the sets of a plan of counts, in devices over time.
func (a *Autoscaler) mean(counts []int, r published.Rates) float64 {
	step := int(a.Period / time.Second)
	sum := 0.0
	for k, n := range counts {
		sum += float64(n * (min((k+1)*step, len(r)) - k*step))
	}
	return sum / float64(len(r))
}

// Cocktail is the cheapest ensemble with at least the accuracy whose tail meets
// the target: every set of at least members models with every autoscaler, in
// order of mean devices. Nil where there is none. Without windows, those of the run are not kept.
func Cocktail(ctx context.Context, p *cascades.Problem, r published.Rates, source func() arrivals.Source, scalers []Autoscaler, accuracy float64, members int, target time.Duration, windows Sliding) (*Ensemble, error) {
	var options []Ensemble
	for set := uint32(1); set < 1<<len(p.Models); set++ {
		if bits.OnesCount32(set) < members {
			continue
		}
		a := Vote(p, set)
		if a < accuracy {
			continue
		}
		for _, s := range scalers {
			o := Ensemble{Scaler: s, Accuracy: a}
			for m := range p.Models {
				if set&(1<<m) != 0 {
					c := s.counts(p, m, r)
					o.Models, o.counts = append(o.Models, m), append(o.counts, c)
					o.Mean += s.mean(c, r)
				}
			}
			options = append(options, o)
		}
	}
	slices.SortStableFunc(options, func(a, b Ensemble) int { return cmp.Compare(a.Mean, b.Mean) })
	for i := range options {
		o := &options[i]
		late := false
		for k, m := range o.Models {
			took, err := scaled(ctx, p, m, o.counts[k], &o.Scaler, source())
			if err != nil {
				return nil, err
			}
			if o.answers == nil {
				o.answers = took
			}
			var list []time.Duration
			for j := range o.answers { // the slowest member's
				o.answers[j].took = max(o.answers[j].took, took[j].took)
				list = append(list, o.answers[j].took)
			}
			if o.P95 = report.PercentileReordering(list, percentile); o.P95 > target {
				late = true
				o.answers = nil
				break // other members only add to it
			}
		}
		if !late {
			o.Windows = o.windows(windows)
			return o, nil
		}
	}
	return nil, nil
}

// scaled runs one member of an ensemble on its own devices.
func scaled(ctx context.Context, p *cascades.Problem, model int, counts []int, a *Autoscaler, src arrivals.Source) ([]answer, error) {
	own := onDevices(p, slices.Max(counts), 0)
	t := DynBa(own, model)
	var faults []sim.Fault
	for k, n := range counts {
		at := time.Duration(k) * a.Period
		if k == 0 { // there from the start
			for d := n; d < own.Kinds[0].Devices; d++ {
				faults = append(faults, sim.Fault{Device: int32(d)})
			}
			continue
		}
		for d := counts[k-1]; d < n; d++ {
			// A device that is given up before it is loaded never helps.
			if a.Load < a.Period || k+1 == len(counts) || counts[k+1] > d {
				faults = append(faults, sim.Fault{At: at + a.Load, Device: int32(d), ComesBack: true})
			}
		}
		for d := n; d < counts[k-1]; d++ {
			faults = append(faults, sim.Fault{At: at, Device: int32(d)})
		}
	}
	slices.SortStableFunc(faults, func(a, b sim.Fault) int { return cmp.Compare(a.At, b.At) })
	pol, err := policygear.New(t, policygear.OptionsWithoutRefusals(t))
	if err != nil {
		return nil, err
	}
	var out []answer
	_, err = sim.Run(ctx, sim.Config{Tables: t, Policy: policy.Policy(pol), Source: src, Faults: faults, NoReport: true,
		OnCompleted: func(arrived, answered time.Duration) { out = append(out, answer{arrived, answered - arrived}) }})
	if err != nil {
		return nil, fmt.Errorf("running a member of an ensemble: %w", err)
	}
	slices.SortStableFunc(out, func(a, b answer) int { return cmp.Compare(a.arrived, b.arrived) })
	return out, nil
}
