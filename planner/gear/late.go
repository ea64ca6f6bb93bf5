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

// Of plans whose SLO is for all requests together.
const (
	spent       = .9  // of the lateness that the percentile allows
	lateUnit    = 1e4 // parts that lateness is counted in
	lessLate    = .8  // factor, where the measured rates show more lateness than the ranges did
	triesOnRate = 8
)

// alternatives are the gears that every range could have, its own first. choices say how much each
// adds to the accuracy of all requests, as its value, and to their lateness, as its weight.
type alternatives struct {
	gears   [][]Planned
	choices [][]knapsack.Choice
}

// add adds a gear to those of a range that so many of the requests come in.
func (a *alternatives) add(r int, g Planned, weight float64) {
	g.Late = g.Trial.late
	a.gears[r] = append(a.gears[r], g)
	a.choices[r] = append(a.choices[r], knapsack.Choice{Value: weight * g.Accuracy, Weight: weight * g.Late})
}

// allowLateRanges lets ranges be later than the percentile allows where others are not:
// every range keeps what it has or takes a more accurate gear that is stable at
// its upper edge, such that all requests together keep the SLO. A knapsack, whose
// room is the lateness that the percentile allows. Where rates were measured,
// the plan is run on them; if more requests are late than the ranges said, the
// room is made smaller. With an error every range has its own gear still.
func (out *Outcome) allowLateRanges(ctx context.Context) error {
	p, b := out.Problem, out.design.bench
	could, err := out.alternatives(ctx)
	for room := spent * (1 - p.Percentile); err == nil; room *= lessLate {
		picks := knapsack.Best(could.choices, room, lateUnit)
		if out.take(could, picks); !p.shown() || p.many() {
			return nil
		}
		var shown onRates
		if shown, err = b.onStreams(ctx, out.Gears, streams(p), 1); err != nil {
			break
		}
		out.Tail, out.shown = shown.tail, shown.accuracy
		if shown.keeps(p) {
			out.says(p, &shown)
			return nil
		}
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

// alternatives are those of every range. Its own gear is there even with an error.
func (out *Outcome) alternatives(ctx context.Context) (*alternatives, error) {
	p, b := out.Problem, out.design.bench
	could := &alternatives{make([][]Planned, len(p.Edges)), make([][]knapsack.Choice, len(p.Edges))}
	for r := range p.Edges {
		could.add(r, out.Gears[r], p.Weights[r])
	}
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

// take gives every range one of the gears that it could have.
func (out *Outcome) take(could *alternatives, picks []int) {
	out.Accuracy, out.Tail, out.shown = 0, 0, 0
	for r, k := range picks {
		out.Gears[r] = could.gears[r][k]
		out.Accuracy += could.choices[r][k].Value
	}
}

// onRates is what gears show on measured rates: the tail latency of all requests, the
// share that is late, and the accuracy, without the luck of the samples that come.
type onRates struct {
	tail           time.Duration
	heldOut        time.Duration // the same of streams whose requests bring the samples held out; 0: none did
	late, accuracy float64
	under          []float64 // share of the requests that come under each gear
}

// worst raises tails and lateness to those of another stream.
func (r *onRates) worst(o *onRates) {
	r.tail, r.heldOut, r.late = max(r.tail, o.tail), max(r.heldOut, o.heldOut), max(r.late, o.late)
}

// samplesOf returns what the requests of a stream at the measured rates bring: of every second
// stream the samples held out, if there are any.
func (b *bench) samplesOf(stream int) *Samples {
	if p := b.p; p.HeldOut.present() && stream != evenly && stream%2 == 1 {
		return p.HeldOut
	}
	return b.p.Planned
}

// onMeasured runs gears on the measured rates, by Poisson arrivals of a stream, or by
// arrivals at even distances. Once more than a share of them is late, the run ends: late
// is then 1, and nothing else is known.
func (b *bench) onMeasured(ctx context.Context, gears []Planned, stream int, most float64) (onRates, error) {
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
	requests := sum(b.p.Measured)
	latencies, n, enough := make([]time.Duration, 0, int(requests)+1), 0, int(most*requests)
	source := arrivals.Evenly(b.p.Measured)
	if stream != evenly {
		source = arrivals.PoissonOf(b.p.Measured, seeded.New(b.seed, measuredName(stream)))
	}
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
	out := onRates{late: float64(n) / float64(max(1, len(latencies))), accuracy: res.Gears.Expected(planned), under: res.Gears.Shares()}
	if tail := report.PercentileReordering(latencies, b.p.Percentile); on == b.p.Planned {
		out.tail = tail
	} else {
		out.heldOut = tail
	}
	return out, nil
}

// evenly is the stream of requests at even distances.
const evenly = -1

// measuredName names a stream of arrivals at the measured rates.
func measuredName(stream int) string {
	if stream == 0 {
		return "gear/measured"
	}
	return fmt.Sprintf("gear/measured/%d", stream)
}

// onStreams runs gears on several streams at the measured rates, of which each has to
// keep the SLO. Once more than a share of the first is late, it ends; the first stream
// that does not keep the SLO is the last. Tail and lateness are the worst of all, the rest
// is the mean of those that keep it.
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

// meanOfStreams are the mean accuracy of streams and the mean shares under the gears.
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

// says makes what streams at the measured rates showed the shares and the accuracy of the
// plan, and the lateness of all requests that of every range.
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

// trial returns what streams at the measured rates showed as a trial of every range.
func (r *onRates) trial() Trial {
	return Trial{Latency: r.tail, HeldOut: r.heldOut, Stable: true, Passed: true, late: r.late}
}

// keeps tells whether all requests together keep the SLO.
func (r onRates) keeps(p *Problem) bool {
	return max(r.tail, r.heldOut) <= p.SLO && r.late <= 1-p.Percentile
}

// streams is how many streams at the measured rates have to keep the SLO: gears may be
// lucky in one. The more requests, the fewer streams say enough.
func streams(p *Problem) int {
	if !p.shown() {
		return 1
	}
	return max(1, min(measuredStreams, int(mostStreamed/sum(p.Measured))))
}

// Streams at measured rates that are run at most, and the requests that they come to.
const (
	measuredStreams = 8
	mostStreamed    = 10_000_000
)

// A plan is run on measured rates as a whole up to so many requests: one cascade for
// all rates, of which few are tried, and the choices of ranges, of which many are.
const (
	mostShown    = 4_000_000
	mostTogether = 400_000
)

// many tells whether running the measured rates takes long.
func (p *Problem) many() bool { return sum(p.Measured) > mostTogether }

// shown tells whether one cascade is run on measured rates.
func (p *Problem) shown() bool {
	return p.Overall && sum(p.Measured) > 0 && sum(p.Measured) <= mostShown
}
