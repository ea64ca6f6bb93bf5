package gear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/report"
	"inferplan/formats/seeded"
	"inferplan/policy/gear"
	"inferplan/sim"
	"inferplan/solver/knapsack"
)

// Parameters of plans whose SLO is over all requests.
const (
	spent       = .9  // part of the late share allowed by the percentile that is planned for
	lateUnit    = 1e4 // units of the late share in the knapsack
	lessLate    = .8  // factor on the late share if measured rates show more late requests than the ranges did
	triesOnRate = 8   // number of such steps
)

// gearChoices are the gears that every range may have, its own first. items[r][k] has what gear k of range r adds
// to the accuracy of all requests, as its value, and to their late share, as its weight.
type alternatives struct {
	gears   [][]Planned
	choices [][]knapsack.Choice
}

// addGear adds a gear to the choices of a range. weight is the range's share of the requests.
func (a *alternatives) add(r int, g Planned, weight float64) {
	g.Late = g.Trial.late
	a.gears[r] = append(a.gears[r], g)
	a.choices[r] = append(a.choices[r], knapsack.Choice{Value: weight * g.Accuracy, Weight: weight * g.Late})
}

// allowLateRanges gives ranges more accurate gears that miss the SLO but are stable at the upper edge, as far as
// all requests together keep it. The choice is a knapsack, whose capacity is the late share that the percentile
// allows. If rates were measured, the plan is simulated on them. While more requests are late than the trials
// showed, the capacity is reduced. If it returns an error, every range still has its own gear.
func (out *Outcome) allowLateRanges(ctx context.Context) error {
	p, b := out.Problem, out.design.bench
	could, err := out.alternatives(ctx)
	for room := spent * (1 - p.Percentile); err == nil; room *= lessLate {
		// Choose gears for the capacity.
		picks := knapsack.Best(could.choices, room, lateUnit)
		if out.take(could, picks); !p.shown() || p.many() {
			return nil
		}

		// Simulate them on the measured rates.
		var shown onRates
		if shown, err = b.onStreams(ctx, out.Gears, streams(p), 1); err != nil {
			break
		}
		out.Tail, out.shown = shown.tail, shown.accuracy
		if shown.keeps(p) {
			out.says(p, &shown)
			return nil
		}

		// Stop if no range has another gear.
		if plain := !slices.ContainsFunc(picks, func(k int) bool { return k > 0 }); plain {
			return nil
		}
		if room < (1-p.Percentile)*math.Pow(lessLate, triesOnRate) {
			room = 0
		}
	}
	out.take(could, make([]int, len(p.Edges)))
	return err
}

// listGearChoices returns the gears that every range may have. Each range has its own gear even if an error is
// returned.
func (out *Outcome) alternatives(ctx context.Context) (*alternatives, error) {
	p, b := out.Problem, out.design.bench
	could := &alternatives{make([][]Planned, len(p.Edges)), make([][]knapsack.Choice, len(p.Edges))}
	for r := range p.Edges {
		could.add(r, out.Gears[r], p.Weights[r])
	}

	// Try the more accurate cascades of each range, until two are unstable.
	for r, edge := range p.Edges {
		w := p.Weights[r]
		list, err := out.design.ladder(ctx, edge, out.Gears[r].Cascade.Correct)
		if err != nil {
			return could, err
		}
		if n := len(list); n == 0 || w*(accuracyOn(p, list[n-1].cascade)-out.Gears[r].Accuracy) < worthwhile/float64(len(p.Edges)) {
			continue // no choice adds anything
		}
		for k, fails := 0, 0; k < len(list) && fails < 2; k++ {
			s := &list[k]
			t, err := b.tryLate(ctx, s, edge, min(1, (1-p.Percentile)/w))
			if err != nil {
				return could, err
			}
			if !t.Stable {
				fails++
				continue
			}
			could.add(r, gearOf(p, s, edge, t), w)
		}
	}
	return could, nil
}

// chooseGears gives every range one of its choices, by index.
func (out *Outcome) take(could *alternatives, picks []int) {
	out.Accuracy, out.Tail, out.shown = 0, 0, 0
	for r, k := range picks {
		out.Gears[r] = could.gears[r][k]
		out.Accuracy += could.choices[r][k].Value
	}
}

// measuredResult is what a plan shows on simulated measured rates.
type onRates struct {
	tail           time.Duration // at the SLO's percentile, over all requests
	heldOut        time.Duration // the same of streams that bring held-out samples; 0 if none did
	late, accuracy float64       // share of late requests; accuracy of the gears in use over all samples, not only those that came
	under          []float64     // by gear: share of the requests that it served
}

// takeWorst raises tails and late share to those of another stream.
func (r *onRates) worst(o *onRates) {
	r.tail, r.heldOut, r.late = max(r.tail, o.tail), max(r.heldOut, o.heldOut), max(r.late, o.late)
}

// streamSamples returns the samples that the requests of a stream bring. Every second stream brings the held-out
// ones, if there are any.
func (b *bench) samplesOf(stream int) *Samples {
	if p := b.p; p.HeldOut.present() && stream != evenly && stream%2 == 1 {
		return p.HeldOut
	}
	return b.p.Planned
}

// runMeasured simulates gears on the measured rates with the arrivals of a stream: Poisson, or evenly spaced for
// evenStream. Once more than maxLateShare of the requests are late, the run ends, and the result only has a late
// share of 1.
func (b *bench) onMeasured(ctx context.Context, gears []Planned, stream int, most float64) (onRates, error) {
	// Tables of the gears, with the samples of the stream.
	b.runs++
	t := b.whole(gears)
	planned, on := gear.Of(t), b.samplesOf(stream)
	if on != b.p.Planned {
		own := *planned
		own.Records, t.Own = b.records(on), &own
	}
	pol, err := gear.New(t, gear.NotShedding(t))
	if err != nil {
		return onRates{}, err
	}

	// Arrivals.
	requests := sum(b.p.Measured)
	latencies, n, enough := make([]time.Duration, 0, int(requests)+1), 0, int(most*requests)
	source := arrivals.Evenly(b.p.Measured)
	if stream != evenly {
		source = arrivals.PoissonOf(b.p.Measured, seeded.New(b.seed, measuredName(stream)))
	}

	// Run, and count late requests.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := sim.Run(ctx, sim.Config{Tables: t, Policy: pol, Source: source, Egress: b.p.Beside, FrontEnd: b.p.FrontEnd, NoReport: true, Completed: func(arrived, answered time.Duration) {
		latencies = append(latencies, answered-arrived)
		if answered-arrived > b.p.SLO {
			if n++; n > enough {
				cancel(errLate)
			}
		}
	}})
	b.requests += len(latencies)
	if err != nil && errors.Is(context.Cause(ctx), errLate) {
		return onRates{late: 1}, nil
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return onRates{}, fmt.Errorf("running the plan on the measured rates: %w", err)
	}
	if err != nil {
		return onRates{}, err
	}

	// Collect the result.
	out := onRates{late: float64(n) / float64(max(1, len(latencies))), accuracy: res.Gears.Expected(planned), under: res.Gears.Shares()}
	if tail := report.PercentileReordering(latencies, b.p.Percentile); on == b.p.Planned {
		out.tail = tail
	} else {
		out.heldOut = tail
	}
	return out, nil
}

// evenStream is the stream with evenly spaced requests.
const evenly = -1

// measuredStreamName names the random numbers of a stream at the measured rates.
func measuredName(stream int) string {
	if stream == 0 {
		return "gear/measured"
	}
	return fmt.Sprintf("gear/measured/%d", stream)
}

// runStreams simulates gears on several streams at the measured rates, each of which must keep the SLO. The first
// stream ends once more than maxLateShare of its requests are late. A stream that misses the SLO is the last. Tail
// and late share of the result are the worst of all streams. The rest is the mean of those that keep the SLO.
func (b *bench) onStreams(ctx context.Context, gears []Planned, n int, most float64) (onRates, error) {
	all, err := b.onMeasured(ctx, gears, 0, most)
	kept := []onRates{all}
	for k := 1; err == nil && k < n && all.keeps(b.p); k++ {
		var one onRates
		one, err = b.onMeasured(ctx, gears, k, 1-b.p.Percentile)
		if all.worst(&one); err == nil && one.keeps(b.p) {
			kept = append(kept, one)
		}
	}
	if err != nil {
		return onRates{}, err
	}
	all.accuracy, all.under = meanOfStreams(kept)
	return all, nil
}

// meanOfStreams returns the mean accuracy of streams and their mean gear shares.
func meanOfStreams(list []onRates) (accuracy float64, under []float64) {
	under = make([]float64, len(list[0].under))
	for i := range list {
		accuracy += list[i].accuracy / float64(len(list))
		for r := range under {
			under[r] += list[i].under[r] / float64(len(list))
		}
	}
	return accuracy, under
}

// adoptMeasured sets the plan's weights and accuracy to what streams at the measured rates showed, and the late
// share of every range to that of all requests.
func (out *Outcome) says(p *Problem, shown *onRates) {
	q := *p
	q.Weights = normalise(slices.Clone(shown.under))
	out.Problem, out.Gears, out.Tail, out.Accuracy = &q, slices.Clone(out.Gears), shown.tail, 0
	for r := range out.Gears {
		g := &out.Gears[r]
		g.Late, g.Trial = shown.late, shown.trial()
		out.Accuracy += q.Weights[r] * g.Accuracy
	}
	out.shown = out.Accuracy
}

// asTrial returns the result as the trial of every range.
func (r *onRates) trial() Trial {
	return Trial{Latency: r.tail, HeldOut: r.heldOut, Stable: true, Passed: true, late: r.late}
}

// keepsSLO reports whether all requests together keep the SLO.
func (r onRates) keeps(p *Problem) bool {
	return max(r.tail, r.heldOut) <= p.SLO && r.late <= 1-p.Percentile
}

// streamCount returns the number of streams at the measured rates that must keep the SLO. One alone may be lucky.
// The more requests a stream has, the fewer streams are needed.
func streams(p *Problem) int {
	if !p.shown() {
		return 1
	}
	return max(1, min(measuredStreams, int(mostStreamed/sum(p.Measured))))
}

// Limits on the streams at measured rates, and on their requests together.
const (
	measuredStreams = 8
	mostStreamed    = 10_000_000
)

// Measured rates of up to maxSimulatedRequests requests are simulated as a whole for the few tries of one cascade
// for all ranges. The many choices of gears per range are only simulated on up to manyRequests.
const (
	mostShown    = 4_000_000
	mostTogether = 400_000
)

// hasManyRequests reports whether a simulation of the measured rates takes long.
func (p *Problem) many() bool { return sum(p.Measured) > mostTogether }

// simulatesMeasured reports whether plans are simulated on the measured rates.
func (p *Problem) shown() bool {
	return p.Overall && sum(p.Measured) > 0 && sum(p.Measured) <= mostShown
}
