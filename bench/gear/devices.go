package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/planner/gear/cascades"
	policygear "inferplan/policy/gear"
)

// study holds the questions to a family.
type study struct {
	targets   []float64 // accuracies at which devices are compared
	most      int       // devices that a system may need
	devices   []int     // of part methods
	ablated   []int     // devices of part ablations
	switching []int     // devices of part switching
	seconds   int       // that a stretch of a trace lasts there
}

var studies = map[string]study{
	"bert5":  {[]float64{.92, .93, .934, .935}, 14, []int{1, 2, 3, 4, 5, 6, 8, 9, 11}, []int{1, 2, 3, 4}, []int{2, 4}, 240},
	"llama4": {[]float64{.61, .62, .63, .64, .645}, 16, []int{1, 2, 4, 5, 6, 8, 9, 10, 12}, []int{2, 4, 6}, []int{2, 3, 4, 5, 6, 7, 8, 9}, 1200},
	"imdb3":  {[]float64{.80, .83, .85, .86}, 16, []int{2, 4, 6, 8, 10}, []int{2, 4, 6}, []int{2, 4, 6}, 240},
}

// tolerance says how far below a target an accuracy may be: four digits are compared.
const tolerance = 5e-5

// chosenOnPlanned is the name of Cascadia-like plans that were chosen by the samples planned on, as ours are.
const chosenOnPlanned = "Cascadia-like, chosen on the samples planned on"

// columnNames are the methods in the order of the columns. The first two are our plans.
var columnNames = []string{"planner", "planner, all requests", "no switching", "no cascade", "Cascadia-like", "Cascadia-like, re-deployed", "MS+", chosenOnPlanned, "DynBa", "Cocktail+"}

// rivals are the methods than which a plan should never need more devices.
var rivals = []string{"Cascadia-like", "Cascadia-like, re-deployed", "MS+", "DynBa", "no switching", "Cocktail+"}

// contest compares the devices that methods need for the accuracies of a study.
type contest struct {
	study
	f             *published.Family
	circumstances string // in claims, behind the workload
	slo           time.Duration
	streams       []stream
	methods       map[string]method
	least         map[string][]float64 // devices by method and target; 0 stands for more than the most
}

// newContest returns a contest of the methods that are compared in all circumstances.
func newContest(f *published.Family, circumstances string, slo time.Duration, streams []stream) *contest {
	c := &contest{study: studies[f.Name], f: f, circumstances: circumstances, slo: slo, streams: streams, methods: map[string]method{}, least: map[string][]float64{}}
	for _, name := range []string{"planner", "planner, all requests", "Cascadia-like", "Cascadia-like, re-deployed", "MS+"} {
		c.methods[name] = methodsByName[name]
	}
	c.methods["DynBa"] = dynBa(c.targets[0] - tolerance)
	return c
}

// measure finds the devices that the methods need.
func (c *contest) measure(r *instrument.Run) error {
	for _, name := range columnNames {
		if build := c.methods[name]; build != nil {
			var err error
			if c.least[name], err = c.leastDevices(r, build); err != nil {
				return err
			}
		}
	}
	return nil
}

// leastDevices returns the least devices on which a method is in time and accurate enough, by target. It tries them one by one. The
// accuracy is that of the gears that requests come under, without the luck of the samples that a stream brings.
func (c *contest) leastDevices(r *instrument.Run, build method) ([]float64, error) {
	var least []float64 // of the targets so far, which rise
	for devices := 1; devices <= c.most && len(least) < len(c.targets); devices++ {
		v, err := build(r, place{c.f, devices, c.slo}, c.streams)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		runs, err := v.allInTime(r, c.streams)
		if err != nil {
			return nil, err
		}
		for runs != nil && len(least) < len(c.targets) && pooled(runs).Expected >= c.targets[len(least)]-tolerance {
			least = append(least, float64(devices))
		}
	}
	return append(least, make([]float64, len(c.targets)-len(least))...), nil
}

// count writes the devices that a method needs for a target; nothing if it was not measured.
func (c *contest) count(method string, target int) string {
	least := c.least[method]
	switch {
	case least == nil:
		return ""
	case least[target] == 0:
		return fmt.Sprintf(">%d", c.most)
	}
	return fmt.Sprintf("%.4g", least[target])
}

// timesFewer returns how many times fewer devices a plan needs than the better of MS+ and DynBa; 0 if that is not known.
func (c *contest) timesFewer(plan string, target int) float64 {
	best := c.least["MS+"][target]
	if single := c.least["DynBa"][target]; best == 0 || single > 0 && single < best {
		best = single
	}
	if best == 0 || c.least[plan][target] == 0 {
		return 0
	}
	return best / c.least[plan][target]
}

// fill adds a row for every target.
func (c *contest) fill(t *instrument.Table) {
	t.Columns = append(append([]string{"workload", "case", "accuracy"}, columnNames...), "planner: times fewer than the better of MS+ and DynBa", "all requests: times fewer")
	for i, target := range c.targets {
		row := []any{c.f.Name, strings.TrimLeft(c.circumstances, ", "), target}
		for _, name := range columnNames {
			row = append(row, c.count(name, i))
		}
		for _, plan := range columnNames[:2] {
			cell := "-"
			if fewer := c.timesFewer(plan, i); fewer > 0 {
				cell = fmt.Sprintf("%.2f", fewer)
			}
			row = append(row, cell)
		}
		t.Add(row...)
	}
}

// stateFewer states how many times fewer devices a plan needs than the better of MS+ and DynBa. The paper has 2 to 3.
func (c *contest) stateFewer(r *instrument.Run) {
	for i, target := range c.targets {
		fewer := c.timesFewer("planner", i)
		if fewer == 0 {
			continue
		}
		holds := figures.If(fewer >= 2)
		if fewer > 1 && fewer < 2 {
			holds = figures.Partly
		}
		var note []string
		for _, name := range []string{"planner", "MS+", "DynBa", "Cocktail+"} {
			if c.least[name] != nil {
				note = append(note, name+" "+c.count(name, i))
			}
		}
		r.Figure(figures.Figure{Claim: fmt.Sprintf("devices of %s at accuracy %g%s: times fewer than the better of MS+ and DynBa", c.f.Name, target, c.circumstances),
			Source: "CascadeServe (arXiv:2406.14424), figure 7", Asked: "2 to 3", Measured: fewer, Holds: holds, Note: strings.Join(note, ", ")})
	}
}

// stateNeverMore states for how many targets a plan needs more devices than a rival.
func (c *contest) stateNeverMore(r *instrument.Run) {
	for _, plan := range columnNames[:2] {
		var lost []string
		for i, target := range c.targets {
			var better []string
			for _, name := range rivals {
				if least := c.least[name]; least != nil && least[i] > 0 && (c.least[plan][i] == 0 || least[i] < c.least[plan][i]) {
					better = append(better, name+" "+c.count(name, i))
				}
			}
			if better != nil {
				lost = append(lost, fmt.Sprintf("%g: %g against %s", target, c.least[plan][i], strings.Join(better, ", ")))
			}
		}
		f := r.Exactly(fmt.Sprintf("%s%s, %s: accuracies of %d for which a baseline needs fewer devices", c.f.Name, c.circumstances, plan, len(c.targets)),
			"baselines of gear plans (docs/methods/gear.md)", 0, "", float64(len(lost)))
		if f.Note = "none"; len(lost) > 0 {
			f.Note = strings.Join(lost, "; ")
		}
	}
}

// hold measures contests at the same time, and shows them in their order. fewer says whether it is stated how many times fewer devices
// plans need.
func hold(r *instrument.Run, t *instrument.Table, contests []*contest, fewer bool) error {
	if err := r.ForEach(len(contests), func(_ context.Context, i int) error { return contests[i].measure(r) }); err != nil {
		return err
	}
	for _, c := range contests {
		c.fill(t)
		if fewer {
			c.stateFewer(r)
		}
		c.stateNeverMore(r)
	}
	return nil
}

// gpus compares devices with even arrivals, and with every Poisson stream in time.
func gpus(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	evenly := newContest(f, ", even arrivals", f.SLO, evenAlone)
	evenly.methods["no switching"], evenly.methods["no cascade"] = methodsByName["no switching"], methodsByName["no cascade"]
	atRandom := newContest(f, fmt.Sprintf(", Poisson, %d arrivals", len(fivePoisson)), f.SLO, fivePoisson)
	return hold(r, t, []*contest{evenly, atRandom}, true)
}

// gpuMap compares devices at several latency targets, as figure 7 does.
func gpuMap(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	var contests []*contest
	for _, share := range []float64{.25, .5, 1, 2} {
		slo := time.Duration(share * float64(f.SLO))
		contests = append(contests, newContest(f, fmt.Sprintf(" within %v", slo), slo, evenAlone))
	}
	return hold(r, t, contests, false)
}

// outOfSample compares devices on the samples that plans are made on, and on others. Baselines choose by the samples that they are judged
// on. One column has what Cascadia-like plans need that were chosen, as ours, on the samples planned on. Synthetic samples are two draws
// of the generator, real ones are split 60 to 40.
func outOfSample(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	drawn, err := f.Draw(r.Data, 0)
	if err != nil {
		return err
	}
	drawn.Name = f.Name + ", drawn"
	contests := []*contest{newContest(f, " on samples planned on", f.SLO, evenAlone), newContest(f, " on samples held out", f.SLO, evenAlone)}
	for i, judged := range []*published.Family{drawn, drawn.HeldOut()} {
		c := contests[i]
		c.methods["no switching"], c.methods[chosenOnPlanned] = methodsByName["no switching"], methodsByName["Cascadia-like"]
		for name, build := range c.methods {
			switch {
			case name != "planner" && name != "planner, all requests" && name != chosenOnPlanned:
				c.methods[name] = build.ofFamily(judged)
			case judged == drawn:
				c.methods[name] = build.ofFamily(drawn)
			default:
				c.methods[name] = onHeldOut(build.ofFamily(drawn))
			}
		}
		for _, target := range c.targets {
			e, err := cheapestEnsemble(r, judged, target, baseline.Sliding{})
			if err != nil {
				return err
			}
			devices := 0.0
			if e != nil {
				devices = e.Mean
			}
			c.least["Cocktail+"] = append(c.least["Cocktail+"], devices)
		}
	}
	return hold(r, t, contests, true)
}

// onHeldOut returns a method whose plans run on the samples held out instead of those planned on.
func onHeldOut(build method) method {
	return func(r *instrument.Run, p place, streams []stream) (*plan, error) {
		v, err := build(r, p, streams)
		if err != nil || v == nil {
			return nil, err
		}
		return v.altered(", samples held out", func(t *policygear.Tables) error {
			q, err := v.problem()
			if err == nil {
				t.Records, err = heldOutRecords(q, &t.Records)
			}
			return err
		}), nil
	}
}

// heldOutRecords returns the answers to the samples held out, of the pipelines whose answers to the samples planned on are given. Tables
// have no pipelines of models that nothing uses.
func heldOutRecords(q *cascades.Problem, planned *policygear.SampleRecords) (policygear.SampleRecords, error) {
	records := policygear.SampleRecords{Samples: q.HeldOutSamples.N}
	for pipeline, answers := range planned.Correct {
		m := slices.IndexFunc(q.PlanningSamples.Correct, func(correct []bool) bool { return slices.Equal(correct, answers) })
		if m < 0 {
			return records, fmt.Errorf("the answers of pipeline %d are of no model", pipeline)
		}
		records.Levels, records.Correct = append(records.Levels, q.HeldOutSamples.Levels[m]), append(records.Correct, q.HeldOutSamples.Correct[m])
	}
	return records, nil
}
