package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"inferplan/bench/figures"
	"inferplan/bench/instrument"
)

// plain are the policies of the main tables.
var plain = []string{"naive", "nexus", "clipper++", "pard", "feas"}

// scenario is a run that policies are compared on.
type scenario struct {
	name string // S0/lv-tweet
	run  func(ctx context.Context, policy string, seed uint64) (outcome, error)
}

// scenario returns a job as a scenario.
func (j *job) scenario(name string) scenario {
	return scenario{name, func(ctx context.Context, policy string, seed uint64) (outcome, error) {
		return j.measure(ctx, policySpec(policy, j.trace), seed)
	}}
}

// measured returns the outcome of a scenario under a policy, measured now or before.
func (s *scenario) measured(r *instrument.Run, policy string, seed uint64) (outcome, error) {
	return instrument.Measured(r, fmt.Sprintf("%s %s %d", s.name, policy, seed), func() (outcome, error) { return s.run(r.Ctx, policy, seed) })
}

// drops are the outcomes of policies on the scenarios of a part.
type drops struct {
	part     string
	names    []string // of scenarios
	seeds    int
	outcomes map[string][]outcome // by scenario and policy, one for each seed
}

// runs returns the outcomes of a policy on a scenario, one for each seed.
func (d *drops) runs(name, policy string) []outcome { return d.outcomes[name+" "+policy] }

// measureDrops runs scenarios under policies and adds a row for each scenario to the table: what no policy can keep from being dropped, and of every policy the
// requests dropped or late with half of the 95 % interval over the seeds, and invalid device time, in percent.
func (b *bench) measureDrops(r *instrument.Run, t *instrument.Table, part string, scenarios []scenario, policies ...string) (*drops, error) {
	d := &drops{part: part, seeds: b.seeds, outcomes: map[string][]outcome{}}
	t.Columns = append([]string{"case", "unavoidable"}, policies...)
	for _, s := range scenarios {
		d.names = append(d.names, s.name)
		row := []any{s.name, ""}
		for _, policy := range policies {
			var list []outcome
			for seed := range uint64(b.seeds) {
				out, err := s.measured(r, policy, seed+1)
				if err != nil {
					return nil, err
				}
				list = append(list, out)
			}
			d.outcomes[s.name+" "+policy] = list
			row = append(row, spread("%.2f", list, func(o *outcome) float64 { return 100 * o.dropRate() })+
				fmt.Sprintf(", %.2f", meanOf(list, func(o *outcome) float64 { return 100 * o.Invalid })))
			row[1] = fmt.Sprintf("%.2f", meanOf(list, func(o *outcome) float64 { return 100 * (1 - float64(o.Bound)/float64(o.Requests)) }))
		}
		t.Add(row...)
	}
	return d, nil
}

// valuesOf returns a value of every outcome.
func valuesOf(list []outcome, value func(o *outcome) float64) []float64 {
	values := make([]float64, len(list))
	for i := range list {
		values[i] = value(&list[i])
	}
	return values
}

// meanOf returns the mean of a value over outcomes.
func meanOf(list []outcome, value func(o *outcome) float64) float64 {
	return stat.Mean(valuesOf(list, value), nil)
}

// spread writes the mean of a value over outcomes, with half of its 95 % interval if there are several.
func spread(format string, list []outcome, value func(o *outcome) float64) string {
	mean, interval := instrument.Mean(valuesOf(list, value))
	if interval == nil {
		return fmt.Sprintf(format, mean)
	}
	return fmt.Sprintf(format+" ± "+format, mean, interval[1]-mean)
}

// ratio is a policy against PARD over scenarios.
type ratio struct {
	least, mean, largest float64 // drop rate over PARD's; the mean is geometric
	invalid              float64 // geometric mean of invalid device time over PARD's
	share, overShare     float64 // mean share of the bound: of all requests, of those in overloaded windows
}

// ratioOf returns a policy against PARD with some of the seeds, from first to before end.
func (d *drops) ratioOf(policy string, first, end int) ratio {
	r := ratio{least: math.Inf(1)}
	for _, name := range d.names {
		ours, pard := d.runs(name, policy)[first:end], d.runs(name, "pard")[first:end]
		times := meanOf(ours, (*outcome).dropRate) / meanOf(pard, (*outcome).dropRate)
		r.least, r.largest, r.mean = min(r.least, times), max(r.largest, times), r.mean+math.Log(times)
		invalid := func(o *outcome) float64 { return o.Invalid }
		r.invalid += math.Log(max(meanOf(ours, invalid), 1e-9) / max(meanOf(pard, invalid), 1e-9))
		r.share += meanOf(ours, func(o *outcome) float64 { return float64(o.Good) / float64(o.Bound) })
		r.overShare += meanOf(ours, func(o *outcome) float64 { return float64(o.OverGood) / float64(max(1, o.OverBound)) })
	}
	n := float64(len(d.names))
	r.mean, r.invalid, r.share, r.overShare = math.Exp(r.mean/n), math.Exp(r.invalid/n), r.share/n, r.overShare/n
	return r
}

// against returns a policy against PARD with all seeds.
func (d *drops) against(policy string) ratio { return d.ratioOf(policy, 0, d.seeds) }

// verdict returns whether a ratio is the paper's: yes, partly where it is on the same side of 1 by a tenth of the way at least, or no.
func verdict(x, least, largest float64) figures.Holds {
	switch {
	case x >= least && x <= largest:
		return figures.Yes
	case x-1 >= (least-1)/10:
		return figures.Partly
	}
	return figures.No
}

// orPartly returns Yes or Partly.
func orPartly(holds bool) figures.Holds {
	if holds {
		return figures.Yes
	}
	return figures.Partly
}

const (
	besidePARD = "PARD §5.2, our default beside it"
	timesPARD  = "PARD §5.2: 1.6 to 16.7 times"
)

// stateGains states how much less feas drops than PARD, and how much more others do.
func (d *drops) stateGains(r *instrument.Run) {
	feas := d.against("feas")
	var means []float64 // by seed
	for seed := range d.seeds {
		means = append(means, d.ratioOf("feas", seed, seed+1).mean)
	}
	f := r.AtMost(fmt.Sprintf("%s: drop rate of feas over that of pard, geometric mean of %d cases", d.part, len(d.names)), besidePARD, .8, "ratio", feas.mean)
	_, f.Interval = instrument.Mean(means)
	r.AtMost(fmt.Sprintf("%s: drop rate of feas over that of pard, worst of %d cases", d.part, len(d.names)), besidePARD, 1.02, "ratio", feas.largest)
	for _, policy := range []string{"nexus", "clipper++"} {
		times := d.against(policy)
		r.Figure(figures.Figure{Claim: fmt.Sprintf("%s: drop rate of %s over that of pard, geometric mean", d.part, policy), Source: timesPARD, Asked: "at least 1.6", Measured: times.mean, Unit: "ratio",
			Holds: orPartly(times.least >= 1.6)})
	}
}

// tracedScenarios returns all pipelines on traces. late has later modules start more slowly.
func (b *bench) tracedScenarios(part string, traces []*trace, late bool) []scenario {
	var list []scenario
	for _, p := range b.pipes {
		for _, t := range traces {
			list = append(list, tracedJob(p, t, late).scenario(part+"/"+p.name+"-"+t.name))
		}
	}
	return list
}

// measureS0 compares policies where all modules start alike.
func (b *bench) measureS0(r *instrument.Run, t *instrument.Table) error {
	d, err := b.measureDrops(r, t, "S0", b.tracedScenarios("S0", b.traces, false), plain...)
	if err != nil {
		return err
	}
	d.stateGains(r)
	r.AtLeast("S0: share of the bound of feas, mean", "clairvoyant greedy", .9975, "share", d.against("feas").share)
	pard := d.against("pard")
	for _, policy := range []string{"nexus", "clipper++"} {
		times := d.against(policy)
		gain := pard.overShare / times.overShare
		r.Figure(figures.Figure{Claim: "invalid device time of " + policy + " over pard's, geometric mean of S0", Source: "PARD §5.2: 1.5 to 62 times", Asked: "1.5 to 62",
			Measured: times.invalid, Unit: "ratio", Holds: verdict(times.invalid, 1.5, 62)})
		r.Figure(figures.Figure{Claim: "goodput in overloaded windows of pard over " + policy + "'s, of the means of S0", Source: "PARD §5.2: 16 to 176 % more", Asked: "1.16 to 2.76",
			Measured: gain, Unit: "ratio", Holds: verdict(gain, 1.16, 2.76)})
	}
	// Where PARD drops on lv.
	early, all := 0., 0.
	for _, tr := range b.traces {
		for _, o := range d.runs("S0/lv-"+tr.name, "pard") {
			early += float64(o.Drops[0] + o.Drops[1])
			all += float64(o.Requests - o.Good)
		}
	}
	r.AtLeast("S0, lv: share of pard's drops in the first two modules", "PARD §5.3: 87 %", .8, "share", early/all)
	// What the policy costs: all CPU time of a simulated run, the simulator's own included, over the executions along the path.
	executions := b.pipe("lv").longestPath() / 1e3
	r.AtMost("S0/lv-tweet: CPU time of a request under feas, the simulator's included, over the executions along its path", "PARD §5.4: < 0.16 % of the latency", .0016, "share",
		meanOf(d.runs("S0/lv-tweet", "feas"), func(o *outcome) float64 { return o.CPU / float64(o.Requests) / executions }))
	return nil
}

// lateCases are those of S1.
var lateCases = []string{"S1/lv-tweet", "S1/lv-azure", "S1/da-tweet", "S1/da-azure", "S1/lv-wiki"}

// measureS1 compares policies where the cold start rises along the pipeline.
func (b *bench) measureS1(r *instrument.Run, t *instrument.Table) error {
	late := slices.DeleteFunc(b.tracedScenarios("S1", b.traces, true), func(s scenario) bool { return !slices.Contains(lateCases, s.name) })
	d, err := b.measureDrops(r, t, "S1", late, plain...)
	if err != nil {
		return err
	}
	d.stateGains(r)
	even, err := b.measureDrops(r, &instrument.Table{}, "S0", b.tracedScenarios("S0", b.traces, false), "pard")
	if err != nil {
		return err
	}
	var rates []float64
	for _, part := range []*drops{even, d} {
		for _, name := range part.names {
			rates = append(rates, meanOf(part.runs(name, "pard"), (*outcome).dropRate))
		}
	}
	const source = "PARD §5.2: 0.12 to 3.6 %"
	r.AtLeast("drop rate of pard, least over the cases of S0 and S1", source, .0012, "share", slices.Min(rates))
	r.AtMost("drop rate of pard, most over the cases of S0 and S1", source, .036, "share", slices.Max(rates))
	return nil
}

// measureOther compares policies on slices on which nothing was tuned.
func (b *bench) measureOther(r *instrument.Run, t *instrument.Table) error {
	d, err := b.measureDrops(r, t, "other", b.tracedScenarios("other", b.others, false), "nexus", "clipper++", "pard", "feas")
	if err == nil {
		d.stateGains(r)
	}
	return err
}

// loads of the stress test, over what 64 workers carry.
var loads = []float64{1, 1.1, 1.2, 1.5, 2}

// measureStress compares policies at constant rates of what the workers carry and more.
func (b *bench) measureStress(r *instrument.Run, t *instrument.Table) error {
	var list []scenario
	for _, p := range b.pipes {
		rule := p.fixedScaling(false)
		rule.headroom = 1
		start := p.want(.97*p.capacity(64), rule)
		for _, load := range loads {
			rates := slices.Repeat([]float64{load * p.capacity(64)}, 60)
			list = append(list, (&job{pipe: p, rates: rates, start: start}).scenario(fmt.Sprintf("stress/%s-%.2f", p.name, load)))
		}
	}
	d, err := b.measureDrops(r, t, "stress", list, append(slices.Clone(plain), "feas+token")...)
	if err != nil {
		return err
	}
	for _, policy := range []string{"feas", "feas+token"} {
		r.AtMost(fmt.Sprintf("stress, 1.0 to 2.0 times the capacity: drop rate of %s over that of pard, worst of %d cases", policy, len(d.names)), "our default", 1.02, "ratio", d.against(policy).largest)
	}
	return nil
}
